#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the server's modules are reloaded, one path does not come back, a disk does not; its machine with a write cache loses power, all under load: IO goes on by itself, or fails with a reason in the log, all acknowledged data is there
# topology: pair
# timeout: 400
# seconds: 140

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
PATHS=("ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" "ip:$(pair_addr 1)@ip:$(pair_addr 1 server)")
# Sessions with two disks each, of which the second one does not come back: nullb2 for "short", and
# so on. "short" does not wait for it, "told" waits until it is told otherwise, "tidy" unmaps it.
# "left" has unmapped it long before, while RNBD had been told that all paths were lost: then RNBD does
# not close it, and the client has to find out that it is not to be opened again.
# "never" waits for no path: RNBD is told when the last one is lost, and opens its devices itself.
# "tidy" has a third disk: when one of two devices of a session goes, the block layer waits for the IO
# of the other one.
HALF=(short told left never tidy)
# Seconds that "short" waits: the server is back by then, and has not been asked for the disk for long.
SHORT=$((10 * RTRS_TIME_SCALE))
# Milliseconds that an error may come late.
SOON=$((3000 * RTRS_TIME_SCALE))

map() { map_rnbd restart "$1" "${PATHS[@]}" >"$TMP/dev"; }
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

# more_acked N: wait until more than a few blocks are acknowledged beside the first N.
more_acked() { wait_for 60 eval "[ \$(cat $TMP/acked.* | wc -l) -gt $(($1 + 15)) ]"; }

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

# trouble WHAT STATE CMD...: CMD makes the server go and come back; the session is in STATE then.
trouble()
{
	local what=$1 state=$2
	shift 2

	start_writers
	# For fio to start, too.
	sleep 2
	check "$what: blocks are acknowledged before" more_acked 0
	"$@"
	ms_now >"$TMP/ready"
	check "$what: IO goes on by itself" goes_on
	said
	check "$what: the session is $state" wait_for 60 has_words "$SESS/state" "$state"
	check "$what: blocks are acknowledged afterwards" more_acked "$(cat "$TMP"/acked.* | wc -l)"
	stop_writers
	check "$what: nothing hangs" nothing_hangs
	said
	check "$what: all that was acknowledged is there" all_acked
	said
}

# reload NAME: the server does so.
reload()
{
	put "$1" now
	check "$1: the client sees the server go" server_gone
	put "$1.seen" yes
	get "$1.done" 120 >"$TMP/value"
}

# The other path has carried all IO since the reload, and opened the device.
only_one()
{
	none_failed
	has_words "$SESS/state" "degraded 1/2"
	[ "$(dmesg_since_start | grep -cF "$OPENED")" = 2 ]
}
OPENED="restart: the server did not know the session any more: 1 devices opened again"

