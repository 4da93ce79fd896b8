#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: map, verify and unmap with the Rust modules under RNBD in one kernel: the first test to run
# topology: single
# timeout: 90
# seconds: 18

. "$(dirname "$0")/lib/common.sh"
require fio rdma

map()
{
	map_rnbd smoke /dev/nullb0 ip:10.9.0.1 >"$TMP/dev"
	blockdev --getsize64 "/dev/$(cat "$TMP/dev")"
}

io() { fio_verify "$(cat "$TMP/dev")" 4M; }
unmap() { unmap_rnbd "$(cat "$TMP/dev")"; }

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
resource_snapshot
must "a memory-backed null_blk" null_blk_up nullb0 256
defer null_blk_down nullb0
must "modules load" load_modules rust
defer unload_modules
must "a device maps" map
check "fio writes and verifies" io
check "the device unmaps" unmap
check "the modules unload" unload_modules
finish
