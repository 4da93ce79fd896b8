# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers for tests that act on a session under load: verified IO in the background, the counters of
# a path, memory that must not grow. Source it after common.sh.

CLT=/sys/class/rtrs-client
# shellcheck disable=SC2034 # used by others
SRV=/sys/class/rtrs-server

# load_start DEVICE [FIO OPTION...]: start a load in the background, until load_stop. Half of the
# requests write, half read back what was written; each is verified.
load_start()
{
	local before
	before=$(ios "$1")

	load_launch "$@"
	# Before its first request fio has no signal handler, and the signal of load_stop would be
	# lost.
	wait_for 30 load_began "$1" "$before"
}

# load_launch DEVICE [FIO OPTION...]: as load_start, but does not wait for the first request. The
# caller waits until it is on its way.
load_launch()
{
	local dev=$1
	shift

	rm -f "$TMP/fio.rc" "$TMP/fio.pid"
	(
		fio --name=load --filename="/dev/$dev" --direct=1 --ioengine=libaio --rw=randwrite \
			--bs=4k --iodepth=16 --size=48M --time_based --runtime=3600 \
			--verify=crc32c --verify_backlog=64 --verify_fatal=1 --group_reporting \
			--output-format=normal,terse --terse-version=3 "$@" >"$TMP/fio" 2>&1 &
		echo "$!" >"$TMP/fio.pid"
		wait "$!"
		echo "$?" >"$TMP/fio.rc"
	) &
	LOAD_PID=$!
}

# load_began DEVICE BEFORE: the device has completed more than BEFORE requests, or the load has
# ended.
load_began() { [ -e "$TMP/fio.rc" ] || [ "$(ios "$1")" -gt "$2" ]; }

# load_stop: stop the load and wait for its end. Not from within a check.
load_stop()
{
	wait_for 5 test -s "$TMP/fio.pid"
	kill -INT "$(cat "$TMP/fio.pid")" 2>/dev/null
	wait "$LOAD_PID"
}

# load_runs: no error has ended the load.
load_runs()
{
	[ ! -e "$TMP/fio.rc" ] || {
		cat "$TMP/fio"
		echo "IO failed, or did not verify"
		return 1
	}
}

# load_is_fine: no IO failed, and all data read were right. Call it after load_stop, whose signal
# gives the status 128.
load_is_fine()
{
	cat "$TMP/fio"
	[ "$(cat "$TMP/fio.rc")" = 128 ] || { echo "IO failed, or did not verify"; return 1; }
	[ "$(awk -F';' '/^3;/ { print $5 }' "$TMP/fio")" = 0 ] || { echo "IO failed"; return 1; }
}

# load_stall: the longest time that a request of the load took, in milliseconds.
load_stall()
{
	awk -F';' '/^3;/ { max = $15 > $56 ? $15 : $56; printf "%d\n", max / 1000 }' "$TMP/fio"
}

# load_rate: IO per second, reads and writes.
load_rate() { awk -F';' '/^3;/ { printf "%d\n", $8 + $49 }' "$TMP/fio"; }

# ios DEVICE: number of requests that the device has completed.
ios() { awk '{ print $1 + $5 + $12 + $16 }' "/sys/block/$1/stat"; }

# path_dir SESSION PATH
path_dir() { printf '%s/%s/paths/%s\n' "$CLT" "$1" "$2"; }

# path_count DIR N: the Nth number of stats/rdma: 1 reads, 3 writes, 5 in flight, 6 failed over.
path_count()
{
	local numbers
	read -r -a numbers <"$1/stats/rdma"
	echo "${numbers[$2 - 1]}"
}

# path_ios DIR: number of requests that went over the path.
path_ios()
{
	local numbers
	read -r -a numbers <"$1/stats/rdma"
	echo $((numbers[0] + numbers[2]))
}

# nothing_in_flight SESSION: no path of the session has a request in flight.
nothing_in_flight()
{
	local d

	for d in "$CLT/$1"/paths/*; do
		[ "$(path_count "$d" 5)" = 0 ] || {
			echo "$d: $(cat "$d/stats/rdma")"
			echo "requests are still in flight"
			return 1
		}
	done
}

# has_words FILE WORDS: the file begins with WORDS.
has_words()
{
	local text
	text=$(cat "$1")

	case $text in
	"$2"*) ;;
	*)
		echo "$1: $text, not $2"
		return 1
		;;
	esac
}

# timed_write FILE TEXT: one write, at the least possible cost. Appends its duration in milliseconds
# and the name of the file to $TMP/times.
timed_write()
{
	local t0=$EPOCHREALTIME t1 rc=0

	printf '%s' "$2" >"$1" || rc=$?
	t1=$EPOCHREALTIME
	printf '%d %s\n' "$(((${t1/./} - ${t0/./}) / 1000))" "${1##*/}" >>"$TMP/times"
	return "$rc"
}

