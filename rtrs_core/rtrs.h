/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C API of the RDMA transport (rtrs-core, rtrs-client, rtrs-server).
 *
 * Names, types and layouts are those of the kernel's own rtrs.h, so that a block
 * driver built against either header runs on these modules. More about errors,
 * limits and differences from mainline is in Documentation/api-c.rst.
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

/**
 * struct rtrs_addr - the addresses of a path
 * @src: address of the client, or NULL if routing chooses it
 * @dst: address of the server, with its port
 */
struct rtrs_addr {
	struct sockaddr_storage *src;
	struct sockaddr_storage *dst;
};

/*
 * Client
 */

/**
 * enum rtrs_clt_link_ev - events of a session, for its user
 * @RTRS_CLT_LINK_EV_RECONNECTED: there is a path again, after the other event
 * @RTRS_CLT_LINK_EV_DISCONNECTED: requests fail because there is no path, or
 *	the server has forgotten the session. Not sent while requests wait for a
 *	path.
 */
enum rtrs_clt_link_ev {
	RTRS_CLT_LINK_EV_RECONNECTED,
	RTRS_CLT_LINK_EV_DISCONNECTED,
};

/**
 * struct rtrs_clt_ops - the user of a session
 * @priv: given back to @link_ev
 * @link_ev: called with each event, one at a time, or NULL. Runs in process
 *	context, may sleep, wait for permits and requests, but not close the
 *	session. Not called any more once rtrs_clt_close() has returned.
 */
struct rtrs_clt_ops {
	void *priv;
	void (*link_ev)(void *priv, enum rtrs_clt_link_ev ev);
};

/**
 * enum rtrs_clt_con_type - the connection that a request goes out on
 * @RTRS_ADMIN_CON: the service connection, for administrative messages
 * @RTRS_IO_CON: the connection of the CPU that takes the permit; with polled
 *	queues, the one that is polled on the CPU that submits the request, if
 *	any, otherwise the connection of that CPU
 */
enum rtrs_clt_con_type {
	RTRS_ADMIN_CON,
	RTRS_IO_CON
};

/**
 * enum wait_type - behaviour while there is no permit
 * @RTRS_PERMIT_NOWAIT: return NULL
 * @RTRS_PERMIT_WAIT: sleep until there is one
 */
enum wait_type {
	RTRS_PERMIT_NOWAIT = 0,
	RTRS_PERMIT_WAIT   = 1
};

/**
 * struct rtrs_clt_req_ops - how the user is told that a request is over
 * @priv: passed to @conf_fn
 * @conf_fn: called once, in softirq or process context; must not sleep. @errno is
 *	0, the server's negative errno, or -ECONNABORTED if there was no path in
 *	time or the session is being closed.
 */
struct rtrs_clt_req_ops {
	void *priv;
	void (*conf_fn)(void *priv, int errno);
};

/**
 * struct rtrs_attrs - limits of a session
 * @queue_depth: number of permits, and so of concurrent requests
 * @max_io_size: most bytes of data in a request
 * @max_segments: most entries of its scatter list
 */
struct rtrs_attrs {
	u32 queue_depth;
	u32 max_io_size;
	u32 max_segments;
};

/**
 * rtrs_clt_open() - open a session to a server
 * @ops: the user, copied
 * @pathname: name of the session: 1 to 254 printable ASCII characters without
 *	blank, "/" and "."
 * @paths: addresses of its first paths, all of which have to connect
 * @path_cnt: number of @paths, at least 1
 * @port: port of the server for paths that are added later
 * @pdu_sz: bytes reserved for the user behind each permit
 * @reconnect_delay_sec: longest regular wait between attempts to reconnect
 * @max_reconnect_attempts: attempts in a row before a path is given up, -1 for no limit
 * @nr_poll_queues: connections of each path that are polled instead of served by interrupts
 *
 * Context: Process. Sleeps until all paths are connected or one has failed.
 * Return: The session, or an ERR_PTR().
 */
