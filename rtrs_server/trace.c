// SPDX-License-Identifier: GPL-2.0
/*
 * Trace events of rtrs-server, and the functions by which Rust fires them.
 */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
