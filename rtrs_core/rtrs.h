/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C API of the RDMA transport (rtrs-core, rtrs-client, rtrs-server).
 *
 * Names, types and layouts are those of the kernel's own rtrs.h, so that a block
 * driver built against either header runs on these modules. What each call may
 * be used from, and what it returns, is in Documentation/api-c.rst.
 */
#ifndef RTRS_H
#define RTRS_H

#include <linux/scatterlist.h>
#include <linux/socket.h>
#include <linux/types.h>
#include <linux/uio.h>

struct rtrs_permit;
struct rtrs_clt_sess;
struct rtrs_srv_ctx;
struct rtrs_srv_sess;
struct rtrs_srv_op;

/* Addresses of a path; @src may be NULL: any. */
struct rtrs_addr {
	struct sockaddr_storage *src;
	struct sockaddr_storage *dst;
};

/*
 * Client
 */

enum rtrs_clt_link_ev {
	RTRS_CLT_LINK_EV_RECONNECTED,	/* the first path is back */
	RTRS_CLT_LINK_EV_DISCONNECTED,	/* the last path is gone */
};

struct rtrs_clt_ops {
	void *priv;
	void (*link_ev)(void *priv, enum rtrs_clt_link_ev ev);
};

/* What a request uses: the service connection or one for IO. */
enum rtrs_clt_con_type {
	RTRS_ADMIN_CON,
	RTRS_IO_CON
};

enum wait_type {
	RTRS_PERMIT_NOWAIT = 0,
	RTRS_PERMIT_WAIT   = 1
};

struct rtrs_clt_req_ops {
	void *priv;
	void (*conf_fn)(void *priv, int errno);
};

struct rtrs_attrs {
	u32 queue_depth;	/* permits of the session */
	u32 max_io_size;	/* bytes of data in a request */
	u32 max_segments;	/* entries of its scatter list */
};

struct rtrs_clt_sess *rtrs_clt_open(struct rtrs_clt_ops *ops, const char *pathname,
				    const struct rtrs_addr *paths, size_t path_cnt, u16 port,
				    size_t pdu_sz, u8 reconnect_delay_sec,
				    s16 max_reconnect_attempts, u32 nr_poll_queues);
void rtrs_clt_close(struct rtrs_clt_sess *clt);

struct rtrs_permit *rtrs_clt_get_permit(struct rtrs_clt_sess *sess,
					enum rtrs_clt_con_type con_type, enum wait_type wait);
void rtrs_clt_put_permit(struct rtrs_clt_sess *sess, struct rtrs_permit *permit);

/* @dir is READ or WRITE; @vec and @nr are the user message. */
int rtrs_clt_request(int dir, struct rtrs_clt_req_ops *ops, struct rtrs_clt_sess *sess,
		     struct rtrs_permit *permit, const struct kvec *vec, size_t nr, size_t len,
		     struct scatterlist *sg, unsigned int sg_cnt);
int rtrs_clt_rdma_cq_direct(struct rtrs_clt_sess *clt, unsigned int index);
int rtrs_clt_query(struct rtrs_clt_sess *sess, struct rtrs_attrs *attr);

/*
 * Server
 */

enum rtrs_srv_link_ev {
	RTRS_SRV_LINK_EV_CONNECTED,	/* a session got its first path */
	RTRS_SRV_LINK_EV_DISCONNECTED,	/* its last path is gone, no request is left */
};

struct rtrs_srv_ops {
	/* A request. 0: rtrs_srv_resp_rdma() will follow; else it is the answer. */
	int (*rdma_ev)(void *priv, struct rtrs_srv_op *id, void *data, size_t datalen,
		       const void *usr, size_t usrlen);
	/* May refuse RTRS_SRV_LINK_EV_CONNECTED. */
	int (*link_ev)(struct rtrs_srv_sess *sess, enum rtrs_srv_link_ev ev, void *priv);
};

struct rtrs_srv_ctx *rtrs_srv_open(struct rtrs_srv_ops *ops, u16 port);
void rtrs_srv_close(struct rtrs_srv_ctx *ctx);
bool rtrs_srv_resp_rdma(struct rtrs_srv_op *id, int errno);
void rtrs_srv_set_sess_priv(struct rtrs_srv_sess *sess, void *priv);
int rtrs_srv_get_path_name(struct rtrs_srv_sess *sess, char *pathname, size_t len);
int rtrs_srv_get_queue_depth(struct rtrs_srv_sess *sess);

/*
 * Addresses as text
 */

int rtrs_addr_to_sockaddr(const char *str, size_t len, u16 port, struct rtrs_addr *addr);
int sockaddr_to_str(const struct sockaddr *addr, char *buf, size_t len);
int rtrs_addr_to_str(const struct rtrs_addr *addr, char *buf, size_t len);

#endif /* RTRS_H */
