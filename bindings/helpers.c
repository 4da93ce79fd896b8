// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions, macros and fields of the RDMA headers as functions.
 */
#include <linux/netdevice.h>
#include <linux/scatterlist.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

#include "helpers.h"

bool rtrs_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

void rtrs_helper_ib_device_name(struct ib_device *dev, char *name)
{
	strscpy(name, dev->name, IB_DEVICE_NAME_MAX);
}

int rtrs_helper_ib_device_node(struct ib_device *dev)
{
	return ibdev_to_node(dev);
}

u32 rtrs_helper_ib_device_comp_vectors(struct ib_device *dev)
{
	return dev->num_comp_vectors;
}

void rtrs_helper_ib_device_attrs(struct ib_device *dev,
				 struct rtrs_helper_device_attrs *attrs)
{
	attrs->device_cap_flags = dev->attrs.device_cap_flags;
	attrs->page_size_cap = dev->attrs.page_size_cap;
	attrs->max_qp_wr = dev->attrs.max_qp_wr;
	attrs->max_cqe = dev->attrs.max_cqe;
	attrs->max_send_sge = dev->attrs.max_send_sge;
	attrs->max_recv_sge = dev->attrs.max_recv_sge;
	attrs->max_fast_reg_page_list_len = dev->attrs.max_fast_reg_page_list_len;
	attrs->driver_id = dev->ops.driver_id;
}

void rtrs_helper_event_handler_init(struct ib_event_handler *handler, struct ib_device *dev,
				    void (*fn)(struct ib_event_handler *, struct ib_event *))
{
	INIT_IB_EVENT_HANDLER(handler, dev, fn);
}

u64 rtrs_helper_ib_dma_map_single(struct ib_device *dev, void *addr, size_t size,
				  enum dma_data_direction dir)
{
	return ib_dma_map_single(dev, addr, size, dir);
}

void rtrs_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr, size_t size,
				     enum dma_data_direction dir)
{
	ib_dma_unmap_single(dev, addr, size, dir);
}

int rtrs_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

int rtrs_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
			      enum dma_data_direction dir)
{
	return ib_dma_map_sg(dev, sg, nents, dir);
}

void rtrs_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
				 enum dma_data_direction dir)
{
	ib_dma_unmap_sg(dev, sg, nents, dir);
}

/* For mapped memory. The result does not change until it is unmapped. */
bool rtrs_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return !ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr);
}

void rtrs_helper_ib_dma_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size,
				     enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void rtrs_helper_ib_dma_sync_for_device(struct ib_device *dev, u64 addr, size_t size,
					enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

/* The entry behind one that is not the last: as sg_next(), without the question for the end. */
static inline struct scatterlist *next_of(struct scatterlist *sg)
{
	sg++;
	return unlikely(sg_is_chain(sg)) ? sg_chain_ptr(sg) : sg;
}

/* Fills @n elements, at least one, from as many entries; returns their length. */
u64 rtrs_helper_ib_sg_dma_list(struct scatterlist *sg, u32 n, struct ib_sge *sge, u32 lkey)
{
	u64 total = 0;

	for (;; sg = next_of(sg), sge++) {
		sge->addr = sg_dma_address(sg);
		sge->length = sg_dma_len(sg);
		sge->lkey = lkey;
		/* For some devices (mlx4) that is one of 2^31 bytes. */
		if (unlikely(!sge->length))
			return 0;
		total += sge->length;
		if (!--n)
			return total;
	}
}

/* @nents is at least one. */
size_t rtrs_helper_sg_total(struct scatterlist *sg, u32 nents)
{
	size_t total = sg->length;

	while (--nents) {
		sg = next_of(sg);
		total += sg->length;
	}
	return total;
}

void rtrs_helper_sg_init_table(struct scatterlist *sg, unsigned int nents)
{
	sg_init_table(sg, nents);
}

void rtrs_helper_sg_set_buf(struct scatterlist *sg, const void *addr, unsigned int len)
{
	sg_set_buf(sg, addr, len);
}

/* Flags of a port, including RDMA_CORE_CAP_PROT_*; 0 for a port that does not exist. */
u32 rtrs_helper_ib_port_flags(struct ib_device *dev, u32 port)
{
	if (!rdma_is_port_valid(dev, port))
		return 0;
	return dev->port_data[port].immutable.core_cap_flags;
}

bool rtrs_helper_ib_port_is_active(struct ib_device *dev, u32 port)
{
	struct net_device *ndev = NULL, *bond;
	enum ib_port_state state;

	/* The interfaces on an InfiniBand port may be down when it is not. */
	if (rdma_is_port_valid(dev, port) &&
	    rdma_port_get_link_layer(dev, port) == IB_LINK_LAYER_ETHERNET)
		ndev = ib_device_get_netdev(dev, port);
	if (ndev) {
		/*
		 * Not the cached state, which a work item updates later. The
		 * port of a bond is one of its legs, of which others may do.
		 */
		rcu_read_lock();
		bond = netdev_master_upper_dev_get_rcu(ndev);
		if (bond && netif_is_lag_master(bond))
			state = ib_get_curr_port_state(bond);
		else
			state = ib_get_curr_port_state(ndev);
		rcu_read_unlock();
		dev_put(ndev);
	} else if (ib_get_cached_port_state(dev, port, &state)) {
		return true;
	}
	return state >= IB_PORT_ACTIVE;
}

u32 rtrs_helper_ib_pd_lkey(struct ib_pd *pd)
{
	return pd->local_dma_lkey;
}

u32 rtrs_helper_ib_mr_rkey(struct ib_mr *mr)
{
	return mr->rkey;
}

u64 rtrs_helper_ib_mr_length(struct ib_mr *mr)
{
	return mr->length;
}

u64 rtrs_helper_ib_mr_iova(struct ib_mr *mr)
{
	return mr->iova;
}

void rtrs_helper_ib_mr_set_iova(struct ib_mr *mr, u64 iova)
{
	mr->iova = iova;
}

void rtrs_helper_ib_mr_set_key(struct ib_mr *mr, u8 key)
{
	ib_update_fast_reg_key(mr, key);
}

int rtrs_helper_ib_poll_cq(struct ib_cq *cq, int n, struct ib_wc *wc)
{
	return ib_poll_cq(cq, n, wc);
}

int rtrs_helper_ib_req_notify_cq(struct ib_cq *cq, u32 flags)
{
	return ib_req_notify_cq(cq, flags);
}

/*
 * For a queue of __ib_create_cq(). The drain of its queue pair relies on the
 * zero in poll_ctx, IB_POLL_SOFTIRQ: it waits for events, instead of polling.
 */
void rtrs_helper_ib_destroy_cq(struct ib_cq *cq)
{
	ib_destroy_cq(cq);
}

/*
 * No handler of completions begins any more. One that runs in softirq may not
 * have returned yet: see rtrs_helper_ib_cq_restart().
 */
void rtrs_helper_ib_cq_stop(struct ib_cq *cq)
{
	if (cq->poll_ctx == IB_POLL_SOFTIRQ)
		irq_poll_disable(&cq->iop);
}

/*
 * Undoes rtrs_helper_ib_cq_stop(), as ib_free_cq() stops the queue itself. That
 * waits for the handler to call irq_poll_complete(), after which the handler
 * goes on to use the queue (ib_poll_handler() of 7.2 and 7.3): so the caller
 * must have waited for a grace period of RCU before.
 */
void rtrs_helper_ib_cq_restart(struct ib_cq *cq)
{
	if (cq->poll_ctx == IB_POLL_SOFTIRQ)
		irq_poll_enable(&cq->iop);
}

u32 rtrs_helper_ib_qp_num(struct ib_qp *qp)
{
	return qp->qp_num;
}

/*
 * rdma_create_qp() records itself as the owner of the QP in the resource
 * tracker; the operator wants to see the module that uses it.
 */
void rtrs_helper_ib_qp_set_owner(struct ib_qp *qp, const char *owner)
{
	WRITE_ONCE(qp->res.kern_name, owner);
}

int rtrs_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			     const struct ib_send_wr **bad_wr)
{
	return ib_post_send(qp, wr, bad_wr);
}

