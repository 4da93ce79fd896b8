// SPDX-License-Identifier: GPL-2.0
/*
 * All helpers, the kernel crate's and ours, as one piece of LLVM bitcode that is
 * linked into each crate of Rust: see Kbuild and Documentation/build.rst.
 */
#include <linux/compiler_types.h>

/*
 * Clang, unlike GCC, leaves the segment of a named address space out of inline
 * assembly. The kernel has another way to write it for compilers without them.
 */
#undef CONFIG_USE_X86_SEG_SUPPORT
#undef CONFIG_CC_HAS_NAMED_AS

#include <helpers/helpers.c>

/* What the files below include, so that the attribute is only for what they define. */
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

/* As __rust_helper has it, for the reasons that are given there. */
#pragma clang attribute push([[clang::always_inline]], apply_to = function)
#include "helpers.c"
#include "helpers_sys.c"
#pragma clang attribute pop