struct rtrs_clt_sess *rtrs_clt_open(struct rtrs_clt_ops *ops, const char *pathname,
				    const struct rtrs_addr *paths, size_t path_cnt, u16 port,
				    size_t pdu_sz, u8 reconnect_delay_sec,
				    s16 max_reconnect_attempts, u32 nr_poll_queues);

/**
 * rtrs_clt_close() - close a session
 * @clt: the session. Nothing but rtrs_clt_put_permit() may be called for it meanwhile.
 *
 * Fails requests that are in flight or wait.
 *
 * Context: Process. Sleeps until all permits were put.
 */
void rtrs_clt_close(struct rtrs_clt_sess *clt);

/**
 * rtrs_clt_get_permit() - take the right to have one request at a time
 * @sess: the session
 * @con_type: connection of the permit's requests
 * @wait: whether to wait for a permit
 *
 * The user's @pdu_sz bytes begin 16 bytes behind the pointer.
 *
 * Context: Any with RTRS_PERMIT_NOWAIT, process with RTRS_PERMIT_WAIT.
 * Return: The permit, or NULL if there is none or the session is being closed.
 */
struct rtrs_permit *rtrs_clt_get_permit(struct rtrs_clt_sess *sess,
					enum rtrs_clt_con_type con_type, enum wait_type wait);

/**
 * rtrs_clt_put_permit() - give a permit back
 * @sess: the session
 * @permit: a permit of that session that has no request in flight
 *
 * Context: Any.
 */
void rtrs_clt_put_permit(struct rtrs_clt_sess *sess, struct rtrs_permit *permit);

/**
 * rtrs_clt_request() - send a request
 * @dir: READ or WRITE
 * @ops: the callback for the end of the request, copied
 * @sess: the session
 * @permit: a permit of that session
 * @vec: pieces of the user message, which is copied
 * @nr: number of pieces
 * @len: length of the data; a wrong one is found and corrected, which takes time
 * @sg: the data; list and pages stay untouched until conf_fn is called
 * @sg_cnt: entries of @sg
 *
 * If there is no path the request waits, see fast_io_fail_tmo.
 *
 * Context: Any.
 * Return: 0 if conf_fn was or will be called; otherwise a negative errno, and
 * conf_fn is not called.
 */
int rtrs_clt_request(int dir, struct rtrs_clt_req_ops *ops, struct rtrs_clt_sess *sess,
		     struct rtrs_permit *permit, const struct kvec *vec, size_t nr, size_t len,
		     struct scatterlist *sg, unsigned int sg_cnt);

/**
 * rtrs_clt_rdma_cq_direct() - poll for completions
 * @clt: the session
 * @index: polled connection, modulo nr_poll_queues
 *
 * Context: Any in which conf_fn may be called: it is called from here.
 * Return: Number of completions that were found on all paths.
 */
int rtrs_clt_rdma_cq_direct(struct rtrs_clt_sess *clt, unsigned int index);

/**
 * rtrs_clt_query() - get the limits of a session
 * @sess: the session
 * @attr: receives the limits
 *
 * Context: Any.
 * Return: 0, or -ECOMM while requests fail because there is no path.
 */
int rtrs_clt_query(struct rtrs_clt_sess *sess, struct rtrs_attrs *attr);

/*
 * Server
 */

/**
 * enum rtrs_srv_link_ev - events of a session, for the user of a server
 * @RTRS_SRV_LINK_EV_CONNECTED: it has its first path
 * @RTRS_SRV_LINK_EV_DISCONNECTED: it has had no path for as long as sessions are
 *	kept, or the server is being closed; all its requests were answered
 */
enum rtrs_srv_link_ev {
	RTRS_SRV_LINK_EV_CONNECTED,
	RTRS_SRV_LINK_EV_DISCONNECTED,
};

/**
 * struct rtrs_srv_ops - the user of a server
 * @rdma_ev: a request: direct data of @datalen bytes, which a write brings and a
 *	read must produce, and a private copy of the user message. Runs in
 *	process context, one at a time per connection; may sleep. Returns 0 if
 *	rtrs_srv_resp_rdma() was or will be called, else a negative errno, which
 *	is the answer.
 * @link_ev: an event of a session. Runs in process context, may sleep. A return
 *	value other than 0 turns the client away at RTRS_SRV_LINK_EV_CONNECTED
 *	and is ignored otherwise.
 *
 * No callback may close the server.
 */
