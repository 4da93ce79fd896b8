/* SPDX-License-Identifier: GPL-2.0 */
/* What src/raw.rs is generated from. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
