// SPDX-License-Identifier: GPL-2.0
/*
 * Exported symbols of rtrs-client: the C API, and the Rust symbols (generated
 * list) for GPL modules that were built against the same metadata.
 */
#include <linux/export.h>
#include <linux/module.h>

#include "rtrs.h"
#include "exports_generated.h"

MODULE_VERSION(RTRS_VERSION);

EXPORT_SYMBOL(rtrs_clt_open);
EXPORT_SYMBOL(rtrs_clt_close);
EXPORT_SYMBOL(rtrs_clt_get_permit);
EXPORT_SYMBOL(rtrs_clt_put_permit);
EXPORT_SYMBOL(rtrs_clt_request);
EXPORT_SYMBOL(rtrs_clt_rdma_cq_direct);
EXPORT_SYMBOL(rtrs_clt_query);
