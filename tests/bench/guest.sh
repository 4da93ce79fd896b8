#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs in a guest: IO over one stack, each row twice with different numbers of requests, in windows
# in which the plugin counts; or over all stacks in turn, by the clock, without the plugin.
#
# Usage: guest.sh count rust|c|nvme ROW...
#	ROW is BLOCKSIZE:read|write:AI, where AI is always_invalidate, Y or N, and - for nvme;
#	session:map:AI counts devices of new sessions that are mapped and unmapped, not with nvme
#        guest.sh turns N ROW...
#	N times all stacks, every second time in the opposite order; ROW is BLOCKSIZE:read|write:DEPTH,
#	with always_invalidate; DEPTH is the number of requests that each CPU has under way
#
# For each window one line in the file "rows" of the result, in the order of the windows.

. "$(dirname "$0")/../lib/common.sh"
# shellcheck source=count.sh
. "$(dirname "$0")/count.sh"
require fio rdma

# sessions N: connect and disconnect N times, one after the other.
sessions()
{
	local i before dev
	before=$(rnbd_devices)

	for ((i = 0; i < $1; i++)); do
		write "$RNBD_CTL/map_device" "sessname=s$i path=ip:10.9.0.1 device_path=/dev/nullb0 access_mode=ro"
		dev=$(comm -13 <(echo "$before") <(rnbd_devices))
		unmap_rnbd "$dev"
	done
	# Both ends are done when their queue pairs are gone.
	wait_for 10 only_the_first
}

only_the_first() { [ "$(find /sys/class/rtrs-client /sys/class/rtrs-server -mindepth 1 -maxdepth 1 -name 's*' | wc -l)" -eq 0 ]; }

# requested ROW N
requested()
{
	case $1 in
	session) sessions "$3" ;;
	*) io "$@" ;;
	esac
}

# rtrs_up rust|c AI
rtrs_up()
{
	load_rtrs "$1" both always_invalidate="$2"
	load_rnbd both
	map_rnbd bench /dev/nullb0 ip:10.9.0.1 >"$TMP/dev"
}

rtrs_down()
{
	unmap_rnbd "$(cat "$TMP/dev")"
	unload_modules
}

NVMET=/sys/kernel/config/nvmet

nvme_up()
{
	local sub=$NVMET/subsystems/bench port=$NVMET/ports/1

	modprobe -a nvmet-rdma nvme-rdma
	mkdir "$sub"
	echo 1 >"$sub/attr_allow_any_host"
	mkdir "$sub/namespaces/1"
	echo /dev/nullb0 >"$sub/namespaces/1/device_path"
	echo 1 >"$sub/namespaces/1/enable"
	mkdir "$port"
	echo rdma >"$port/addr_trtype"
	echo ipv4 >"$port/addr_adrfam"
	echo 10.9.0.1 >"$port/addr_traddr"
	echo 4420 >"$port/addr_trsvcid"
	ln -s "$sub" "$port/subsystems/bench"
	echo "transport=rdma,traddr=10.9.0.1,trsvcid=4420,nqn=bench,nr_io_queues=$(nproc)" \
		>/dev/nvme-fabrics
	wait_for 10 test -b /dev/nvme0n1
	echo nvme0n1 >"$TMP/dev"
}

nvme_down()
{
	echo 1 >/sys/class/nvme/nvme0/delete_controller
	rm "$NVMET/ports/1/subsystems/bench"
	rmdir "$NVMET/ports/1" "$NVMET/subsystems/bench/namespaces/1" "$NVMET/subsystems/bench"
}

# measure STACK BLOCKSIZE RW AI DEPTH TURN: measure by the clock, for a fixed time.
measure()
{
	local stack=$1 bs=$2 rw=$3 ai=$4 depth=$5 turn=$6

	io "$bs" "$rw" 100000000 --iodepth="$depth" --time_based --ramp_time=1 --runtime="${RTRS_BENCH_SECONDS:-3}" \
		--percentile_list=50:99:99.9 --output-format=json
	# Lines before the JSON are no part of it.
	sed -n '/^{/,$p' "$TMP/fio" >"$OUT/fio.$stack.$bs.$rw.$ai.$(nproc).$depth.$turn.json"
}

# turns N ROW...
turns()
{
	local n=$1 turn stack row bs rw depth ai stacks=(rust c nvme)
	shift

	for ((turn = 1; turn <= n; turn++)); do
		for stack in "${stacks[@]}"; do
			ai=Y
			[ "$stack" != nvme ] || ai=-
			must "turn $turn: $stack comes up" up "$stack" "$ai"
			for row in "$@"; do
				IFS=: read -r bs rw depth <<<"$row"
				check "turn $turn: $stack $row" measure "$stack" "$bs" "$rw" "$ai" "$depth" "$turn"
			done
			must "turn $turn: $stack goes" down "$stack"
		done
		stacks=("${stacks[2]}" "${stacks[1]}" "${stacks[0]}")
	done
}

# count_rows STACK ROW...
count_rows()
{
	local stack=$1 row bs rw ai up=''
	shift

	: >"$OUT/rows"
	for row in "$@"; do
		IFS=: read -r bs rw ai <<<"$row"
		if [ "$up" != "$ai" ]; then
			[ -z "$up" ] || must "$stack $up goes" down "$stack"
			must "$stack $ai comes up" up "$stack" "$ai"
			up=$ai
		fi
		check "$row" count "$stack" "$bs" "$rw" "$ai"
	done
	must "$stack $up goes" down "$stack"
}

up()
{
	case $1 in
	nvme) nvme_up ;;
	*) rtrs_up "$@" ;;
	esac
	addresses "$OUT" "$2"
}

down()
{
	case $1 in
	nvme) nvme_down ;;
	*) rtrs_down ;;
	esac
}

main()
{
	must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24
	defer rxe_down rxe0
	must "huge pages for the data" huge_pages
	must "a null_blk" null_blk_up nullb0 1024 0
	defer null_blk_down nullb0
	case $1 in
	turns) turns "${@:2}" ;;
	*) count_rows "${@:2}" ;;
	esac
	echo complete >"$OUT/complete"
	finish
}

main "$@"