# times: per file the number of writes, and their mean and longest time in ms.
times()
{
	awk '{ n[$2]++; sum[$2] += $1; if ($1 > max[$2]) max[$2] = $1 }
		END { for (f in n) printf "%s: %d times, %d ms on average, %d ms at most\n",
			f, n[f], sum[f] / n[f], max[f] }' "$TMP/times" | sort
}

# longest FILE: the longest of these times for FILE.
longest() { awk -v f="$1" '$2 == f && $1 > max { max = $1 } END { print max + 0 }' "$TMP/times"; }

# unload_at_once: unload all modules without waiting for anything.
unload_at_once()
{
	local t0

	# Dropping caches has dropped the rmmod program too: read it back before the clock starts.
	rmmod --version >/dev/null
	t0=$(ms_now)
	unload_modules
	t0=$(($(ms_now) - t0))
	echo "unloading took $t0 ms"
	[ "$t0" -lt $((5000 * RTRS_TIME_SCALE)) ] || late "that is too long"
}

# no_io_error: the kernel log has no IO error.
no_io_error()
{
	dmesg_since_start >"$TMP/dmesg"
	not grep -E 'I/O error|Buffer I/O' "$TMP/dmesg" || { echo "IO failed"; return 1; }
}

#
# Memory
#

# memory_settle: free what is only cached.
memory_settle()
{
	local f

	sync
	# Some objects are freed only after a grace period, or by work items.
	sleep 1
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	echo 3 >/proc/sys/vm/drop_caches
	# Free objects that a processor keeps count as used: some hundred of each cache.
	for f in /sys/kernel/slab/*/shrink; do
		[ ! -e "$f" ] || echo 1 >"$f"
	done
}

# memory_snapshot: record the state that memory_compare compares with.
memory_snapshot()
{
	memory_settle
	slab_objects >"$TMP/slab"
	mem_unused >"$TMP/mem"
	threads >"$TMP/threads"
}

# threads: number of threads. A workqueue keeps its threads for five minutes after heavy work. Each
# thread has one object of 16 and one of 32 bytes, and two each of 96 and 192.
threads() { awk '{ split($4, n, "/"); print n[2] }' /proc/loadavg; }

# mem_kept: KiB of free pages that processors keep for themselves: some 30 MiB after heavy work.
mem_kept()
{
	awk -v page="$(getconf PAGESIZE)" '$1 == "count:" { n += $2 } END { print n * page / 1024 }' \
		/proc/zoneinfo
}

# mem_available: KiB that can be used at once; mem_unused: with those that processors keep.
mem_available() { awk '/^MemAvailable:/ { print $2 }' /proc/meminfo; }
mem_unused() { echo $(($(mem_available) + $(mem_kept))); }

# The caches of files and tasks say nothing about the modules under test.
slab_objects()
{
	awk 'NR > 2 && $1 !~ /^(9p|dentry|inode_cache|shmem|proc_inode|ovl_|filp|vm_area|anon_vma|radix|maple|task_|signal|sighand|pid|files_|mm_struct|cred|fs_cache|names|file_lock|lsm|sock_inode|iommu|buffer_head|extent|bio|fsnotify|inotify|eventpoll|seq_file|pde_|uts_|kmem_cache|trace_|skbuff|debug_objects|percpu_ref|vmap_area|page->ptl|pool_|sigqueue|perf)/ {
		print $1, $2, $4 }' /proc/slabinfo | sort
}

# memory_compare N [KIB]: fails if a cache has grown by as many objects as N leaked things would
# add, or if KIB less memory is available. Tries three times: what is still being freed goes
# meanwhile, a leak stays.
memory_compare()
{
	local n=$1 kib=${2:-16384} i lost more wrong

	for i in 1 2 3; do
		[ "$i" -eq 1 ] || sleep 4
		memory_settle
		slab_objects >"$TMP/slab.now"
		lost=$(($(cat "$TMP/mem") - $(mem_unused)))
		more=$(($(threads) - $(cat "$TMP/threads")))
		echo "memory: $lost KiB less, $(mem_kept) KiB kept; $more more threads; caches that grew most beside these, in objects:"
		join "$TMP/slab" "$TMP/slab.now" | awk -v more="$more" '{
			print $4 - $2 - more * ($1 ~ /-(96|192)$/ ? 2 : $1 ~ /-(16|32)$/ ? 1 : 0), $1, $5 "B" }' |
			sort -rn | tee "$TMP/grown" | head -n 5
		wrong=
		[ "$lost" -lt "$kib" ] || wrong="memory is missing"
		# On the debug kernel freed objects stay in KASAN's quarantine; kmemleak finds leaks
		# there.
		[ "$RTRS_TIME_SCALE" -gt 1 ] || awk -v n="$n" '$1 >= n { bad = 1 } END { exit bad }' "$TMP/grown" ||
			wrong="objects are left"
		[ -n "$wrong" ] || return 0
	done
	echo "$wrong"
	return 1
}
