#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: 16 sessions of 2 paths from one kernel at once, IO on all, two servers
# topology: single
# timeout: 400
# seconds: 20

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/testmod.sh"

N=${RTRS_SESSIONS:-16}

load() { load_test "always_invalidate=$1" sess_queue_depth=32 max_chunk_size=65536; }
names() { seq -f 's%g' "$N"; }

# Every other session is at the second server.
port_of() { echo $((1234 + ${1#s} % 2)); }

open_all()
{
	local s

	for s in $(names); do
		rt_start open "name=$s" "port=$(port_of "$s")" path=ip:10.9.0.1 path=ip:10.9.1.1
	done
	rt_wait
}

connected()
{
	local s n

	for s in $(names); do
		n=$(cat "/sys/class/rtrs-client/$s"/paths/*/state | grep -c '^connected$')
		[ "$n" = 2 ] && [ -d "/sys/class/rtrs-server/$s" ] || {
			echo "$s: $n paths"
			return 1
		}
	done
	[ "$(total sessions)" = "$N" ] && [ "$(total server_ups)" = "$N" ]
}

# io_all KEY=VALUE...: IO on all sessions at the same time.
io_all()
{
	local s

	for s in $(names); do
		rt_start io "name=$s" "seed=${s#s}" "$@"
	done
	rt_wait
}

# IO on all sessions, in both directions, on all connections.
mixed()
{
	local s

	for s in $(names); do
		rt_start io "name=$s" "tag=$s-w" count=100 depth=8 len=4096 "seed=${s#s}"
		rt_start io "name=$s" "tag=$s-r" count=100 depth=8 len=16384 dir=read "seed=${s#s}"
		rt_start io "name=$s" "tag=$s-a" count=20 depth=2 len=512 con=admin "seed=${s#s}"
		rt_start io "name=$s" "tag=$s-c" count=100 depth=4 len=512 chain=1 "seed=${s#s}"
	done
	rt_wait
}

# Both paths carry IO: the sum of read and write requests of each.
shared()
{
	local s p total

	for s in $(names); do
		for p in "/sys/class/rtrs-client/$s"/paths/*; do
			read -r -a total <"$p/stats/rdma"
			[ $((total[0] + total[2])) -gt 0 ] || {
				echo "$p: ${total[*]}"
				return 1
			}
		done
	done
}

# A name can be used once at a client and once at a server.
same_name()
{
	refuses 17 open name=s1 tag=again path=ip:10.9.0.1
}

# The same path twice in a session.
same_path()
{
	refuses 17 open name=twice path=ip:10.9.0.1 path=ip:10.9.0.1 &&
		[ ! -e /sys/class/rtrs-client/twice ]
}

# Opening fails half way: the second path has no server.
half_open()
{
	refuses "$1" open name=half path=ip:10.9.0.1 "path=$2" &&
		[ ! -e /sys/class/rtrs-client/half ] &&
		wait_for 10 test ! -e /sys/class/rtrs-server/half
}

# Half of the sessions go while the others work.
close_half()
{
	local s

	for s in $(names); do
		if [ $((${s#s} % 4)) -lt 2 ]; then
			rt_start close "name=$s"
		else
			rt_start io "name=$s" count=200 depth=8 len=4096 "seed=${s#s}"
		fi
	done
	rt_wait && balanced && [ "$(total sessions)" = $((N / 2)) ]
}

# The names are free again.
reopen()
{
	local s

	for s in $(names); do
		[ $((${s#s} % 4)) -lt 2 ] || continue
		rt_start open "name=$s" "port=$(port_of "$s")" path=ip:10.9.1.1 path=ip:10.9.0.1
	done
	rt_wait && io_all count=50 depth=8
}

two_servers() { rt serve port=1234 && rt serve port=1235 && refuses 99 serve port=1234; }

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "a second one comes up" rxe_up rxe1 10.9.1.1/24 fd09:1::1/64
defer rxe_down rxe1
resource_snapshot
defer unload_modules
for ai in Y N; do
	must "$ai: modules load" load "$ai"
	must "$ai: two servers open" two_servers
	must "$ai: $N sessions open at once" open_all
	check "$ai: each has two paths" connected
	check "$ai: IO on all" io_all count=100 depth=16 len=4096
	check "$ai: reads on all" io_all count=50 depth=16 len=32768 dir=read
	check "$ai: all kinds of IO on all" mixed
	check "$ai: both paths are used" shared
	check "$ai: a name is for one session" same_name
	check "$ai: a path is in a session once" same_path
	check "$ai: an open that fails half way leaves nothing" half_open 101 ip:10.9.77.1
	check "$ai: sessions close while others work" close_half
	check "$ai: sessions open again" reopen
	check "$ai: every request was completed once" balanced
	check "$ai: modules unload with all open" unload_modules
	check "$ai: nothing is left behind" resource_compare
done
finish
