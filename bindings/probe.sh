#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: probe.sh barrier.rs module.rs bindings_generated.rs
#
# Prints the cfg options of rustc that tell compat.rs which interfaces the kernel
# crate of this tree has. This checks the files of the tree, not its version, as
# a distribution may have backported a change.

set -eu

barrier=$1 module=$2 generated=$3

# has FILE PATTERN: whether FILE matches an extended regular expression. A missing
# file is an error, as the answer is not known then.
has()
{
	[ -r "$1" ] || {
		echo "probe.sh: $1 is missing: is this a prepared kernel tree with Rust?" >&2
		exit 1
	}
	grep -Eq "$2" "$1"
}

# smp_mb(Full) in place of smp_mb().
if has "$barrier" 'pub fn smp_mb<'; then echo '--cfg=rtrs_barrier_ordering'; fi
# <LocalModule as ModuleMetadata>::THIS_MODULE in place of crate::THIS_MODULE.
if has "$module" '^ *const THIS_MODULE:'; then echo '--cfg=rtrs_this_module_const'; fi
# dma_data_direction(pub u32) in place of an integer.
if has "$generated" '^pub struct dma_data_direction\('; then echo '--cfg=rtrs_dma_direction_newtype'; fi
