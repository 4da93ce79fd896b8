# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by guest.sh and mixed.sh: IO by fio, and the windows in which the plugin counts. The script
# that reads it defines "requested BLOCKSIZE read|write REQUESTS", which makes the requests.

# All guests of a run see it.
OUT=$(dirname "$RTRS_SYNC")
MARK=$RTRS_BENCH_BIN/rtrs-mark

# mark open|close: MARK_SERVER, ADDRESS:PORT, is where the other guest marks as well.
mark() { "$MARK" "$1" ${MARK_SERVER:+"$MARK_SERVER"}; }

# requests BLOCKSIZE short|long: numbers of requests; the difference of the two runs cancels the
# set-up.
requests()
{
	case $1:$2 in
	4k:short) echo 1000 ;;
	session:short) echo 2 ;;
	session:long) echo 10 ;;
	4k:long) echo $((1000 + RTRS_BENCH_IOS)) ;;
	*:short) echo 250 ;;
	*:long) echo $((250 + RTRS_BENCH_IOS / 4)) ;;
	esac
}

# What the data of the requests are in. A write costs the more, the more pieces its pages are in: in
# huge pages all data of a request are in one piece, in each run.
huge_pages()
{
	local n=$((2 * $(nproc)))

	echo "$n" >/proc/sys/vm/nr_hugepages
	[ "$(cat /proc/sys/vm/nr_hugepages)" -eq "$n" ]
}

# io BLOCKSIZE read|write REQUESTS [ARGS...]: the requests are shared among one job per CPU. A job
# has 16 of them under way unless ARGS say otherwise.
io()
{
	local bs=$1 rw=$2 n=$3 cpus
	shift 3
	cpus=$(nproc)

	fio --name=bench --filename="/dev/$(cat "$TMP/dev")" --direct=1 --ioengine=libaio --iodepth=16 \
		--mem=mmaphuge --bs="$bs" --rw="rand$rw" --size=512M --io_size=1T --norandommap --randrepeat=1 \
		--thread --numjobs="$cpus" --cpus_allowed="0-$((cpus - 1))" --cpus_allowed_policy=split \
		--number_ios=$((n / cpus)) --group_reporting "$@" >"$TMP/fio" 2>&1 || {
		cat "$TMP/fio"
		return 1
	}
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
		mark open
		requested "$bs" "$rw" "$n"
		mark close
		echo "$stack $bs $rw $ai $(nproc) $n $ai" >>"$OUT/rows"
	done
}

# addresses DIR SUFFIX: where code is now: functions; and sections of the modules, for lines of
# source.
addresses()
{
	cat /proc/kallsyms >"$1/symbols-$2"
	sections >"$1/sections-$2"
}

sections()
{
	local file

	for file in /sys/module/rtrs_{core,client,server}/sections/.text*; do
		[ -e "$file" ] || continue
		printf '%s %s %s\n' "$(basename "${file%/sections/*}")" "${file##*/}" "$(<"$file")"
	done
}
