#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the server's modules are reloaded, which loses nothing, its machine with a write cache loses power, all under load: IO goes on by itself, all acknowledged data is there
# topology: pair
# timeout: 400
# seconds: 90

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma cmp

# Processes that write, each to 16 MiB of its own, block by block.
WRITERS=3
BLOCK=16
# Blocks of each region; the device has room for one region more, which fio uses.
BLOCKS=1024
SESS=$CLT/restart
# Limit in milliseconds for IO to go on, from when the server is ready and the client has noticed
# its absence: the longest wait between attempts seen so far, and the time to connect.
LIMIT=$((15000 * RTRS_TIME_SCALE))

map()
{
	map_rnbd restart "$1" "ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" \
		"ip:$(pair_addr 1)@ip:$(pair_addr 1 server)" >"$TMP/dev"
}
dev() { cat "$TMP/dev"; }
unmap() { unmap_rnbd "$(dev)"; }

# writer I: write block after block, each until it is acknowledged, and a line for each: number,
# attempts, time in milliseconds.
writer()
{
	local n tries

	for ((n = $1 * BLOCKS; n < ($1 + 1) * BLOCKS; n++)); do
		[ ! -e "$TMP/stop" ] || return 0
		tries=1
		until dd if="$TMP/data" of="/dev/$(<"$TMP/dev")" bs=${BLOCK}k count=1 skip="$n" seek="$n" \
			oflag=direct conv=notrunc status=none 2>/dev/null; do
			tries=$((tries + 1))
			[ ! -e "$TMP/stop" ] || return 0
			sleep 0.1
		done
		echo "$n $tries $(ms_now)" >>"$TMP/acked.$1"
	done
}

start_writers()
{
	local i

	rm -f "$TMP"/acked.* "$TMP/stop"
	WRITER_PIDS=()
	for ((i = 0; i < WRITERS; i++)); do
		: >"$TMP/acked.$i"
		writer "$i" &
		WRITER_PIDS+=($!)
	done
	# Fast enough to have requests in flight; their results do not matter.
	fio --name=load --filename="/dev/$(dev)" --direct=1 --ioengine=libaio --rw=randrw --bs=4k \
		--iodepth=8 --offset=$((WRITERS * BLOCKS * BLOCK))k --size=16M --time_based --runtime=3600 \
		--continue_on_error=all --error_dump=0 --rate_iops=100 --output="$TMP/fio" >/dev/null 2>&1 &
	FIO_PID=$!
}

stop_writers()
{
	local t0
	t0=$(ms_now)

	: >"$TMP/stop"
	kill -INT "$FIO_PID"
	wait "${WRITER_PIDS[@]}" "$FIO_PID"
	echo $(($(ms_now) - t0)) >"$TMP/stopped"
}

# goes_on: was a block acknowledged that was written after the server was ready again? Prints how
# long that took.
goes_on()
{
	local t0 t1
	t0=$(cat "$TMP/ready")

	wait_for 60 eval "awk -v t0=$t0 '\$3 > t0 { found = 1 } END { exit !found }' $TMP/acked.*"
	t1=$(awk -v t0="$t0" '$3 > t0 { print $3 }' "$TMP"/acked.* | sort -n | head -n 1)
	echo "IO went on $((t1 - t0)) ms after the server was ready, $((t1 - $(cat "$TMP/gone"))) ms after it went"
	[ $((t1 - t0)) -lt "$LIMIT" ] || late "that is too long"
}

# all_acked: does every acknowledged block have the right content?
all_acked()
{
	local f first last n=0

	for f in "$TMP"/acked.*; do
		first=$(head -n 1 "$f" | cut -d ' ' -f 1)
		last=$(tail -n 1 "$f" | cut -d ' ' -f 1)
		[ $((last - first + 1)) -eq "$(wc -l <"$f")" ]
		dd if="/dev/$(dev)" bs=${BLOCK}k skip="$first" count=$((last - first + 1)) iflag=direct status=none |
			cmp -n $(((last - first + 1) * BLOCK * 1024)) - <(tail -c +$((first * BLOCK * 1024 + 1)) "$TMP/data") || {
			echo "acknowledged blocks are not there"
			return 1
		}
		n=$((n + last - first + 1))
	done
	echo "$n blocks were acknowledged, $(awk '$2 > 1 { n++ } END { print n + 0 }' "$TMP"/acked.*) of them not at once"
	[ "$n" -gt 30 ]
}

