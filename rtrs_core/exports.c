// SPDX-License-Identifier: GPL-2.0
/*
 * Exported symbols of rtrs-core: the C API, and the Rust symbols (generated
 * list) for GPL modules that were built against the same metadata.
 */
#include <linux/export.h>
#include <linux/module.h>

#include "rtrs.h"
#include "exports_generated.h"

MODULE_VERSION(RTRS_VERSION);

EXPORT_SYMBOL(rtrs_addr_to_sockaddr);
EXPORT_SYMBOL(rtrs_addr_to_str);
EXPORT_SYMBOL(sockaddr_to_str);
