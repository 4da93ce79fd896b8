#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: all modules and RNBD load and unload where there is no RDMA device, and no soft RoCE either
# topology: single
# timeout: 60
# seconds: 10
# default: no

. "$(dirname "$0")/lib/common.sh"

# Of what other tests have, there is no rdma_rxe.
# shellcheck disable=SC2034 # used by lib/rdma.sh
MODPROBE_RDMA=(ib_core rdma_cm)

no_server() { expect_error "" map_rnbd none /dev/null ip:127.0.0.1; }

check "the modules load" load_modules rust
check "a session to nowhere is refused" no_server
check "the modules unload" unload_modules
finish
