#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: NM=nm gen-exports.sh OBJECT...
#
# Prints export lines for the Rust symbols and C helpers that the objects
# define for others, as the kernel's rust/Makefile does for its own crates.

set -eu

"$NM" -p --defined-only "$@" |
	awk '$2 ~ /^[TRDB]$/ && $3 ~ /^(_R|rtrs_helper_)/ && $3 !~ /__module_init/ { print $3 }' |
	LC_ALL=C sort -u |
	sed "s/.*/extern int &; EXPORT_SYMBOL_GPL(&);/"
