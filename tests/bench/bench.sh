#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The cost of block IO, in instructions that emulated guests count.
#
# Usage: bench.sh quick	4k requests of our modules, against tests/bench/reference
#        bench.sh profile [ROW...]	4k requests, or other rows (see guest.sh), by function and kind
#					of instruction, ours and mainline's side by side
#        bench.sh lines [ROW...]	4k requests, or other rows: cache lines of ours that more than one
#					vCPU writes to, and what does; with 4 CPUs by default
#        bench.sh mixed [ROW...]	our client with mainline's server, and so on, in two guests: is a row
#					that is half ours worse than mainline's alone?
#        bench.sh clock [ROW...]	by the clock only: all rows, or some (BLOCKSIZE:read|write:DEPTH),
#					of all stacks in turns
#        bench.sh all			all rows, all stacks; results/bench/rows.json
#        bench.sh page [JSON]		plots and tables of Documentation/performance.rst
#        bench.sh compare JSON JSON	are two runs of "all" close enough?
#        bench.sh where			print where cargo builds it
#
# RTRS_BENCH_CPUS="1 2 4"  RTRS_BENCH_ROUNDS=3  RTRS_BENCH_IOS=8000  RTRS_BENCH_SECONDS=3: for less,
# or more

set -euo pipefail
# shellcheck source=../env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../env/lib.sh"

BENCH=$RTRS_REPO/tests/bench
# Several clones may share a cache.
TARGET=$RTRS_CACHE/build/bench-$(printf '%s' "$RTRS_REPO" | sha256sum | cut -c 1-8)
BIN=$TARGET/debug
RESULTS=${RTRS_BENCH_RESULTS:-$RTRS_REPO/results/bench}

set_up_tool()
{
	need_root
	"$RTRS_ENV/rootfs.sh"
	mkdir -p "$RTRS_LOGS"
	step bench "building the benchmark" "$RTRS_ENV/enter.sh" cargo build --workspace \
		--locked --manifest-path "$BENCH/Cargo.toml" --target-dir "$TARGET" ||
		die "the benchmark does not build; see $RTRS_LOGS/bench.log"
}

set_up()
{
	need_root
	in_use
	need_memory 6000 "a benchmark"
	PLATFORM=$("$RTRS_ENV/kernel.sh" --guest)
	"$RTRS_ENV/c-peer.sh" "$PLATFORM" >/dev/null
	VM=$("$RTRS_ENV/vm.sh")
	set_up_tool
	export RTRS_RESULTS=$RESULTS
	rm -rf "$RESULTS"
	mkdir -p "$RESULTS"
	export RTRS_MODULES=$RESULTS/modules
	keep_modules "$(RTRS_STALE=no "$RTRS_ENV/build.sh" --tests "$PLATFORM")" "$RTRS_MODULES"
}

# guest NAME CPUS ARGS... -- SCRIPT...: ARGS are for rtrs-vm; SCRIPT is one of those beside this
# one, with its arguments.
guest()
{
	local name=$1 cpus=$2 args=()
	shift 2

	while [ "$1" != -- ]; do
		args+=("$1")
		shift
	done
	shift
	mkdir -p "$RESULTS/$name"
	# Memory is cleared when it is allocated, as Debian's kernel does it unless told otherwise. Tests
	# do without.
	step "bench-$name" "guest $name: $*" "$RTRS_ENV/enter.sh" "$VM" run --platform "$PLATFORM" --translate \
		--name "$name" --smp "$cpus" --timeout 600 --append init_on_alloc=1 "${args[@]}" -- \
		"RTRS_BENCH_BIN=$BIN RTRS_BENCH_IOS=$IOS RTRS_BENCH_SECONDS=${RTRS_BENCH_SECONDS:-} $BENCH/$*" ||
		die "guest $name failed; see $RTRS_LOGS/bench-$name.log"
}

# count STACK CPUS ROW...: one vCPU does the same whatever else the host does, as the guest's clock
# counts, too. More would have to wait for each other for that.
count()
{
	local stack=$1 cpus=$2 name=count-$1-$2 clock=()
	shift 2

	[ "$cpus" -ne 1 ] || clock=(--count-time)
	guest "$name" "$cpus" "${clock[@]}" --qemu-arg -plugin \
		--qemu-arg "$BIN/librtrs_tcg.so,out=$RESULTS/$name/counts${WRITES:+,writes=$RESULTS/$name/writes}" \
		-- guest.sh count "$stack" "$@"
	DIRS+=("$RESULTS/$name")
}

