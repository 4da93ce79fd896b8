// SPDX-License-Identifier: GPL-2.0
/*
 * Exported symbols of rtrs-server: the C API, and the Rust symbols (generated
 * list) for GPL modules that were built against the same metadata.
 */
#include <linux/export.h>
#include <linux/module.h>

#include "exports_generated.h"
#include "rtrs.h"

MODULE_VERSION(RTRS_VERSION);

EXPORT_SYMBOL(rtrs_srv_open);
EXPORT_SYMBOL(rtrs_srv_close);
EXPORT_SYMBOL(rtrs_srv_resp_rdma);
EXPORT_SYMBOL(rtrs_srv_set_sess_priv);
EXPORT_SYMBOL(rtrs_srv_get_path_name);
EXPORT_SYMBOL(rtrs_srv_get_queue_depth);
