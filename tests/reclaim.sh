#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: dirty pages of ext4 and swap are on the server, memory is short, and the path, or the server, goes and comes: nothing hangs, and all data is there
# topology: pair
# timeout: 360
# seconds: 130
# mem: 640M

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/load.sh"
require perl rdma mkfs.ext4 e2fsck mkswap swapon sha256sum

# Processors that reclaim memory answer late: a packet without an acknowledgment in half a second is
# not lost.
export RTRS_ACK_TIMEOUT=20

SESS=$CLT/short
MNT=$TMP/mnt
GROUPS_DIR=/sys/fs/cgroup
# Memory limits in MiB above which the writer of files, and the one that swaps, wait until pages are
# written back; sizes in MiB that they use. A hard limit would kill them while there is no path.
FILES_HIGH=24 FILES=12 FILE_SIZE=4
HOG_HIGH=20 HOG_SIZE=36
# MiB that the guest has left when all of it is short of memory.
LEFT=96

map() { map_rnbd short "$1" "ip:$(pair_addr 0)@ip:$(pair_addr 0 server)"; }
map_both() { map /dev/nullb0 >"$TMP/fs" && map /dev/nullb1 >"$TMP/swap"; }

# group NAME MIB
group()
{
	mkdir "$GROUPS_DIR/$1"
	echo "$2M" >"$GROUPS_DIR/$1/memory.high"
}

make_groups()
{
	# With both controllers a task that dirties pages of a file waits for pages of its own
	# group.
	echo +memory +io >"$GROUPS_DIR/cgroup.subtree_control"
	group files "$FILES_HIGH"
	group hog "$HOG_HIGH"
}

drop_groups()
{
	local g

	for g in files hog; do
		[ ! -e "$GROUPS_DIR/$g/cgroup.kill" ] || echo 1 >"$GROUPS_DIR/$g/cgroup.kill"
		wait_for 20 not grep -q . "$GROUPS_DIR/$g/cgroup.procs"
		rmdir "$GROUPS_DIR/$g"
	done
}

make_disks()
{
	mkfs.ext4 -q -F "/dev/$(cat "$TMP/fs")"
	mkdir "$MNT"
	mount "/dev/$(cat "$TMP/fs")" "$MNT"
	mkswap -q "/dev/$(cat "$TMP/swap")"
	swapon "/dev/$(cat "$TMP/swap")"
}

drop_disks()
{
	swapoff -a
	! mountpoint -q "$MNT" || umount "$MNT"
}

# set_count FILE N: a reader sees the old or the new number.
set_count() { echo "$2" >"$1.new" && mv "$1.new" "$1"; }

# writer: in its group, write file after file, over and over. $TMP/sums has the checksum that each
# must have.
writer()
{
	local i=0 f

	echo "$BASHPID" >"$GROUPS_DIR/files/cgroup.procs"
	while [ ! -e "$TMP/stop" ]; do
		f=$((i % FILES))
		(
			set -o pipefail
			head -c "${FILE_SIZE}M" /dev/urandom | tee "$MNT/$f" | sha256sum | sed "s/-/$f/" >"$TMP/sums/$f"
		) || return
		i=$((i + 1))
		set_count "$TMP/written" "$i"
	done
}

# hog: in its group, go over more memory than the group may keep, check the content, and change it,
# so that it must be swapped again.
hog()
{
	echo "$BASHPID" >"$GROUPS_DIR/hog/cgroup.procs"
	exec perl -e '
		my ($mib, $dir) = @ARGV;
		my $len = 1 << 16;
		my $pieces = 16 * $mib;
		my $all = "\0" x ($pieces * $len);
		my $done = 0;
		my $of = sub { pack("NN", @_) x ($len / 8) };
		substr($all, $_ * $len, $len, $of->($_, 0)) for 0 .. $pieces - 1;
		for (my $n = 0; !-e "$dir/stop"; $n++) {
			for my $i (0 .. $pieces - 1) {
				die "piece $i is not what it was\n" if substr($all, $i * $len, $len) ne $of->($i, $n);
				substr($all, $i * $len, $len, $of->($i, $n + 1));
				next if ++$done % 16;
				open(my $f, ">", "$dir/checked.new") or die;
				print $f "$done\n" or die;
				close $f or die;
				rename "$dir/checked.new", "$dir/checked" or die;
			}
		}
		print "done\n"' "$HOG_SIZE" "$TMP"
}

