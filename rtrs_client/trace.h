/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of rtrs-client. Events of mainline's module have the same name
 * and fields as there: their field sessname is the name of the path.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rtrs_clt

#if !defined(_RTRS_CLIENT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RTRS_CLIENT_TRACE_H

#include <linux/limits.h>
#include <linux/tracepoint.h>

#include "trace_text.h"

#define rtrs_clt_show_dir(dir) \
	__print_symbolic(dir, { 0, "READ" }, { 1, "WRITE" })

#define rtrs_clt_show_state(state) \
	__print_symbolic(state, \
		{ 0, "CONNECTING" }, \
		{ 1, "CONNECTING_ERR" }, \
		{ 2, "RECONNECTING" }, \
		{ 3, "CONNECTED" }, \
		{ 4, "CLOSING" }, \
		{ 5, "CLOSED" }, \
		{ 6, "DEAD" })

DECLARE_EVENT_CLASS(rtrs_clt_conn_class,
	TP_PROTO(const char *sess, const char *path, int state, int reconnect_attempts,
		 int max_reconnect_attempts, int fail_cnt, int success_cnt),

	TP_ARGS(sess, path, state, reconnect_attempts, max_reconnect_attempts, fail_cnt,
		success_cnt),

	TP_STRUCT__entry(
		__field(int, state)
		__field(int, reconnect_attempts)
		__field(int, max_reconnect_attempts)
		__field(int, fail_cnt)
		__field(int, success_cnt)
		__array(char, sessname, NAME_MAX)
		__string(session, sess)
	),

	TP_fast_assign(
		__entry->state = state;
		__entry->reconnect_attempts = reconnect_attempts;
		__entry->max_reconnect_attempts = max_reconnect_attempts;
		__entry->fail_cnt = fail_cnt;
		__entry->success_cnt = success_cnt;
		strscpy(__entry->sessname, path, NAME_MAX);
		__assign_str(session);
	),

	TP_printk("RTRS-CLT: sess='%s' state=%s attempts='%d' max-attempts='%d' fail='%d' success='%d' session='%s'",
		  __entry->sessname, rtrs_clt_show_state(__entry->state),
		  __entry->reconnect_attempts, __entry->max_reconnect_attempts,
		  __entry->fail_cnt, __entry->success_cnt, __get_str(session)
	)
);

#define DEFINE_RTRS_CLT_CONN_EVENT(name) \
DEFINE_EVENT(rtrs_clt_conn_class, name, \
	TP_PROTO(const char *sess, const char *path, int state, int reconnect_attempts, \
		 int max_reconnect_attempts, int fail_cnt, int success_cnt), \
	TP_ARGS(sess, path, state, reconnect_attempts, max_reconnect_attempts, fail_cnt, \
		success_cnt))

/* A path is connected anew. */
DEFINE_RTRS_CLT_CONN_EVENT(rtrs_clt_reconnect_work);
/* The connections of a path are closed on request. */
DEFINE_RTRS_CLT_CONN_EVENT(rtrs_clt_close_conns);
/* The connections of a path are closed because of an error. */
DEFINE_RTRS_CLT_CONN_EVENT(rtrs_rdma_error_recovery);

/* The state of a path changes; error is the last one, 0 if there was none. */
TRACE_EVENT(rtrs_clt_path_state,
	TP_PROTO(const char *sess, const char *path, const struct rtrs_text *old,
		 const struct rtrs_text *new, int error, const struct rtrs_text *why),

	TP_ARGS(sess, path, old, new, error, why),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__string_len(old, old->ptr, old->len)
		__string_len(new, new->ptr, new->len)
		__field(int, error)
		__string_len(why, why->ptr, why->len)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__assign_str(old);
		__assign_str(new);
		__entry->error = error;
		__assign_str(why);
	),

	TP_printk("sess=%s path=%s %s -> %s error=%d (%s)",
		  __get_str(sess), __get_str(path), __get_str(old), __get_str(new),
		  __entry->error, __get_str(why)
	)
);

/* The server broke the protocol; the path is about to be closed. */
TRACE_EVENT(rtrs_clt_violation,
	TP_PROTO(const char *sess, const char *path, u32 cid, const struct rtrs_text *why),

	TP_ARGS(sess, path, cid, why),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__string_len(why, why->ptr, why->len)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__assign_str(why);
	),

	TP_printk("sess=%s path=%s cid=%u (%s)",
		  __get_str(sess), __get_str(path), __entry->cid, __get_str(why)
	)
);

