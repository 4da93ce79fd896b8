#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: planted faults that must make the run fail: a use after free, a lock inversion, a leak
# topology: single
# timeout: 90
# default: no
#
# The cases of this test pass; tests/all.sh checks that the run fails because of the kernel's
# reports.

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"

[ -w "$KMEMLEAK" ] || skip_all "this kernel has no checkers"

must "the test module loads" load_test
defer unload_rtrs
check "two locks are taken in both orders" rt plant what=inversion
check "memory is leaked" rt plant what=leak
# kmemleak reports an object only when it is some seconds old.
sleep 6
echo scan >"$KMEMLEAK"
sleep 1
echo scan >"$KMEMLEAK"
# This comes last, as a report of KASAN turns lockdep off.
check "memory is used after it was freed" rt plant what=use-after-free
# Not "finish": its checks of the log and of the checkers would be failed cases.
FINISHED=yes
ktap_set_plan "$((KTAP_TESTNO - 1))"
ktap_finished