start()
{
	mkdir "$TMP/sums"
	set_count "$TMP/written" 0
	set_count "$TMP/checked" 0
	writer >"$TMP/writer.log" 2>&1 &
	WRITER=$!
	hog >"$TMP/hog.log" 2>&1 &
	HOG=$!
}

swapped_kib() { awk 'NR > 1 { n += $4 } END { print n + 0 }' /proc/swaps; }
vmstat_of() { awk -v name="$1" '$1 == name { print $2 }' /proc/vmstat; }
group_stat() { awk -v name="$2" '$1 == name { print $2 }' "$GROUPS_DIR/$1/memory.$3"; }

# swaps: pages are swapped in and out.
swaps()
{
	local out in
	out=$(vmstat_of pswpout)
	in=$(vmstat_of pswpin)

	wait_for 60 eval "[ \$(vmstat_of pswpout) -gt $((out + 256)) ] && [ \$(vmstat_of pswpin) -gt $((in + 256)) ]"
}

# progress: both tasks go on.
progress()
{
	local w c
	w=$(cat "$TMP/written")
	c=$(cat "$TMP/checked")

	wait_for 60 eval "[ \$(cat $TMP/written) -gt $((w + 1)) ] && [ \$(cat $TMP/checked) -gt $((c + 16)) ]"
}

swapped() { [ "$(swapped_kib)" -gt $(((HOG_SIZE - HOG_HIGH) * 512)) ]; }
all_written() { [ "$(cat "$TMP/written")" -ge "$FILES" ]; }

under_pressure()
{
	wait_for 60 swapped
	swaps
	wait_for 60 all_written
	[ "$(group_stat files high events)" -gt 0 ]
	[ "$(group_stat hog high events)" -gt 0 ]
	progress
	pressure
}

pressure()
{
	echo "$(swapped_kib) KiB are swapped, $(($(group_stat files file_dirty stat) / 1024)) KiB of files dirty, $(($(group_stat files file_writeback stat) / 1024)) on the way, $(awk '/^MemFree:/ { print $2 }' /proc/meminfo) KiB free"
}

connected() { has_words "$SESS/state" connected; }

reconnects()
{
	local i

	for ((i = 0; i < $1; i++)); do
		write "$(echo "$SESS"/paths/*/reconnect)" 1
		wait_for 20 connected
		swaps
	done
	progress
	pressure
}

# waits_to_be_written: pages of files, or the journal while the writer truncates one: then its group
# has nothing that is dirty.
waits_to_be_written()
{
	local writes

	read -r _ writes <"/sys/block/$(cat "$TMP/fs")/inflight"
	[ "$(group_stat files file_dirty stat)" -gt 0 ] ||
		[ "$(group_stat files file_writeback stat)" -gt 0 ] || [ "$writes" -gt 0 ]
}

# cable: while it is out neither task's data are written or read.
cable()
{
	vm_control link client 0 down
	wait_for 20 not connected
	sleep 6
	pressure
	wait_for 20 waits_to_be_written
	vm_control link client 0 up
	wait_for 30 connected
	progress
}

# restarts: the server forgets its clients, so RNBD's devices are opened again before IO goes on.
restarts()
{
	local opened
	opened=$(opened_again)

	put restart now
	wait_for 60 not connected
	wait_for 20 waits_to_be_written
	put restart.seen yes
	get restart.done 120 >/dev/null
	wait_for 60 connected
	progress
	pressure
	[ "$(opened_again)" -gt "$opened" ]
}
opened_again() { dmesg | grep -c 'rtrs_client: short: .*opened again' || true; }