/* A request is about to be posted on a path. */
TRACE_EVENT(rtrs_clt_issue,
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 id, u32 dir, u64 data_len,
		 u32 usr_len, bool failover),

	TP_ARGS(sess, path, cid, id, dir, data_len, usr_len, failover),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__field(u32, id)
		__field(u32, dir)
		__field(u64, data_len)
		__field(u32, usr_len)
		__field(bool, failover)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__entry->id = id;
		__entry->dir = dir;
		__entry->data_len = data_len;
		__entry->usr_len = usr_len;
		__entry->failover = failover;
	),

	TP_printk("sess=%s path=%s cid=%u id=%u dir=%s data=%llu user=%u failover=%d",
		  __get_str(sess), __get_str(path), __entry->cid, __entry->id,
		  rtrs_clt_show_dir(__entry->dir), __entry->data_len, __entry->usr_len,
		  __entry->failover
	)
);

/* The server's answer to a request has come. */
TRACE_EVENT(rtrs_clt_response,
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 id, int result, bool inval),

	TP_ARGS(sess, path, cid, id, result, inval),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__field(u32, id)
		__field(int, result)
		__field(bool, inval)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__entry->id = id;
		__entry->result = result;
		__entry->inval = inval;
	),

	TP_printk("sess=%s path=%s cid=%u id=%u result=%d inval=%d",
		  __get_str(sess), __get_str(path), __entry->cid, __entry->id, __entry->result,
		  __entry->inval
	)
);

/* All that a request waited for has come; it goes back to its user. */
TRACE_EVENT(rtrs_clt_complete,
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 id, u32 dir, int result,
		 u64 latency_ns),

	TP_ARGS(sess, path, cid, id, dir, result, latency_ns),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__field(u32, id)
		__field(u32, dir)
		__field(int, result)
		__field(u64, latency_ns)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__entry->id = id;
		__entry->dir = dir;
		__entry->result = result;
		__entry->latency_ns = latency_ns;
	),

	TP_printk("sess=%s path=%s cid=%u id=%u dir=%s result=%d latency=%llu ns",
		  __get_str(sess), __get_str(path), __entry->cid, __entry->id,
		  rtrs_clt_show_dir(__entry->dir), __entry->result, __entry->latency_ns
	)
);

/* No path took a request; it waits. paths is how many are up. */
TRACE_EVENT(rtrs_clt_park,
	TP_PROTO(const char *sess, u32 id, u32 paths),

	TP_ARGS(sess, id, paths),

	TP_STRUCT__entry(
		__string(sess, sess)
		__field(u32, id)
		__field(u32, paths)
	),

	TP_fast_assign(
		__assign_str(sess);
		__entry->id = id;
		__entry->paths = paths;
	),

	TP_printk("sess=%s id=%u paths=%u", __get_str(sess), __entry->id, __entry->paths)
);

/* A request waits no more: it is offered to the paths again, or fails with result. */
TRACE_EVENT(rtrs_clt_resume,
	TP_PROTO(const char *sess, u32 id, int result),

	TP_ARGS(sess, id, result),

	TP_STRUCT__entry(
		__string(sess, sess)
		__field(u32, id)
		__field(int, result)
	),

	TP_fast_assign(
		__assign_str(sess);
		__entry->id = id;
		__entry->result = result;
	),

	TP_printk("sess=%s id=%u result=%d", __get_str(sess), __entry->id, __entry->result)
);

/* A request was in flight on a path that failed; answered if the server was done with it. */
TRACE_EVENT(rtrs_clt_failover,
	TP_PROTO(const char *sess, const char *path, u32 cid, u32 id, bool answered),

	TP_ARGS(sess, path, cid, id, answered),

	TP_STRUCT__entry(
		__string(sess, sess)
		__string(path, path)
		__field(u32, cid)
		__field(u32, id)
		__field(bool, answered)
	),

	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->cid = cid;
		__entry->id = id;
		__entry->answered = answered;
	),

	TP_printk("sess=%s path=%s cid=%u id=%u answered=%d",
		  __get_str(sess), __get_str(path), __entry->cid, __entry->id,
		  __entry->answered
	)
);

#endif /* _RTRS_CLIENT_TRACE_H */

/* This part must be outside protection */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
