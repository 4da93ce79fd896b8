/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of rtrs-server. Events of mainline's module have the same name
 * and fields as there: their field sessname is the name of the path.
 *
 * A request passes rtrs_srv_recv, perhaps rtrs_srv_parked, rtrs_srv_invalidated
 * if the key of its chunk is invalidated, then rtrs_srv_submit, rtrs_srv_done and
 * send_io_resp_imm. msg_id is the number of its chunk all the way.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rtrs_srv

#if !defined(_RTRS_SERVER_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RTRS_SERVER_TRACE_H

#include <linux/limits.h>
#include <linux/tracepoint.h>

#include "trace_text.h"

#define rtrs_srv_show_dir(dir) \
	__print_symbolic(dir, { 0, "READ" }, { 1, "WRITE" })

#define rtrs_srv_show_state(state) \
	__print_symbolic(state, \
		{ 0, "CONNECTING" }, \
		{ 1, "CONNECTED" }, \
		{ 2, "CLOSING" }, \
		{ 3, "CLOSED" })

DECLARE_EVENT_CLASS(rtrs_srv_arrival_class,
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 msg_id, u32 off, u32 len),

	TP_ARGS(sess, path, cid, msg_id, off, len),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__field(u32, msg_id)
		__field(u32, off)
		__field(u32, len)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__entry->msg_id = msg_id;
		__entry->off = off;
		__entry->len = len;
	),

	TP_printk("sess=%s path=%s cid=%u msg_id=%u off=%u len=%u",
		  __get_str(sess), __get_str(path), __entry->cid, __entry->msg_id,
		  __entry->off, __entry->len
	)
);

#define DEFINE_RTRS_SRV_ARRIVAL_EVENT(name) \
DEFINE_EVENT(rtrs_srv_arrival_class, name, \
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 msg_id, u32 off, u32 len), \
	TP_ARGS(sess, path, cid, msg_id, off, len))

/* A request was received: len bytes, with the message at off. */
DEFINE_RTRS_SRV_ARRIVAL_EVENT(rtrs_srv_recv);
/* A request waits for the one of another path that has the same chunk. */
DEFINE_RTRS_SRV_ARRIVAL_EVENT(rtrs_srv_parked);
/* The key of its chunk is invalid: the client cannot change the data any more. */
DEFINE_RTRS_SRV_ARRIVAL_EVENT(rtrs_srv_invalidated);

DECLARE_EVENT_CLASS(rtrs_srv_work_class,
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 msg_id, u32 dir,
		 u32 data_len, u32 usr_len, int result, u64 age_ns),

	TP_ARGS(sess, path, cid, msg_id, dir, data_len, usr_len, result, age_ns),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__field(u32, msg_id)
		__field(u32, dir)
		__field(u32, data_len)
		__field(u32, usr_len)
		__field(int, result)
		__field(u64, age_ns)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__entry->msg_id = msg_id;
		__entry->dir = dir;
		__entry->data_len = data_len;
		__entry->usr_len = usr_len;
		__entry->result = result;
		__entry->age_ns = age_ns;
	),

	TP_printk("sess=%s path=%s cid=%u msg_id=%u dir=%s data=%u user=%u result=%d age=%llu ns",
		  __get_str(sess), __get_str(path), __entry->cid, __entry->msg_id,
		  rtrs_srv_show_dir(__entry->dir), __entry->data_len, __entry->usr_len,
		  __entry->result, __entry->age_ns
	)
);

#define DEFINE_RTRS_SRV_WORK_EVENT(name) \
DEFINE_EVENT(rtrs_srv_work_class, name, \
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 msg_id, u32 dir, \
		 u32 data_len, u32 usr_len, int result, u64 age_ns), \
	TP_ARGS(sess, path, cid, msg_id, dir, data_len, usr_len, result, age_ns))

/* A request is handed to the user, age_ns after it was received. */
DEFINE_RTRS_SRV_WORK_EVENT(rtrs_srv_submit);
/* The user is done with it. */
DEFINE_RTRS_SRV_WORK_EVENT(rtrs_srv_done);

/* The answer to a request was posted; wr_cnt is the length of the send queue. */
TRACE_EVENT(send_io_resp_imm,
	TP_PROTO(const char *sess, const char *path, u32 dir, bool need_inval,
		 bool always_invalidate, u32 msg_id, int wr_cnt, u32 signal_interval,
		 int state, int error),

	TP_ARGS(sess, path, dir, need_inval, always_invalidate, msg_id, wr_cnt,
		signal_interval, state, error),

	TP_STRUCT__entry(
		__field(u8, dir)
		__field(bool, need_inval)
		__field(bool, always_invalidate)
		__field(u32, msg_id)
		__field(int, wr_cnt)
		__field(u32, signal_interval)
		__field(int, state)
		__field(int, errno)
		__array(char, sessname, NAME_MAX)
		__string(session, sess)
	),

	TP_fast_assign(
		__entry->dir = dir;
		__entry->need_inval = need_inval;
		__entry->always_invalidate = always_invalidate;
		__entry->msg_id = msg_id;
		__entry->wr_cnt = wr_cnt;
		__entry->signal_interval = signal_interval;
		__entry->state = state;
		__entry->errno = error;
		strscpy(__entry->sessname, path, NAME_MAX);
		__assign_str(session);
	),

	TP_printk("sess='%s' state='%s' dir=%s err='%d' inval='%d' glob-inval='%d' msgid='%u' wrcnt='%d' sig-interval='%u' session='%s'",
		  __entry->sessname, rtrs_srv_show_state(__entry->state),
		  rtrs_srv_show_dir(__entry->dir), __entry->errno, __entry->need_inval,
		  __entry->always_invalidate, __entry->msg_id, __entry->wr_cnt,
		  __entry->signal_interval, __get_str(session)
	)
);

DECLARE_EVENT_CLASS(rtrs_srv_path_class,
	TP_PROTO(const char *sess, const char *path, const struct rtrs_text *old,
		 const struct rtrs_text *new, const struct rtrs_text *why),

	TP_ARGS(sess, path, old, new, why),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__string_len(old, old->ptr, old->len)
		__string_len(new, new->ptr, new->len)
		__string_len(why, why->ptr, why->len)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__assign_str(old);
		__assign_str(new);
		__assign_str(why);
	),

	TP_printk("sess=%s path=%s %s -> %s (%s)",
		  __get_str(sess), __get_str(path), __get_str(old), __get_str(new),
		  __get_str(why)
	)
);

#define DEFINE_RTRS_SRV_PATH_EVENT(name) \
DEFINE_EVENT(rtrs_srv_path_class, name, \
	TP_PROTO(const char *sess, const char *path, const struct rtrs_text *old, \
		 const struct rtrs_text *new, const struct rtrs_text *why), \
	TP_ARGS(sess, path, old, new, why))

/* The state of a path changes. */
DEFINE_RTRS_SRV_PATH_EVENT(rtrs_srv_path_state);
/* The client broke the protocol; the path is about to be closed. */
DEFINE_RTRS_SRV_PATH_EVENT(rtrs_srv_violation);

#endif /* _RTRS_SERVER_TRACE_H */

/* This part must be outside protection */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
