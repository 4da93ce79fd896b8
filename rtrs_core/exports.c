// SPDX-License-Identifier: GPL-2.0
/*
 * Exported symbols of rtrs-core: the C API for everybody, the Rust symbols
 * (generated list) for our own modules only.
 */
#include <linux/export.h>
#include <linux/module.h>

#include "rtrs.h"
#include "exports_generated.h"

EXPORT_SYMBOL(rtrs_addr_to_sockaddr);
EXPORT_SYMBOL(rtrs_addr_to_str);
EXPORT_SYMBOL(sockaddr_to_str);
