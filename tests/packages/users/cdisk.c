// SPDX-License-Identifier: GPL-2.0
/*
 * A disk on a server of RTRS: each request goes there with its first sector as
 * the user message, and its pages as the data.
 */
#include <linux/blk-mq.h>
#include <linux/module.h>

#include "rtrs.h"

#define SEGMENTS 32

static char *path = "ip:10.9.0.1";
module_param(path, charp, 0444);
MODULE_PARM_DESC(path, "address of the server");

struct io {
	__le64 sector;
	struct rtrs_permit *permit;
	struct scatterlist sg[SEGMENTS];
};

static struct rtrs_clt_sess *sess;
static struct blk_mq_tag_set tags;
static struct gendisk *disk;
static int major;

/* Softirq, or process. */
static void done(void *priv, int errno)
{
	struct request *rq = priv;
	struct io *io = blk_mq_rq_to_pdu(rq);

	rtrs_clt_put_permit(sess, io->permit);
	blk_mq_end_request(rq, errno_to_blk_status(errno));
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct request *rq = bd->rq;
	struct io *io = blk_mq_rq_to_pdu(rq);
	struct rtrs_clt_req_ops ops = { .priv = rq, .conf_fn = done };
	struct kvec msg = { .iov_base = &io->sector, .iov_len = sizeof(io->sector) };
	int nr;

	io->permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT);
	if (!io->permit)
		return BLK_STS_RESOURCE;
	blk_mq_start_request(rq);
	io->sector = cpu_to_le64(blk_rq_pos(rq));
	sg_init_table(io->sg, SEGMENTS);
	nr = blk_rq_map_sg(rq, io->sg);
	if (rtrs_clt_request(rq_data_dir(rq), &ops, sess, io->permit, &msg, 1, blk_rq_bytes(rq),
			     io->sg, nr)) {
		rtrs_clt_put_permit(sess, io->permit);
		return BLK_STS_IOERR;
	}
	return BLK_STS_OK;
}

static const struct blk_mq_ops mq_ops = { .queue_rq = queue_rq };
static const struct block_device_operations disk_ops = { .owner = THIS_MODULE };

static int open_session(void)
{
	struct sockaddr_storage dst;
	struct rtrs_addr addr = { .dst = &dst };
	struct rtrs_clt_ops ops = {};
	int err;

	err = rtrs_addr_to_sockaddr(path, strlen(path), 1300, &addr);
	if (err)
		return err;
	sess = rtrs_clt_open(&ops, "cdisk", &addr, 1, 1300, 0, 30, -1, 0);
	return PTR_ERR_OR_ZERO(sess);
}

static int add(void)
{
	struct queue_limits lim = { .max_segments = SEGMENTS, .max_hw_sectors = SEGMENTS * 8 };

	tags = (struct blk_mq_tag_set) {
		.ops = &mq_ops, .nr_hw_queues = 1, .queue_depth = 64,
		.numa_node = NUMA_NO_NODE, .cmd_size = sizeof(struct io),
	};
	if (blk_mq_alloc_tag_set(&tags))
		return -ENOMEM;
	disk = blk_mq_alloc_disk(&tags, &lim, NULL);
	if (IS_ERR(disk)) {
		blk_mq_free_tag_set(&tags);
		return PTR_ERR(disk);
	}
	disk->major = major;
	disk->minors = 1;
	disk->fops = &disk_ops;
	strscpy(disk->disk_name, "cdisk", sizeof(disk->disk_name));
	set_capacity(disk, 2048);
	if (add_disk(disk)) {
		put_disk(disk);
		blk_mq_free_tag_set(&tags);
		return -EIO;
	}
	return 0;
}

static int __init cdisk_init(void)
{
	int err;

	major = register_blkdev(0, "cdisk");
	if (major < 0)
		return major;
	err = open_session();
	if (err)
		goto unregister;
	err = add();
	if (!err)
		return 0;
	rtrs_clt_close(sess);
unregister:
	unregister_blkdev(major, "cdisk");
	return err;
}

static void __exit cdisk_exit(void)
{
	del_gendisk(disk);
	put_disk(disk);
	blk_mq_free_tag_set(&tags);
	rtrs_clt_close(sess);
	unregister_blkdev(major, "cdisk");
}

module_init(cdisk_init);
module_exit(cdisk_exit);
MODULE_DESCRIPTION("Disk on a server of RTRS");
MODULE_LICENSE("GPL");
