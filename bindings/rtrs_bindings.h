/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The input of bindgen. The generated Rust is private to the rtrs_bindings
 * crate.
 */
#include <linux/scatterlist.h>
#include <rdma/ib.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "helpers.h"
#include "helpers_sys.h"