# mixed ROW...: each client with each server, in two guests.
mixed()
{
	local client server name

	for client in c rust; do
		for server in c rust; do
			name=mixed-$client-$server
			guest "$name" 1 --pair --links 1 --qemu-arg -plugin \
				--qemu-arg "$BIN/librtrs_tcg.so,out=$RESULTS/$name/{guest}/counts" \
				-- mixed.sh "$client" "$server" "$@"
			MIXED+=("$RESULTS/$name")
			say "packets that came again, at the client and at the server:" \
				"$(cat "$RESULTS/$name/client/again" "$RESULTS/$name/server/again" | xargs)"
		done
	done
}

# by_the_clock ROW...: each guest has all stacks in turn, and then in the opposite order, so that other
# load on the host affects all of them.
by_the_clock()
{
	local round

	for ((round = 1; round <= ${RTRS_BENCH_ROUNDS:-3}; round++)); do
		guest "clock-$round" 2 -- guest.sh turns 2 "$@"
		TIMES+=("$RESULTS/clock-$round")
	done
}

bench() { "$RTRS_ENV/enter.sh" "$BIN/rtrs-bench" "$@"; }

main()
{
	local rows=() stack cpus
	DIRS=()
	MIXED=()
	TIMES=()
	IOS=${RTRS_BENCH_IOS:-8000}

	case ${1:-} in
	quick)
		set_up
		count rust 1 4k:{read,write}:Y 4k:{read,write}:N 64k:read:{Y,N}
		bench count --json "$RESULTS/rows.json" "${DIRS[@]}"
		bench gate --reference "$BENCH/reference" "${DIRS[@]}"
		;;
	profile)
		set_up
		rows=("${@:2}")
		[ "$#" -gt 1 ] || rows=(4k:{read,write}:Y)
		for stack in rust c; do
			count "$stack" "${RTRS_BENCH_CPUS:-1}" "${rows[@]}"
		done
		bench profile "${DIRS[@]}"
		;;
	lines)
		set_up
		rows=("${@:2}")
		[ "$#" -gt 1 ] || rows=(4k:{read,write}:Y)
		# One after the other: mainline may lose its session in a slow guest.
		for stack in rust c; do
			DIRS=()
			WRITES=yes count "$stack" "${RTRS_BENCH_CPUS:-4}" "${rows[@]}"
			bench lines --modules "$RTRS_MODULES" "${DIRS[@]}"
		done
		;;
	mixed)
		set_up
		rows=("${@:2}")
		[ "$#" -gt 1 ] || rows=({4k,64k}:{read,write}:{Y,N})
		mixed "${rows[@]}"
		bench mixed "${MIXED[@]}"
		;;
	clock)
		set_up
		rows=("${@:2}")
		[ "$#" -gt 1 ] || rows=({4k,64k}:{read,write}:{16,1})
		by_the_clock "${rows[@]}"
		bench times "${TIMES[@]}"
		;;
	all)
		set_up
		for cpus in ${RTRS_BENCH_CPUS:-1 2 4}; do
			# How often tasks take turns, and with it the whole kernel, differs by some percent from
			# window to window. Long ones even that out.
			IOS=${RTRS_BENCH_IOS:-$((cpus == 1 ? 32000 : 8000))}
			for stack in rust c; do
				mapfile -t rows < <(printf '%s\n' {4k,64k}:{read,write}:Y {4k,64k}:{read,write}:N)
				count "$stack" "$cpus" "${rows[@]}"
			done
			count nvme "$cpus" {4k,64k}:{read,write}:-
		done
		IOS=${RTRS_BENCH_IOS:-8000}
		mixed {4k,64k}:{read,write}:{Y,N}
		by_the_clock {4k,64k}:{read,write}:{16,1}
		bench count --json "$RESULTS/rows.json" --kernel "$(basename "$PLATFORM")" \
			--commit "$(git -c safe.directory='*' -C "$RTRS_REPO" describe --always --dirty)" \
			"${TIMES[@]/#/--time=}" "${MIXED[@]/#/--mixed=}" "${DIRS[@]}"
		;;
	page)
		set_up_tool
		bench page --json "${2:-$RESULTS/rows.json}" --out "$RTRS_REPO/Documentation/performance"
		;;
	compare)
		set_up_tool
		bench compare "$2" "$3"
		;;
	where) printf '%s\n' "$TARGET" ;;
	*)
		sed -n '5,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
		exit 2
		;;
	esac
}

# The shell reads a script while it runs. With main at the end, edits meanwhile do no harm.
main "$@"
