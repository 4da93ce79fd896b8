/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C entry points for items that the RDMA headers offer only as inline
 * functions, macros or structure fields. They contain no logic, which is in
 * Rust.
 *
 * Differences in the API between kernel versions are handled here.
 */
#ifndef RTRS_HELPERS_H
#define RTRS_HELPERS_H

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* Device */
bool rtrs_helper_ib_device_try_get(struct ib_device *dev);
void rtrs_helper_ib_device_name(struct ib_device *dev, char *name);
int rtrs_helper_ib_device_node(struct ib_device *dev);
u32 rtrs_helper_ib_device_comp_vectors(struct ib_device *dev);
u32 rtrs_helper_ib_port_flags(struct ib_device *dev, u32 port);
bool rtrs_helper_ib_port_is_active(struct ib_device *dev, u32 port);

void rtrs_helper_event_handler_init(struct ib_event_handler *handler, struct ib_device *dev,
				    void (*fn)(struct ib_event_handler *, struct ib_event *));

struct rtrs_helper_device_attrs {
	u64 device_cap_flags;
	u64 page_size_cap;
	u32 max_qp_wr;
	u32 max_cqe;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_fast_reg_page_list_len;
	u32 driver_id;
};

void rtrs_helper_ib_device_attrs(struct ib_device *dev,
				 struct rtrs_helper_device_attrs *attrs);

/* DMA mapping */
u64 rtrs_helper_ib_dma_map_single(struct ib_device *dev, void *addr, size_t size,
				  enum dma_data_direction dir);
void rtrs_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr, size_t size,
				     enum dma_data_direction dir);
int rtrs_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
int rtrs_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
			      enum dma_data_direction dir);
void rtrs_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int nents,
				 enum dma_data_direction dir);
bool rtrs_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr);
void rtrs_helper_ib_dma_sync_for_cpu(struct ib_device *dev, u64 addr, size_t size,
				     enum dma_data_direction dir);
void rtrs_helper_ib_dma_sync_for_device(struct ib_device *dev, u64 addr, size_t size,
					enum dma_data_direction dir);
u64 rtrs_helper_ib_sg_dma_list(struct scatterlist *sg, u32 n, struct ib_sge *sge, u32 lkey);
size_t rtrs_helper_sg_total(struct scatterlist *sg, u32 nents);
void rtrs_helper_sg_init_table(struct scatterlist *sg, unsigned int nents);
void rtrs_helper_sg_set_buf(struct scatterlist *sg, const void *addr, unsigned int len);

/* Protection domain, memory region, completion queue, queue pair */
u32 rtrs_helper_ib_pd_lkey(struct ib_pd *pd);
u32 rtrs_helper_ib_mr_rkey(struct ib_mr *mr);
u64 rtrs_helper_ib_mr_length(struct ib_mr *mr);
u64 rtrs_helper_ib_mr_iova(struct ib_mr *mr);
void rtrs_helper_ib_mr_set_iova(struct ib_mr *mr, u64 iova);
void rtrs_helper_ib_mr_set_key(struct ib_mr *mr, u8 key);
int rtrs_helper_ib_poll_cq(struct ib_cq *cq, int n, struct ib_wc *wc);
int rtrs_helper_ib_req_notify_cq(struct ib_cq *cq, u32 flags);
void rtrs_helper_ib_destroy_cq(struct ib_cq *cq);
void rtrs_helper_ib_cq_stop(struct ib_cq *cq);
void rtrs_helper_ib_cq_restart(struct ib_cq *cq);
u32 rtrs_helper_ib_qp_num(struct ib_qp *qp);
void rtrs_helper_ib_qp_set_owner(struct ib_qp *qp, const char *owner);
int rtrs_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			     const struct ib_send_wr **bad_wr);
int rtrs_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			     const struct ib_recv_wr **bad_wr);

/* Connection manager */
u32 rtrs_helper_ifindex(const char *name);
struct net *rtrs_helper_init_net(void);
struct ib_device *rtrs_helper_cm_device(struct rdma_cm_id *id);
struct ib_qp *rtrs_helper_cm_qp(struct rdma_cm_id *id);
u32 rtrs_helper_cm_port(struct rdma_cm_id *id);
bool rtrs_helper_cm_has_source(struct rdma_cm_id *id);
bool rtrs_helper_cm_interface(struct rdma_cm_id *id, char *name);
void *rtrs_helper_cm_context(struct rdma_cm_id *id);
void rtrs_helper_cm_set_context(struct rdma_cm_id *id, void *context,
				rdma_cm_event_handler handler);
const struct sockaddr_storage *rtrs_helper_cm_src(struct rdma_cm_id *id);
const struct sockaddr_storage *rtrs_helper_cm_dst(struct rdma_cm_id *id);
void rtrs_helper_cm_event_param(struct rdma_cm_event *ev, const void **data, u8 *len);

#endif /* RTRS_HELPERS_H */
