#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the server loses power and boots, its modules are reloaded, it forgets sessions: no IO fails; where one has to, another disk does not get the data
# topology: pair
# timeout: 700
# seconds: 220

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require fio rdma mkfs.ext4 e2fsck cmp

# Session "one" has one path and one disk; "many" has two paths and three disks, of which the middle
# one is unmapped. The server numbers them 0 and 2, and 0 and 1 after its restart.
DISKS="1 2 3 4"
MIB=48
# Size of the disk that has the name of disk 4 in the end.
OTHER_MIB=40
PATHS=("ip:$(pair_addr 0)@ip:$(pair_addr 0 server)" "ip:$(pair_addr 1)@ip:$(pair_addr 1 server)")
# Milliseconds that a request may take in addition to the server's absence.
LIMIT=$((20000 * RTRS_TIME_SCALE))

#
# Server
#

file_of() { echo "$RTRS_SYNC/disk$1"; }

# disk N FILE [CACHE]: /dev/loopN on a file of the host, which a power cut does not affect. Data
# that it acknowledged is there.
disk()
{
	losetup "/dev/loop$1" "$2"
	echo "${3:-write through}" >"/sys/block/loop$1/queue/write_cache"
}

disks_up()
{
	local n

	modprobe loop max_loop=16
	for n in $DISKS; do
		[ -e "$(file_of "$n")" ] || truncate -s ${MIB}M "$(file_of "$n")"
		disk "$n" "$(file_of "$n")"
	done
}
disks_down() { losetup -D; }
rename_disks()
{
	local n

	for n in $DISKS; do
		mv "/dev/loop$n$1" "/dev/loop$n$2"
	done
}

# Mainline's chunks are several pages that are not one compound page. The host's file system (9p)
# takes references to pages that it reads to, and dropping the last of these frees a page that
# mainline's server still uses. ramfs copies instead, and loses as little as 9p.
disks_in_memory()
{
	local n

	losetup -D
	mkdir "$TMP/memory"
	mount -t ramfs none "$TMP/memory"
	for n in $DISKS; do
		cp "$(file_of "$n")" "$TMP/memory/disk$n"
		disk "$n" "$TMP/memory/disk$n" "$([ "$n" != 1 ] || echo 'write back')"
	done
}

server_modules() { load_rtrs "$1" server "${@:2}" && load_rnbd server; }

# reload NAME rust|c [PARAM=VALUE...]: reload when the client asks for it.
reload()
{
	local name=$1
	shift

	get "$name" 180 >/dev/null
	check "$name: the server modules unload under load" unload_modules
	sleep 1
	[ "$1" != c ] || must "$name: the disks are in memory" disks_in_memory
	must "$name: modules load" server_modules "$@"
	put "$name.done" "$(ms_now)"
}

# forgets N: tell the client when no session is left. Mainline's server keeps none without a path,
# and does not count them.
forgets()
{
	get "forget$1" 240 >/dev/null
	must "no session is left, time $1" wait_for 20 no_session
	put "forget$1.done" yes
}
no_session()
{
	local f=/sys/module/rtrs_server/quotas/sessions/current

	[ ! -e /sys/class/rtrs-server/one ] && [ ! -e /sys/class/rtrs-server/many ] || return
	[ ! -e $f ] || [ "$(cat $f)" = 0 ]
}

server_first()
{
	must "disks" disks_up
	must "server modules load" server_modules rust
	barrier listening
	# This boot ends by power cut.
	barrier never 300
}

server_second()
{
	# The disks come long after the module, as if they were below LVM or multipath.
	must "disks" disks_up
	must "they have other names" rename_disks "" .late
	must "server modules load" server_modules rust
	put booted yes
	get waiting 120 >/dev/null
	must "they have their names" rename_disks .late ""
	reload reload rust session_linger=0
	forgets 1
	get cached 180 >/dev/null
	must "disk 1 has a cache" eval "echo 'write back' >/sys/block/loop1/queue/write_cache"
	put cached.done yes
	forgets 2
	# Mainline's server does not always survive the end of a session under load, least of all
	# with always_invalidate. So this boot ends by power cut, too.
	reload mainline c always_invalidate=N
	[ -z "${RTRS_C_FORGETS:-}" ] || forgets 3
	barrier never2 300
}

