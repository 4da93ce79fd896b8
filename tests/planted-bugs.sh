#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: planted faults, which must turn the run red: a use after free, a lock inversion, a leak
# topology: single
# timeout: 90
# default: no
#
# Its own cases pass; that the run is red for what the kernel reports is checked by tests/all.sh.

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"

[ -w "$KMEMLEAK" ] || skip_all "this kernel has no checkers"

must "the test module loads" load_test
defer unload_rtrs
check "two locks are taken in both orders" rt plant what=inversion
check "memory is leaked" rt plant what=leak
# An object has to be some seconds old.
sleep 6
echo scan >"$KMEMLEAK"
sleep 1
echo scan >"$KMEMLEAK"
# The last, as what KASAN reports turns lockdep off.
check "memory is used after it was freed" rt plant what=use-after-free
# Not "finish", whose looks at the log and at the checkers would be failed cases.
FINISHED=yes
ktap_set_plan "$((KTAP_TESTNO - 1))"
ktap_finished
