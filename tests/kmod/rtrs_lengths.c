// SPDX-License-Identifier: GPL-2.0
/*
 * A user of the C API that says wrong lengths of its data.
 *
 * The data of a request are what its list describes. Both ends are in this
 * module: the server keeps what a write brings, and a read returns it. Each
 * list is sent with the right length and with wrong ones; all its bytes must
 * arrive, and no byte beside them. A list that is too long is refused, whatever
 * is said. The module loads if that is so.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "rtrs.h"

#define PORT 1301
#define ENTRIES 16
#define GUARD 0xa5

static char *addr = "ip:10.9.0.1";
module_param(addr, charp, 0444);
MODULE_PARM_DESC(addr, "address of this host");

static bool gaps = true;
module_param(gaps, bool, 0444);
MODULE_PARM_DESC(gaps, "also lists with gaps, which can be copied and not registered");

/* The user message. */
struct message {
	u8 write;
};

/* A list: @count entries of @len bytes, each at the start of a page. */
struct shape {
	unsigned int count;
	unsigned int len;
};

/* Few data in one piece and in several, and more data. */
static const struct shape shapes[] = {
	{ 1, 512 }, { 1, PAGE_SIZE }, { 2, 512 }, { 3, 1024 }, { 2, PAGE_SIZE },
	{ 5, PAGE_SIZE }, { ENTRIES, PAGE_SIZE },
};

/* What the server has, and how much of it the last request brought or took. */
static u8 *store;
static size_t stored;

static u8 *pages[ENTRIES];

/* Process context, one request at a time. */
static int request(void *priv, struct rtrs_srv_op *id, void *data, size_t datalen,
		   const void *usr, size_t usrlen)
{
	const struct message *msg = usr;

	if (usrlen != sizeof(*msg) || datalen > ENTRIES * PAGE_SIZE)
		return -EINVAL;
	if (msg->write)
		memcpy(store, data, datalen);
	else
		memcpy(data, store, datalen);
	stored = datalen;
	rtrs_srv_resp_rdma(id, 0);
	return 0;
}

static int link_ev(struct rtrs_srv_sess *sess, enum rtrs_srv_link_ev ev, void *priv)
{
	return 0;
}

struct wait {
	struct completion over;
	int errno;
};

static void confirm(void *priv, int errno)
{
	struct wait *wait = priv;

	wait->errno = errno;
	complete(&wait->over);
}

/* Sends one request, for data that are said to have @said bytes. */
static int send(struct rtrs_clt_sess *sess, bool write, const struct shape *shape, size_t said)
{
	struct message msg = { .write = write };
	struct kvec vec = { .iov_base = &msg, .iov_len = sizeof(msg) };
	struct scatterlist sg[ENTRIES];
	struct wait wait;
	struct rtrs_clt_req_ops ops = { .priv = &wait, .conf_fn = confirm };
	struct rtrs_permit *permit;
	unsigned int i;
	int err;

	/* The entries behind the ones that are passed are not to be used. */
	sg_init_table(sg, ENTRIES);
	for (i = 0; i < ENTRIES; i++)
		sg_set_buf(&sg[i], pages[i], i < shape->count ? shape->len : PAGE_SIZE);
	init_completion(&wait.over);
	permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	if (!permit)
		return -EBUSY;
	err = rtrs_clt_request(write ? WRITE : READ, &ops, sess, permit, &vec, 1, said, sg,
			       shape->count);
	if (!err) {
		wait_for_completion(&wait.over);
		err = wait.errno;
	}
	rtrs_clt_put_permit(sess, permit);
	return err;
}

/* Whether page @i has @len bytes of the store from @at, and guards behind them. */
static bool is_right(unsigned int i, size_t at, size_t len)
{
	return !memcmp(pages[i], store + at, len) &&
	       !memchr_inv(pages[i] + len, GUARD, PAGE_SIZE - len);
}

/* Writes and reads too much, with the length @said; returns what is wrong. */
static const char *try_too_long(struct rtrs_clt_sess *sess, const struct shape *shape, size_t said)
{
	if (send(sess, true, shape, said) != -EMSGSIZE)
		return "the write was not refused";
	if (send(sess, false, shape, said) != -EMSGSIZE)
		return "the read was not refused";
	return NULL;
}

