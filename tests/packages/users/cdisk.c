// SPDX-License-Identifier: GPL-2.0
/* A disk on a server of RTRS: requests go there as their first sector, with their pages. */
#include <linux/blk-mq.h>
#include <linux/module.h>
#include "rtrs.h"

static char *path = "ip:10.9.0.1";
module_param(path, charp, 0444);
static struct rtrs_clt_sess *sess;
static struct gendisk *disk;

/* Behind each request: 8 KiB, the size of the smallest chunks, are in up to three pages. */
struct io {
	struct rtrs_permit *permit;
	struct scatterlist sg[3];
};

static void done(void *rq, int errno)
{
	rtrs_clt_put_permit(sess, ((struct io *)blk_mq_rq_to_pdu(rq))->permit);
	blk_mq_end_request(rq, errno_to_blk_status(errno));
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct io *io = blk_mq_rq_to_pdu(bd->rq);
	__le64 sector = cpu_to_le64(blk_rq_pos(bd->rq));
	struct kvec msg = { &sector, sizeof(sector) };
	struct rtrs_clt_req_ops ops = { .priv = bd->rq, .conf_fn = done };
	int err;

	io->permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT);
	if (!io->permit)
		return BLK_STS_RESOURCE;
	blk_mq_start_request(bd->rq);
	sg_init_table(io->sg, ARRAY_SIZE(io->sg));
	err = rtrs_clt_request(rq_data_dir(bd->rq), &ops, sess, io->permit, &msg, 1,
			       blk_rq_bytes(bd->rq), io->sg, blk_rq_map_sg(bd->rq, io->sg));
	if (err)
		rtrs_clt_put_permit(sess, io->permit);
	return errno_to_blk_status(err); /* After -ENOMEM the block layer tries again. */
}

static const struct blk_mq_ops mq_ops = { .queue_rq = queue_rq };
static const struct block_device_operations disk_ops = { .owner = THIS_MODULE };
static struct blk_mq_tag_set tags = { .ops = &mq_ops, .nr_hw_queues = 1, .queue_depth = 64,
				      .numa_node = NUMA_NO_NODE, .cmd_size = sizeof(struct io) };

static int __init cdisk_init(void)
{
	struct queue_limits lim = { .max_hw_sectors = SZ_8K >> SECTOR_SHIFT,
				    .max_segments = 3, .virt_boundary_mask = SZ_4K - 1 };
	struct rtrs_addr addr = { .dst = &(struct sockaddr_storage){} };
	int err = rtrs_addr_to_sockaddr(path, strlen(path), 1300, &addr) ?:
		  blk_mq_alloc_tag_set(&tags);

	if (err)
		return err;
	sess = rtrs_clt_open(&(struct rtrs_clt_ops){}, "cdisk", &addr, 1, 1300, 0, 30, -1, 0);
	err = PTR_ERR_OR_ZERO(sess);
	if (err)
		goto free_tags;
	disk = blk_mq_alloc_disk(&tags, &lim, NULL);
	err = PTR_ERR_OR_ZERO(disk);
	if (err)
		goto close;
	disk->fops = &disk_ops;
	strscpy(disk->disk_name, "cdisk");
	set_capacity(disk, 2048);
	err = add_disk(disk);
	if (!err)
		return 0;
	put_disk(disk);
close:
	rtrs_clt_close(sess);
free_tags:
	blk_mq_free_tag_set(&tags);
	return err;
}

static void __exit cdisk_exit(void)
{
	del_gendisk(disk);
	put_disk(disk);
	rtrs_clt_close(sess);
	blk_mq_free_tag_set(&tags);
}
module_init(cdisk_init);
module_exit(cdisk_exit);
MODULE_DESCRIPTION("Disk on a server of RTRS");
MODULE_LICENSE("GPL");
