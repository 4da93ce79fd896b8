// SPDX-License-Identifier: GPL-2.0
/*
 * All helpers, of the kernel crate and of this project, as one piece of LLVM
 * bitcode that is linked into each Rust crate: see Kbuild and
 * Documentation/build.rst.
 */
#include <linux/compiler_types.h>

/*
 * Clang, unlike GCC, omits the segment of a named address space in inline
 * assembly. The kernel has another notation for compilers without such spaces.
 */
#undef CONFIG_USE_X86_SEG_SUPPORT
#undef CONFIG_CC_HAS_NAMED_AS

#include <helpers/helpers.c>

/* The headers of the files below, so that the attribute applies to their definitions only. */
#include <linux/cpumask.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/nodemask.h>
#include <linux/percpu.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

#include "helpers.h"
#include "helpers_sys.h"

/* Like __rust_helper, for the reasons given there. */
#pragma clang attribute push([[clang::always_inline]], apply_to = function)
#include "helpers.c"
#include "helpers_sys.c"
#pragma clang attribute pop