server_third()
{
	modprobe loop max_loop=16
	# Another disk has the name and the number of disk 4.
	truncate -s ${OTHER_MIB}M "$RTRS_SYNC/other"
	must "disks" eval "disk 1 $(file_of 1) 'write back' && disk 2 $(file_of 2) && disk 4 $RTRS_SYNC/other"
	must "server modules load" server_modules rust
	put booted.again yes
	barrier failed 120
	check "not a byte of the old disk's came to the other one" untouched
	# Smaller chunks than the sessions have, and then a smaller queue depth.
	reload narrow rust max_chunk_size=16384
	reload depth rust sess_queue_depth=64
	barrier unmapped 120
	check "the server modules unload" unload_modules
}

untouched() { cmp -n $((OTHER_MIB << 20)) /dev/loop4 /dev/zero; }

server_role()
{
	defer disks_down
	case ${RTRS_BOOT:-1} in
	1) server_first ;;
	2) server_second ;;
	*) server_third ;;
	esac
}

#
# Client
#

dev() { cat "$TMP/dev.$1"; }
map() { map_rnbd "$1" "/dev/loop$2" "${@:3}" >"$TMP/dev.$2"; }

map_all()
{
	map one 1 "${PATHS[0]}"
	map many 2 "${PATHS[@]}"
	map many 3
	map many 4
	unmap_rnbd "$(dev 3)"
}

# listen SESSION...: nothing reports a power cut to the client. Requests wait until the server has
# booted, which a slow guest takes its time for.
listen()
{
	local s

	for s; do
		write "$CLT/$s/heartbeat_interval_ms" $((500 * RTRS_TIME_SCALE))
		write "$CLT/$s/fast_io_fail_tmo" $((180 * RTRS_TIME_SCALE))
	done
}

file_systems()
{
	local n

	for n in 1 2; do
		mkfs.ext4 -q -F "/dev/$(dev $n)"
		mkdir -p "$TMP/mnt$n"
		mount "/dev/$(dev $n)" "$TMP/mnt$n"
	done
}
umount_all()
{
	local n

	for n in 1 2; do
		! mountpoint -q "$TMP/mnt$n" || umount "$TMP/mnt$n" || return
	done
}

# The load is on file systems on disks 1 and 2, and on disk 4.
LOADED="1 2 4"

# load_all: with flushes by the file systems; all data are verified.
load_all()
{
	local n

	rm -f "$TMP/fio.rc"
	cat >"$TMP/job" <<-EOJ
		[global]
		ioengine=libaio
		direct=1
		rw=randwrite
		bs=4k
		iodepth=8
		size=16M
		time_based
		runtime=3600
		verify=crc32c
		verify_backlog=64
		verify_fatal=1
	EOJ
	for n in $LOADED; do
		echo "[disk$n]"
		case $n in
		4) echo "filename=/dev/$(dev 4)" ;;
		*) printf '%s\n' "filename=$TMP/mnt$n/load" fsync=16 ;;
		esac
	done >>"$TMP/job"
	(
		fio --output-format=normal,terse --terse-version=3 "$TMP/job" >"$TMP/fio" 2>&1 &
		echo "$!" >"$TMP/fio.pid"
		wait "$!"
		echo "$?" >"$TMP/fio.rc"
	) &
	# shellcheck disable=SC2034 # load_stop has it
	LOAD_PID=$!
}

connected() { has_words "$CLT/one/state" "connected 1/1" && has_words "$CLT/many/state" "connected 2/2"; }
gone() { has_words "$CLT/one/state" disconnected && has_words "$CLT/many/state" disconnected; }

more_than() { [ "$(ios "$2")" -gt "$1" ]; }

