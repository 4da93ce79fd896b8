// SPDX-License-Identifier: GPL-2.0
/*
 * A disk on a server of RTRS: each request goes there with its first sector as
 * the user message, and its pages as the data.
 */
#include <linux/blk-mq.h>
#include <linux/module.h>

#include "rtrs.h"

#define PORT 1300
/* A request is as small as the smallest chunks of a server, and may begin anywhere in a page. */
#define SECTORS (SZ_8K >> SECTOR_SHIFT)
#define SEGMENTS 3

static char *path = "ip:10.9.0.1";
module_param(path, charp, 0444);
MODULE_PARM_DESC(path, "address of the server");

/* Behind each request of the block layer. */
struct io {
	struct rtrs_permit *permit;
	struct scatterlist sg[SEGMENTS];
};

static struct rtrs_clt_sess *sess;
static struct gendisk *disk;

/* Softirq, or process. */
static void done(void *priv, int errno)
{
	struct io *io = blk_mq_rq_to_pdu(priv);

	rtrs_clt_put_permit(sess, io->permit);
	blk_mq_end_request(priv, errno_to_blk_status(errno));
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct io *io = blk_mq_rq_to_pdu(bd->rq);
	__le64 sector = cpu_to_le64(blk_rq_pos(bd->rq));
	struct kvec msg = { .iov_base = &sector, .iov_len = sizeof(sector) };
	struct rtrs_clt_req_ops ops = { .priv = bd->rq, .conf_fn = done };
	int err;

	io->permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT);
	if (!io->permit)
		return BLK_STS_RESOURCE;
	blk_mq_start_request(bd->rq);
	sg_init_table(io->sg, SEGMENTS);
	err = rtrs_clt_request(rq_data_dir(bd->rq), &ops, sess, io->permit, &msg, 1,
			       blk_rq_bytes(bd->rq), io->sg, blk_rq_map_sg(bd->rq, io->sg));
	if (err)
		rtrs_clt_put_permit(sess, io->permit);
	/* -ENOMEM becomes BLK_STS_RESOURCE: the block layer tries again later. */
	return errno_to_blk_status(err);
}

static const struct blk_mq_ops mq_ops = { .queue_rq = queue_rq };
static const struct block_device_operations disk_ops = { .owner = THIS_MODULE };
static struct blk_mq_tag_set tags = {
	.ops = &mq_ops, .nr_hw_queues = 1, .queue_depth = 64,
	.numa_node = NUMA_NO_NODE, .cmd_size = sizeof(struct io),
};

static int __init cdisk_init(void)
{
	struct queue_limits lim = { .max_hw_sectors = SECTORS, .max_segments = SEGMENTS,
				    .virt_boundary_mask = SZ_4K - 1 };
	struct rtrs_addr addr = { .dst = &(struct sockaddr_storage){} };
	int err = rtrs_addr_to_sockaddr(path, strlen(path), PORT, &addr);

	if (err)
		return err;
	sess = rtrs_clt_open(&(struct rtrs_clt_ops){}, "cdisk", &addr, 1, PORT, 0, 30, -1, 0);
	if (IS_ERR(sess))
		return PTR_ERR(sess);
	err = blk_mq_alloc_tag_set(&tags);
	if (err)
		goto close;
	disk = blk_mq_alloc_disk(&tags, &lim, NULL);
	err = PTR_ERR_OR_ZERO(disk);
	if (err)
		goto free_tags;
	disk->fops = &disk_ops;
	strscpy(disk->disk_name, "cdisk");
	set_capacity(disk, 2048);
	err = add_disk(disk);
	if (!err)
		return 0;
	put_disk(disk);
free_tags:
	blk_mq_free_tag_set(&tags);
close:
	rtrs_clt_close(sess);
	return err;
}

static void __exit cdisk_exit(void)
{
	del_gendisk(disk);
	put_disk(disk);
	blk_mq_free_tag_set(&tags);
	rtrs_clt_close(sess);
}

module_init(cdisk_init);
module_exit(cdisk_exit);
MODULE_DESCRIPTION("Disk on a server of RTRS");
MODULE_LICENSE("GPL");