int rtrs_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad_wr)
{
	return ib_post_recv(qp, wr, bad_wr);
}

/* Returns 0 if there is no such interface. */
u32 rtrs_helper_ifindex(const char *name)
{
	struct net_device *ndev;
	u32 index = 0;

	rcu_read_lock();
	ndev = dev_get_by_name_rcu(&init_net, name);
	if (ndev)
		index = ndev->ifindex;
	rcu_read_unlock();
	return index;
}

struct net *rtrs_helper_init_net(void)
{
	return &init_net;
}

struct ib_device *rtrs_helper_cm_device(struct rdma_cm_id *id)
{
	return id->device;
}

struct ib_qp *rtrs_helper_cm_qp(struct rdma_cm_id *id)
{
	return id->qp;
}

bool rtrs_helper_cm_interface(struct rdma_cm_id *id, char *name)
{
	const struct rdma_dev_addr *addr = &id->route.addr.dev_addr;
	struct net_device *dev;

	guard(rcu)();
	dev = dev_get_by_index_rcu(addr->net, addr->bound_dev_if);
	if (!dev)
		return false;
	strscpy(name, dev->name, IFNAMSIZ);
	return true;
}

u32 rtrs_helper_cm_port(struct rdma_cm_id *id)
{
	return id->port_num;
}

/* Whether the address that the id was bound to still belongs to its port. */
bool rtrs_helper_cm_has_source(struct rdma_cm_id *id)
{
	const struct ib_gid_attr *attr = id->route.addr.dev_addr.sgid_attr;
	union ib_gid gid;

	if (IS_ERR_OR_NULL(attr))
		return true;
	/* An entry that is in use stays, but is not valid any more. */
	if (rdma_query_gid(attr->device, attr->port_num, attr->index, &gid))
		return false;
	return !memcmp(&gid, &attr->gid, sizeof(gid));
}

void *rtrs_helper_cm_context(struct rdma_cm_id *id)
{
	return id->context;
}

void rtrs_helper_cm_set_context(struct rdma_cm_id *id, void *context,
				rdma_cm_event_handler handler)
{
	id->context = context;
	id->event_handler = handler;
}

const struct sockaddr_storage *rtrs_helper_cm_src(struct rdma_cm_id *id)
{
	return &id->route.addr.src_addr;
}

const struct sockaddr_storage *rtrs_helper_cm_dst(struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}

void rtrs_helper_cm_event_param(struct rdma_cm_event *ev, const void **data, u8 *len)
{
	*data = ev->param.conn.private_data;
	*len = ev->param.conn.private_data_len;
}
