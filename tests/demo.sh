#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The demonstration: real blocks over RDMA on a stock kernel, and gone again
# without a trace. Runs in a guest, by "make demo".

set -euo pipefail

title()
{
	printf '\n== %s\n' "$*"
}

run()
{
	printf '   $ %s\n' "$*"
	"$@" 2>&1 | sed 's/^/     /'
}

title "The kernel, as the distribution ships it"
run uname -srv

title "The modules"
run modinfo -F description "$RTRS_MODULES/rtrs-core.ko" "$RTRS_MODULES/rtrs-client.ko" \
	"$RTRS_MODULES/rtrs-server.ko"
run modprobe -a ib_core rdma_cm rdma_rxe
for m in rtrs-core rtrs-client rtrs-server; do
	run insmod "$RTRS_MODULES/$m.ko"
done
run lsmod

title "Gone again"
run rmmod rtrs-server rtrs-client rtrs-core