# Call it after the writers were stopped.
nothing_hangs()
{
	cat "$TMP/fio"
	nothing_in_flight restart
	echo "the load ended after $(cat "$TMP/stopped") ms"
	[ "$(cat "$TMP/stopped")" -lt $((10000 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

# RNBD opens its device again, and waiting requests go out.
none_failed()
{
	awk '$2 > 1' "$TMP"/acked.* >"$TMP/retried"
	not grep . "$TMP/retried"
	not grep -E 'err= *[1-9]' "$TMP/fio"
	not dmesg_has "restart: the server does not know the session any more"
}

# A loop device has a write cache, and its lost content is unknown.
said_why()
{
	dmesg_has "restart: $(get disk) has a volatile write cache, and may have lost what it acknowledged"
	dmesg_has "restart: the server does not know the session any more"
}

said() { grep -E '^(IO went on|[0-9]+ blocks|the load)' "$TMP/case.log" | sed 's/^/# /'; }

connected() { has_words "$SESS/state" "connected 2/2"; }

server_gone()
{
	wait_for 60 has_words "$SESS/state" disconnected
	ms_now >"$TMP/gone"
}

# trouble WHAT CMD...: CMD makes the server go and come back.
trouble()
{
	local what=$1
	shift

	start_writers
	sleep 2
	"$@"
	ms_now >"$TMP/ready"
	check "$what: IO goes on by itself" goes_on
	said
	check "$what: both paths are back" wait_for 60 connected
	sleep 1
	stop_writers
	check "$what: nothing hangs" nothing_hangs
	said
	check "$what: all that was acknowledged is there" all_acked
	said
}

reload()
{
	put reload now
	check "the client sees the server go" server_gone
	barrier reloaded 120
}

reconnects() { cat "$SESS"/paths/*/stats/reconnects | awk '{ n += $1 } END { print n }'; }

# Nothing tells the client: it notices after six intervals without a heartbeat, or earlier if the
# device gives up a request. The server may be back before that.
noticed() { not connected || [ "$(reconnects)" -gt "$(cat "$TMP/reconnects")" ]; }

power_cut()
{
	reconnects >"$TMP/reconnects"
	check "the server loses power" vm_control kill server
	ms_now >"$TMP/gone"
	sleep 2
	check "it gets power again" vm_control start server
	# The second boot sends this.
	get booted 180 >"$TMP/value"
	check "the client knows" wait_for 60 noticed
}

# A disk that survives, as it is a file of the host.
disk_up()
{
	local f=$RTRS_SYNC/disk

	modprobe loop
	[ -e "$f" ] || truncate -s 80M "$f"
	losetup -f --show "$f" >"$TMP/loop"
}
disk_down() { [ ! -s "$TMP/loop" ] || losetup -d "$(cat "$TMP/loop")"; }

server_role()
{
	# First the disk: the client reconnects as soon as a server listens, and RNBD asks for its
	# device only once.
	must "a disk" disk_up
	defer disk_down
	must "server modules load" eval "load_rtrs rust server && load_rnbd server"
	put disk "$(cat "$TMP/loop")"
	if [ "${RTRS_BOOT:-1}" = 1 ]; then
		must "a memory-backed null_blk" null_blk_up nullb0 80
		defer null_blk_down nullb0
		barrier listening
		get reload >/dev/null
		check "the server modules unload under load" unload_modules
		sleep 2
		must "they load again" eval "load_rtrs rust server && load_rnbd server"
		barrier reloaded 120
	else
		put booted yes
	fi
	# The first boot ends here, by power cut.
	barrier unmapped 300
	check "the server modules unload" unload_modules
}

client_role()
{
	head -c $(((WRITERS + 1) * BLOCKS * BLOCK * 1024)) /dev/urandom >"$TMP/data"
	client_ready
	must "a device maps" map /dev/nullb0
	trouble "reload" reload
	check "reload: not a request failed" none_failed
	check "the device unmaps" unmap
	must "a device that survives maps" map "$(get disk)"
	trouble "power cut" power_cut
	check "power cut: the log says what may be lost" said_why
	check "the device unmaps" unmap
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