struct rtrs_srv_ops {
	int (*rdma_ev)(void *priv, struct rtrs_srv_op *id, void *data, size_t datalen,
		       const void *usr, size_t usrlen);
	int (*link_ev)(struct rtrs_srv_sess *sess, enum rtrs_srv_link_ev ev, void *priv);
};

/**
 * rtrs_srv_open() - listen for clients
 * @ops: the user, copied
 * @port: port to listen on
 *
 * Context: Process.
 * Return: The server, or an ERR_PTR(); -EADDRNOTAVAIL if the port is in use.
 */
struct rtrs_srv_ctx *rtrs_srv_open(struct rtrs_srv_ops *ops, u16 port);

/**
 * rtrs_srv_close() - close all sessions and stop listening
 * @ctx: the server
 *
 * Context: Process, but not from a callback of the server. Sleeps until all requests
 *	were answered and the user was told the end of each session.
 */
void rtrs_srv_close(struct rtrs_srv_ctx *ctx);

/**
 * rtrs_srv_resp_rdma() - answer a request
 * @id: the request; it, its data and its user message are invalid afterwards
 * @errno: 0, or a negative errno for the client
 *
 * Context: Any.
 * Return: true. An answer that finds no room in a queue is sent later.
 */
bool rtrs_srv_resp_rdma(struct rtrs_srv_op *id, int errno);

/**
 * rtrs_srv_set_sess_priv() - set the pointer that callbacks get for a session
 * @sess: the session, from its first event to the return from its last
 * @priv: any pointer, initially NULL
 *
 * Context: Any.
 */
void rtrs_srv_set_sess_priv(struct rtrs_srv_sess *sess, void *priv);

/**
 * rtrs_srv_get_path_name() - get the name of a session
 * @sess: the session
 * @pathname: buffer for the name, which is zero-terminated
 * @len: size of the buffer; text that does not fit is cut off
 *
 * Context: Any.
 * Return: 0, -ENOTCONN if it has no name yet, -EINVAL if @len is 0.
 */
int rtrs_srv_get_path_name(struct rtrs_srv_sess *sess, char *pathname, size_t len);

/**
 * rtrs_srv_get_queue_depth() - get the request limit of a session
 * @sess: the session
 *
 * Context: Any.
 * Return: The number.
 */
int rtrs_srv_get_queue_depth(struct rtrs_srv_sess *sess);

/*
 * Addresses as text
 */

/**
 * rtrs_addr_to_sockaddr() - parse the addresses of a path
 * @str: "[<source>{,|@}]<destination>", "ip:<IPv4 or IPv6>" or "gid:<gid>" each
 * @len: bytes of @str
 * @port: port of the destination
 * @addr: receives the addresses; src becomes NULL without a source
 *
 * Context: Any in which dev_get_by_name_rcu() may be called. Does not sleep.
 * Return: 0, -EINVAL, or -ENODEV for an interface that does not exist.
 */
int rtrs_addr_to_sockaddr(const char *str, size_t len, u16 port, struct rtrs_addr *addr);

/**
 * sockaddr_to_str() - write an address as text
 * @addr: the address
 * @buf: buffer for the text, which is zero-terminated
 * @len: size of the buffer; text that does not fit is cut off
 *
 * Return: The number of bytes written, without the zero.
 */
int sockaddr_to_str(const struct sockaddr *addr, char *buf, size_t len);

/**
 * rtrs_addr_to_str() - write the addresses of a path as text
 * @addr: the addresses
 * @buf: buffer for "<source>@<destination>", or only the destination
 * @len: size of the buffer; text that does not fit is cut off
 *
 * Return: The number of bytes written, without the zero.
 */
int rtrs_addr_to_str(const struct rtrs_addr *addr, char *buf, size_t len);

#endif /* RTRS_H */