/* Writes and reads with the length @said; returns what is wrong. */
static const char *try(struct rtrs_clt_sess *sess, const struct shape *shape, size_t said)
{
	size_t total = shape->count * shape->len;
	unsigned int i;

	for (i = 0; i < ENTRIES; i++) {
		memset(pages[i], GUARD, PAGE_SIZE);
		get_random_bytes(pages[i], i < shape->count ? shape->len : 0);
	}
	memset(store, GUARD, ENTRIES * PAGE_SIZE);
	stored = 0;
	if (send(sess, true, shape, said))
		return "the write failed";
	if (stored != total)
		return "the write has another length";
	for (i = 0; i < shape->count; i++)
		if (!is_right(i, i * shape->len, shape->len))
			return "the write brought other data";

	get_random_bytes(store, ENTRIES * PAGE_SIZE);
	for (i = 0; i < ENTRIES; i++)
		memset(pages[i], GUARD, PAGE_SIZE);
	stored = 0;
	if (send(sess, false, shape, said))
		return "the read failed";
	if (stored != total)
		return "the read has another length";
	for (i = 0; i < ENTRIES; i++)
		if (!is_right(i, i * shape->len, i < shape->count ? shape->len : 0))
			return "the read brought other data";
	return NULL;
}

static int try_all(struct rtrs_clt_sess *sess)
{
	unsigned int i, j, n = 0, refused = 0;
	struct rtrs_attrs attrs;
	int err;

	err = rtrs_clt_query(sess, &attrs);
	if (err)
		return err;
	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		size_t total = shapes[i].count * shapes[i].len;
		const size_t said[] = {
			total, 0, 1, total / 2, total - 1, total + 1, 3 * total + 7,
			4096, 4097, 1 << 30, SIZE_MAX,
		};

		if (!gaps && shapes[i].count > 1 && shapes[i].len != PAGE_SIZE)
			continue;
		for (j = 0; j < ARRAY_SIZE(said); j++, n++) {
			const char *wrong;

			if (total > attrs.max_io_size) {
				wrong = try_too_long(sess, &shapes[i], said[j]);
				refused++;
			} else {
				wrong = try(sess, &shapes[i], said[j]);
			}
			if (wrong) {
				pr_err("%u x %u bytes, said to be %zu: %s\n", shapes[i].count,
				       shapes[i].len, said[j], wrong);
				return -EIO;
			}
		}
	}
	pr_info("%u lengths: all data arrived, and nothing else; %u refused\n", n, refused);
	return 0;
}

static int with_client(void)
{
	struct sockaddr_storage dst;
	struct rtrs_addr path = { .dst = &dst };
	struct rtrs_clt_ops ops = {};
	struct rtrs_clt_sess *sess;
	int err;

	err = rtrs_addr_to_sockaddr(addr, strlen(addr), PORT, &path);
	if (err)
		return err;
	sess = rtrs_clt_open(&ops, "lengths", &path, 1, PORT, 0, 30, -1, 0);
	if (IS_ERR(sess))
		return PTR_ERR(sess);
	err = try_all(sess);
	rtrs_clt_close(sess);
	return err;
}

static int with_memory(void)
{
	struct rtrs_srv_ops ops = { .rdma_ev = request, .link_ev = link_ev };
	struct rtrs_srv_ctx *srv;
	int err;

	srv = rtrs_srv_open(&ops, PORT);
	if (IS_ERR(srv))
		return PTR_ERR(srv);
	err = with_client();
	rtrs_srv_close(srv);
	return err;
}

static int __init lengths_init(void)
{
	unsigned int i;
	int err = -ENOMEM;

	store = kmalloc(ENTRIES * PAGE_SIZE, GFP_KERNEL);
	for (i = 0; store && i < ENTRIES; i++) {
		pages[i] = kmalloc(PAGE_SIZE, GFP_KERNEL);
		if (!pages[i])
			break;
	}
	if (i == ENTRIES)
		err = with_memory();
	while (i--)
		kfree(pages[i]);
	kfree(store);
	return err;
}

static void __exit lengths_exit(void)
{
}

module_init(lengths_init);
module_exit(lengths_exit);
MODULE_DESCRIPTION("test: lengths that are not those of the data");
MODULE_LICENSE("GPL");
