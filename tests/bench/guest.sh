#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs in a guest: IO over one stack, each row twice with different numbers of requests, in windows
# in which the plugin counts; without the plugin, measures the time.
#
# Usage: guest.sh count|measure rust|c|nvme ROW...
#	ROW is BLOCKSIZE:read|write:AI, where AI is always_invalidate, Y or N, and - for nvme;
#	session:map:AI counts devices of new sessions that are mapped and unmapped, not with nvme
#
# For each window one line in the file "rows" of the result, in the order of the windows.

. "$(dirname "$0")/../lib/common.sh"
require fio rdma

OUT=$(dirname "$RTRS_SYNC")
MARK=$RTRS_BENCH_BIN/rtrs-mark
DEPTH=16

# requests BLOCKSIZE short|long: numbers of requests; the difference of the two runs cancels the
# set-up.
requests()
{
	case $1:$2 in
	4k:short) echo 1000 ;;
	session:short) echo 2 ;;
	session:long) echo 10 ;;
	4k:long) echo $((1000 + ${RTRS_BENCH_IOS:-8000})) ;;
	*:short) echo 250 ;;
	*:long) echo $((250 + ${RTRS_BENCH_IOS:-8000} / 4)) ;;
	esac
}

# io BLOCKSIZE read|write REQUESTS [ARGS...]: the requests are shared among one job per CPU.
io()
{
	local bs=$1 rw=$2 n=$3 cpus
	shift 3
	cpus=$(nproc)

	fio --name=bench --filename="/dev/$(cat "$TMP/dev")" --direct=1 --ioengine=libaio --iodepth=$DEPTH \
		--bs="$bs" --rw="rand$rw" --size=512M --norandommap --randrepeat=1 --thread \
		--numjobs="$cpus" --cpus_allowed="0-$((cpus - 1))" --cpus_allowed_policy=split \
		--number_ios=$((n / cpus)) --group_reporting "$@" >"$TMP/fio" 2>&1 || {
		cat "$TMP/fio"
		return 1
	}
}

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

# first BLOCKSIZE: number of requests that run before counting starts.
first()
{
	case $1 in
	session) echo 2 ;;
	*) echo $((500 / $(nproc) * $(nproc))) ;;
	esac
}

# count STACK BLOCKSIZE RW AI
count()
{
	local stack=$1 bs=$2 rw=$3 ai=$4 len n

	# A first run makes everything that is made at first use.
	requested "$bs" "$rw" "$(first "$bs")"
	for len in short long; do
		n=$(requests "$bs" "$len")
		[ "$bs" = session ] || n=$((n / $(nproc) * $(nproc)))
		"$MARK" open
		requested "$bs" "$rw" "$n"
		"$MARK" close
		echo "$stack $bs $rw $ai $(nproc) $n $ai" >>"$OUT/rows"
	done
}

# measure STACK BLOCKSIZE RW AI: measure by the clock, for a fixed time.
measure()
{
	local stack=$1 bs=$2 rw=$3 ai=$4

	io "$bs" "$rw" 100000000 --time_based --ramp_time=1 --runtime="${RTRS_BENCH_SECONDS:-4}" \
		--percentile_list=50:99:99.9 --output-format=json
	# Lines before the JSON are no part of it.
	sed -n '/^{/,$p' "$TMP/fio" >"$OUT/fio-$stack-$bs-$rw-$ai-$(nproc).json"
}

up()
{
	case $1 in
	nvme) nvme_up ;;
	*) rtrs_up "$@" ;;
	esac
	cat /proc/kallsyms >"$OUT/symbols-$2"
	sections >"$OUT/sections-$2"
}

# Where the code of the modules is, for lines of source.
sections()
{
	local file

	for file in /sys/module/rtrs_{core,client,server}/sections/.text*; do
		[ -e "$file" ] || continue
		printf '%s %s %s\n' "$(basename "${file%/sections/*}")" "${file##*/}" "$(<"$file")"
	done
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
	local what=$1 stack=$2 row bs rw ai up=''
	shift 2

	must "soft RoCE comes up" rxe_up rxe0 10.9.0.1/24
	defer rxe_down rxe0
	must "a null_blk" null_blk_up nullb0 1024 0
	defer null_blk_down nullb0
	: >"$OUT/rows"
	for row in "$@"; do
		IFS=: read -r bs rw ai <<<"$row"
		if [ "$up" != "$ai" ]; then
			[ -z "$up" ] || must "$stack $up goes" down "$stack"
			must "$stack $ai comes up" up "$stack" "$ai"
			up=$ai
		fi
		check "$row" "$what" "$stack" "$bs" "$rw" "$ai"
	done
	must "$stack $up goes" down "$stack"
	echo complete >"$OUT/complete"
	finish
}

main "$@"