# Memory can only be freed by writing pages, the client's memory as well. What is available goes up
# and down with writeback: it has to be short once.
fill_memory()
{
	local i

	mkdir "$TMP/full"
	mount -t ramfs none "$TMP/full"
	for ((i = 0; i < 100; i++)); do
		if [ "$(mem_available)" -le $((LEFT * 1024)) ]; then
			pressure
			return
		fi
		head -c 8M /dev/zero >"$TMP/full/$i"
	done
	pressure
	return 1
}
free_memory() { ! mountpoint -q "$TMP/full" || umount "$TMP/full"; }

done_well()
{
	: >"$TMP/stop"
	wait "$WRITER" || { cat "$TMP/writer.log"; return 1; }
	wait "$HOG" || { cat "$TMP/hog.log"; return 1; }
	grep -q '^done' "$TMP/hog.log" || return
	echo "$(cat "$TMP/written") files, $(($(cat "$TMP/checked") / 16)) MiB of memory, $(vmstat_of pswpout) pages swapped"
}

none_killed()
{
	local g

	for g in files hog; do
		[ "$(group_stat "$g" oom_kill events)" = 0 ]
	done
	dmesg_since_start >"$TMP/dmesg"
	not grep -iE 'out of memory|oom-kill' "$TMP/dmesg"
}

# Read from the server's disk, not from the cache.
all_there()
{
	umount "$MNT"
	e2fsck -f -n "/dev/$(cat "$TMP/fs")"
	mount "/dev/$(cat "$TMP/fs")" "$MNT"
	cat "$TMP/sums"/* >"$TMP/all"
	[ "$(wc -l <"$TMP/all")" = "$FILES" ]
	(cd "$MNT" && sha256sum --quiet -c "$TMP/all")
	umount "$MNT"
}

# shown NAME CMD...: a case whose output is shown.
shown()
{
	check "$@"
	ktap_log "$TMP/case.log" 2
}

server_role()
{
	must "a disk for swap" null_blk_up nullb1 48
	defer null_blk_down nullb1
	# A new life of the path beside the old one, however little memory the guest has.
	SERVE_OPTIONS=max_memory_per_source=200 serve_disk 96 330 reload_when restart sleep 2
}

client_role()
{
	client_ready
	must "memory can be short" make_groups
	defer drop_groups
	must "two devices map" map_both
	must "one has a file system, the other one is for swap" make_disks
	defer drop_disks
	start
	shown "there is more than fits into memory" under_pressure
	shown "the path is connected again, five times" reconnects 5
	shown "its cable is pulled for some seconds" cable
	defer free_memory
	shown "all of the guest is short of memory" fill_memory
	shown "the path is connected again, three times more" reconnects 3
	shown "its cable is pulled again" cable
	shown "the server is restarted" restarts
	check "there is memory again" free_memory
	# Not within a case: the subshell of a case cannot wait for these children.
	done_well >"$TMP/done" 2>&1
	echo $? >"$TMP/done.rc"
	shown "both are through, and memory is what it was" eval "cat $TMP/done; [ \$(cat $TMP/done.rc) = 0 ]"
	check "no task was killed for want of memory" none_killed
	check "files are what was written" all_there
	check "no IO failed" no_io_error
	check "swap is given back" swapoff -a
	check "the devices unmap" eval "unmap_rnbd $(cat "$TMP/fs") && unmap_rnbd $(cat "$TMP/swap")"
	check "the client modules unload" unload_modules
	barrier unmapped
}

mountpoint -q "$GROUPS_DIR" || mount -t cgroup2 none "$GROUPS_DIR"
[ -e /proc/swaps ] || skip_all "the kernel has no swap"
grep -qw memory "$GROUPS_DIR/cgroup.controllers" || skip_all "the kernel has no memory cgroups"
pair_main