# progress: each disk completes more requests.
progress()
{
	local n before

	for n in $LOADED; do
		before=$(ios "$(dev "$n")")
		wait_for 30 more_than $((before + 50)) "$(dev "$n")"
	done
}

reopened() { [ "$(dmesg | grep -c "$1: the server did not know the session any more: $2 devices opened again")" -ge "$3" ]; }

stalled()
{
	local ms

	ms=$(load_stall | sort -n | tail -n 1)
	echo "a request took $ms ms at most, the server was away for $1 ms"
	[ "$ms" -lt $(($1 + LIMIT)) ] || late "that is too long"
}

all_fine()
{
	cat "$TMP/fio"
	[ "$(cat "$TMP/fio.rc")" = 128 ] || { echo "IO failed, or did not verify"; return 1; }
	[ "$(awk -F';' '/^3;/ { n += $5 } END { print n + 0 }' "$TMP/fio")" = 0 ] || { echo "IO failed"; return 1; }
	no_io_error
	dmesg_since_start >"$TMP/dmesg"
	not grep -E 'EXT4-fs error|Aborting journal|I/O failed with err|Device disconnected' "$TMP/dmesg"
}

# clean DISK: its file system is clean.
clean()
{
	umount "$TMP/mnt$1"
	e2fsck -f -n "/dev/$(dev "$1")" && return
	echo "not clean; the same from the disk, not from what is cached:"
	echo 3 >/proc/sys/vm/drop_caches
	e2fsck -f -n "/dev/$(dev "$1")"
	return 1
}

# trouble WHAT N CMD...: CMD makes the server go and come back, for the Nth time, under load.
trouble()
{
	local what=$1 n=$2
	shift 2

	load_all
	check "$what: IO goes on before" progress
	AWAY=$(ms_now)
	"$@"
	check "$what: the paths are back" wait_for 60 connected
	AWAY=$(($(ms_now) - AWAY))
	check "$what: IO goes on" progress
	load_stop
	check "$what: no IO failed, all verifies" all_fine
	check "$what: it took no longer than that" stalled "$AWAY"
	sed -n '/^a request took/s/^/# /p' "$TMP/case.log"
	check "$what: devices were opened again" eval "wait_for 20 reopened one 1 $n && wait_for 20 reopened many 2 $n"
}

reboot()
{
	check "the server loses power" vm_control kill server
	check "the client knows" wait_for 60 gone
	check "it gets power again" vm_control start server
	get "$1" 180 >"$TMP/value"
}

client_reload()
{
	put "$1" now
	get "$1.done" 180 >"$TMP/value"
}

# The disks come when IO of both sessions waits for them, and the log says so.
reboot_without_disks()
{
	reboot "$1"
	check "the disks do not come with the server: IO waits for them" waits_for_disks
	put waiting now
}

waits_for_disks()
{
	wait_for 60 dmesg_has "one: /dev/loop1 cannot be opened yet, IO waits: the server says -2"
	wait_for 60 dmesg_has "many: /dev/loop2 cannot be opened yet, IO waits: the server says -2"
	gone
}

# forgotten N: the server keeps no sessions, and loses all paths, for the Nth time.
forgotten()
{
	local n=$1 p

	for p in "$CLT"/*/paths/ip:*; do
		echo 1 >"$p/disconnect"
	done
	check "there is no path" gone
	put "forget$n" now
	get "forget$n.done" >"$TMP/value"
	for p in "$CLT"/*/paths/ip:*; do
		echo 1 >"$p/reconnect"
	done
}

# Disk 1 is mapped again, with a cache. What is written to it is flushed in the end.
cache()
{
	unmap_rnbd "$(dev 1)"
	put cached now
	get cached.done 180 >/dev/null
	map one 1 "${PATHS[0]}"
	listen one
	mount "/dev/$(dev 1)" "$TMP/mnt1"
	echo text >"$TMP/mnt1/text"
	umount "$TMP/mnt1"
	# The message that closes another device writes nothing.
	map one 3
	unmap_rnbd "$(dev 3)"
}

