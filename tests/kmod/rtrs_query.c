// SPDX-License-Identifier: GPL-2.0
/*
 * A user of the C API that asks for a session's limits whenever its parameter
 * is read, as RNBD does while it sets up its devices again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/string.h>

#include "rtrs.h"

static char *addr = "ip:10.9.0.1";
module_param(addr, charp, 0444);
MODULE_PARM_DESC(addr, "address of the server");

/* The session while the module is loaded, under the lock of the parameters. */
static struct rtrs_clt_sess *sess;

static int get_limits(char *page, const struct kernel_param *kp)
{
	struct rtrs_attrs attrs;
	int err;

	if (!sess)
		return -ENODEV;
	err = rtrs_clt_query(sess, &attrs);
	if (err)
		return err;
	return sysfs_emit(page, "%u %u %u\n", attrs.queue_depth, attrs.max_io_size,
			  attrs.max_segments);
}

/* On the command line of the module. */
static int set_limits(const char *val, const struct kernel_param *kp)
{
	return -EPERM;
}

static const struct kernel_param_ops limits_ops = { .set = set_limits, .get = get_limits };
module_param_cb(limits, &limits_ops, NULL, 0444);
MODULE_PARM_DESC(limits, "depth of the queue, largest request in bytes, segments of a request");

static int __init query_init(void)
{
	struct sockaddr_storage dst;
	struct rtrs_addr path = { .dst = &dst };
	struct rtrs_clt_ops ops = {};
	struct rtrs_clt_sess *opened;
	int err;

	err = rtrs_addr_to_sockaddr(addr, strlen(addr), 1234, &path);
	if (err)
		return err;
	opened = rtrs_clt_open(&ops, "query", &path, 1, 1234, 0, 1, -1, 0);
	if (IS_ERR(opened))
		return PTR_ERR(opened);
	kernel_param_lock(THIS_MODULE);
	sess = opened;
	kernel_param_unlock(THIS_MODULE);
	return 0;
}

static void __exit query_exit(void)
{
	struct rtrs_clt_sess *closing = sess;

	kernel_param_lock(THIS_MODULE);
	sess = NULL;
	kernel_param_unlock(THIS_MODULE);
	rtrs_clt_close(closing);
}

module_init(query_init);
module_exit(query_exit);
MODULE_DESCRIPTION("test: limits of a session, whenever they are asked for");
MODULE_LICENSE("GPL");