back()
{
	put address now
	wait_for 60 connected
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

#
# A disk that does not come back
#

# half SESSION N: the number on the server of its Nth disk; half_dev: its device here.
half()
{
	local i

	for ((i = 0; i < ${#HALF[@]}; i++)); do
		[ "${HALF[i]}" != "$1" ] || echo $((1 + 2 * i + $2))
	done
}
half_dev() { cat "$TMP/dev.$1.$2"; }

map_halves()
{
	local s

	for s in "${HALF[@]}"; do
		map_rnbd "$s" "/dev/nullb$(half "$s" 0)" "${PATHS[@]}" >"$TMP/dev.$s.0"
		map_rnbd "$s" "/dev/nullb$(half "$s" 1)" >"$TMP/dev.$s.1"
	done
	map_rnbd tidy "/dev/nullb$(half tidy 2)" >"$TMP/dev.tidy.2"
}

# my_addresses add|del: those of all paths.
my_addresses()
{
	ip addr "$1" "$(pair_addr 0)/24" dev eth0
	ip addr "$1" "$(pair_addr 1)/24" dev eth1
}

rnbd_state() { [ "$(cat "/sys/block/$(half_dev left 0)/rnbd/state")" = "$1" ]; }

# The server keeps the sessions meanwhile.
unmap_unnoticed()
{
	local s t0 rc=0

	write "$CLT/left/fast_io_fail_tmo" 1
	my_addresses del
	t0=$(ms_now)
	# As soon as a request has failed RNBD is told.
	start_write left 0
	ended left 0 1 "$t0" "$LIMIT" || rc=1
	wait_for 10 rnbd_state closed || rc=1
	unmap_rnbd "$(half_dev left 1)" || rc=1
	my_addresses add
	[ "$rc" = 0 ]
	wait_for 60 has_words "$CLT/left/state" "connected 2/2"
	wait_for 10 rnbd_state open
	not dmesg_has "left: the server does not know the session any more"
	write "$CLT/left/fast_io_fail_tmo" 180
	for s in "${HALF[@]}"; do
		wait_for 60 has_words "$CLT/$s/state" "connected 2/2"
	done
	write "$CLT/short/fast_io_fail_tmo" "$SHORT"
	write "$CLT/never/fast_io_fail_tmo" 0
}

halves_gone()
{
	local s

	for s in "${HALF[@]}"; do
		wait_for 20 has_words "$CLT/$s/state" disconnected
	done
	ms_now >"$TMP/gone"
}

# start_write SESSION N: write a block in the background; $TMP/end.SESSION.N has the status, and when.
start_write()
{
	rm -f "$TMP/end.$1.$2"
	(
		rc=0
		dd if="$TMP/data" of="/dev/$(half_dev "$1" "$2")" bs=4k count=1 oflag=direct conv=notrunc \
			status=none 2>"$TMP/dd.$1.$2" || rc=$?
		echo "$rc $(ms_now)" >"$TMP/end.$1.$2"
	) &
}

# ended SESSION N STATUS SINCE LIMIT: the write has ended with STATUS, less than LIMIT milliseconds
# after SINCE.
ended()
{
	local rc ms

	wait_for 60 test -s "$TMP/end.$1.$2" || return
	read -r rc ms <"$TMP/end.$1.$2"
	cat "$TMP/dd.$1.$2"
	ms=$((ms - $4))
	echo "$1: the write to disk $2 ended after $ms ms with status $rc"
	[ "$rc" = "$3" ] || return
	[ "$ms" -lt "$5" ] || late "that is too long"
}

# Without a path, and the client has opened no device in place of RNBD.
fails_at_once()
{
	local t0
	t0=$(ms_now)

	start_write never 0
	ended never 0 1 "$t0" $((1000 + SOON))
}

# RNBD opens the disk that has come back.
usable_again()
{
	local t0

	wait_for 20 usable "$(half_dev never 0)"
	t0=$(ms_now)
	start_write never 0
	ended never 0 0 "$t0" "$SOON"
	not dmesg_has "never: the server did not know the session any more"
}

says() { dmesg_has "$1: /dev/nullb$(half "$1" 1) cannot be opened $2: the server says -2"; }

# The session waits for no longer than it was told to.
fails_in_time()
{
	local n

	for n in 0 1; do
		ended short "$n" 1 "$(cat "$TMP/gone")" $((SHORT * 1000 + SOON))
	done
	# The attempt to open the disk may be what notices that the time is over.
	dmesg_has "short: no path for $SHORT s: 2 requests fail" ||
		dmesg_has "short: the server does not know the session any more: 2 requests fail"
}

waited_for() { wait_for 30 says "$1" "yet, IO waits"; }

# The others still wait for the disk, and the log says so.
still_waiting()
{
	waited_for told
	waited_for tidy
	not test -e "$TMP/end.told.0"
	not test -e "$TMP/end.told.1"
	not test -e "$TMP/end.tidy.0"
	not test -e "$TMP/end.tidy.2"
}

fails_when_told()
{
	local t0 n
	t0=$(ms_now)

	write "$CLT/told/fast_io_fail_tmo" 1
	for n in 0 1; do
		ended told "$n" 1 "$t0" "$SOON"
	done
}

# No request waits for the disk that is unmapped. Its message waits for 5 s, and the server is asked
# each 2 s.
goes_on_without()
{
	local t0 n
	t0=$(ms_now)

	unmap_rnbd "$(half_dev tidy 1)"
	for n in 0 2; do
		ended tidy "$n" 0 "$t0" $((8000 * RTRS_TIME_SCALE))
	done
	dmesg_has "tidy: the server did not know the session any more: 2 devices opened again"
	not says tidy again
}

# RNBD has only one device in the session.
goes_on_alone()
{
	ended left 0 0 "$(cat "$TMP/ready")" "$LIMIT"
	dmesg_has "left: the server did not know the session any more: 1 devices opened again"
	not says left yet
	not says left again
}

# half_left SESSION: the log says why, the other disk of the session is there again, and requests for
# the one that is not wait for nothing: they fail in half the time that "short" would wait.
half_left()
{
	wait_for 30 says "$1" again
	dmesg_has -E "$1: the server does not know the session any more: [0-9]+ requests fail"
	wait_for 20 usable "$(half_dev "$1" 0)"
	start_write "$1" 1
	ended "$1" 1 1 "$(ms_now)" $((SHORT * 500))
}

comes_after_all()
{
	put disks now
	get disks.done >"$TMP/value"
	write "/sys/block/$(half_dev short 1)/rnbd/remap_device" 1
	wait_for 10 usable "$(half_dev short 1)"
}

half_back()
{
	local s

	check "half: disks map" map_halves
	check "half: one is unmapped while no path is there" unmap_unnoticed
	put half now
	check "half: the client sees the server go" halves_gone
	for s in "short 0" "short 1" "told 0" "told 1" "left 0" "tidy 0" "tidy 2"; do
		# shellcheck disable=SC2086 # two words
		start_write $s
	done
	check "half: a session that waits for no path fails at once" fails_at_once
	put half.seen yes
	get half.done 120 >"$TMP/value"
	ms_now >"$TMP/ready"
	check "half: no session waits for what RNBD has unmapped" goes_on_alone
	check "half: RNBD has the disk of the one that did not wait" usable_again
	check "half: a session that waits a short time fails in that time" fails_in_time
	check "half: others wait, and the log says for what" still_waiting
	check "half: one goes on when the disk is unmapped" goes_on_without
	check "half: one fails when it is told to" fails_when_told
	for s in short told; do
		check "half: $s: the log says why, and its other disk is usable" half_left "$s"
	done
	check "half: a disk that comes after all is mapped by hand" comes_after_all
	check "half: all devices unmap" unmap_all_rnbd
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

# null_blks N...: a small disk each.
null_blks()
{
	local n

	for n; do
		null_blk_up "nullb$n" 16
	done
}

null_blks_down()
{
	local n

	for ((n = 1; n <= 2 * ${#HALF[@]} + 1; n++)); do
		null_blk_down "nullb$n"
	done
}

# address add|del: the server's on the second link.
address() { ip addr "$1" "$(pair_addr 1)/24" dev eth1; }

lose_disks()
{
	local s

	for s in "${HALF[@]}"; do
		null_blk_down "nullb$(half "$s" 1)"
	done
}

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
		must "small ones" null_blks 1 2 3 4 5 6 7 8 9 10 11
		defer null_blks_down
		barrier listening
		reload_when reload sleep 2
		reload_when one-path address del
		get address 120 >/dev/null
		must "the address is back" address add
		reload_when half lose_disks
		get disks 120 >/dev/null
		must "a disk comes after all" null_blks "$(half short 1)"
		put disks.done yes
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
	trouble "reload" "connected 2/2" reload reload
	check "reload: not a request failed" none_failed
	trouble "one path" "degraded 1/2" reload one-path
	check "one path: not a request failed, the other path stayed away" only_one
	check "one path: it comes back with its address" back
	check "the device unmaps" unmap
	half_back
	must "a device that survives maps" map "$(get disk)"
	trouble "power cut" "connected 2/2" power_cut
	check "power cut: the log says what may be lost" said_why
	check "the device unmaps" unmap
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