flushed_is_safe()
{
	wait_for 60 connected
	wait_for 20 reopened one 1 4
	not dmesg_has "one: the server does not know the session any more"
}

# fails DISK: write to it in the background: the write waits, and then fails.
fails()
{
	dd if=/dev/urandom of="/dev/$(dev "$1")" bs=4k count=1 oflag=direct conv=notrunc status=none 2>"$TMP/dd.$1"
	echo "$?" >"$TMP/dd.$1.rc"
}

failed_promptly()
{
	local n

	for n in 1 2 4; do
		wait_for 40 test -s "$TMP/dd.$n.rc"
		cat "$TMP/dd.$n"
		[ "$(cat "$TMP/dd.$n.rc")" != 0 ]
	done
}

one_flush_fails()
{
	not sync "/dev/$(dev 1)"
	dmesg_has "one: a flush fails: what was written before the server was restarted may be lost"
	sync "/dev/$(dev 1)"
}

# A request that fits goes on, a longer one fails at once.
too_long()
{
	local t0

	wait_for 20 usable "$(dev 4)"
	t0=$(ms_now)
	not dd if=/dev/zero of="/dev/$(dev 4)" bs=64k count=1 oflag=direct status=none
	[ $(($(ms_now) - t0)) -lt $((2000 * RTRS_TIME_SCALE)) ] || late "it failed too late"
	dmesg_has "takes shorter requests than the session's first path: 12288 bytes"
	usable "$(dev 4)"
}

gave_up()
{
	wait_for 20 test -s "$TMP/dd.4.rc"
	[ "$(cat "$TMP/dd.4.rc")" != 0 ]
	dmesg_has "many: the server has become another one"
}

says()
{
	dmesg_has "one: /dev/loop1 has a volatile write cache, and may have lost what it acknowledged"
	dmesg_has "many: /dev/loop4 is not what it was: it has another size"
	dmesg_has "one: the server does not know the session any more"
	dmesg_has "many: the server does not know the session any more"
}

client_role()
{
	client_ready
	must "devices map" map_all
	defer umount_all
	must "file systems are made" file_systems
	must "heartbeats are close, and requests wait for long" listen one many
	trouble "power cut" 1 reboot_without_disks booted
	trouble "reload" 2 client_reload reload
	trouble "forgotten" 3 forgotten 1
	check "a file system is clean" clean 1
	must "its disk gets a cache" cache
	forgotten 2
	check "a cache that was flushed is no reason for an error" flushed_is_safe
	LOADED="2 4"
	trouble "reload with mainline's" 5 client_reload mainline
	# Mainline's server does not always survive that.
	[ -z "${RTRS_C_FORGETS:-}" ] || trouble "forgotten by mainline's" 6 forgotten 3
	check "the other file system is clean" clean 2
	# The write is acknowledged, but not flushed.
	check "something is in the cache" usable "$(dev 1)"
	check "the server loses power again" vm_control kill server
	check "the client knows that, too" wait_for 60 gone
	for n in 1 2 4; do
		fails "$n" &
	done
	sleep 1
	check "it boots with other disks" vm_control start server
	get booted.again 180 >"$TMP/value"
	check "what cannot be as it was fails promptly" failed_promptly
	check "the log says why" says
	barrier failed
	check "the disk with the cache is there again" wait_for 20 usable "$(dev 1)"
	check "its next flush fails, and no other one" one_flush_fails
	check "a disk of the same name and another size is taken over" wait_for 20 usable "$(dev 4)"
	check "the server offers smaller chunks" client_reload narrow
	check "a request that is too long for them fails, and the log says why" too_long
	check "the server offers another queue depth" client_reload depth
	rm "$TMP/dd.4.rc"
	fails 4 &
	check "nothing waits for that" gave_up
	check "the devices unmap" unmap_all_rnbd
	check "the client modules unload" unload_modules
	barrier unmapped
}

pair_main
