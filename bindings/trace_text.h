/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _RTRS_TRACE_TEXT_H
#define _RTRS_TRACE_TEXT_H

#include <linux/types.h>

/*
 * Text for a trace event, which no zero follows: Text in trace.rs. An event copies
 * it with __string_len().
 */
struct rtrs_text {
	const char *ptr;
	size_t len;
};

#endif /* _RTRS_TRACE_TEXT_H */
