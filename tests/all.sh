#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What "make test" runs: set up, build, check, run all tests, sum up. The last line is "N passed, N
# failed".
#
# Usage: tests/all.sh		all tests on the newest kernel; some of them on the other
#				supported series, and the core of some on the debug kernel
#        tests/all.sh --debug	all tests on the debug kernel
#        tests/all.sh --quick	what tells most in a few minutes
#        tests/all.sh --set-up	fetch and build what all of that needs, and stop
#
# With RTRS_FLAVOUR or ARCH, it runs the tests that are meant for that kernel.

set -euo pipefail
# shellcheck source=env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/env/lib.sh"

# The tests for kernels other than the first one.
SERIES_TESTS=(smoke interop io-matrix reconnect)
CORE_TESTS=(smoke errors path-storm attack kunit)
QUICK_TESTS=(smoke reconnect interop)
RT_TESTS=(smoke io-matrix steady-load reconnect)
ARM64_TESTS=(smoke io-matrix interop)

WHAT=${1:-}
export RTRS_RESULTS=${RTRS_RESULTS:-$RTRS_REPO/results/$(date +%Y%m%d-%H%M%S)-$$}
# Another run may use the cache at the same time.
export RTRS_LOGS=$RTRS_RESULTS/log
HOST=$RTRS_RESULTS/host
TIMES=()

# timed NAME CMD...: run CMD and record how long it took.
timed()
{
	local name=$1 t0 rc=0
	shift

	t0=$(date +%s)
	"$@" || rc=$?
	TIMES+=("$(printf '%5d s  %s' "$(($(date +%s) - t0))" "$name")")
	return "$rc"
}

# one_line FILE NAME CMD...: a check that counts as one case.
one_line()
{
	local file=$HOST/$1.ktap name=$2
	shift 2

	if "$@" >"$file.log" 2>&1; then
		printf 'ok 1 %s\n' "$name" >"$file"
		say "$name: ok"
	else
		printf 'not ok 1 %s\n' "$name" >"$file"
		say "$name: FAILED; end of $file.log:"
		tail -n 40 "$file.log" | sed 's/^/    | /' >&2
	fi
}

# platform [--debug]: what guests boot, with all of mainline's modules.
platform()
{
	local dir

	if [ "${1:-}" = --debug ]; then
		dir=$("$RTRS_ENV/debug-kernel.sh")
	else
		dir=$("$RTRS_ENV/kernel.sh" --guest)
	fi
	"$RTRS_ENV/c-peer.sh" "$dir" >/dev/null
	printf '%s\n' "$dir"
}

set_up()
{
	[ "$WHAT" != --debug ] || debug=--debug
	PLATFORM=$(platform ${debug:+--debug})
	"$RTRS_ENV/peer.sh" >/dev/null
	"$RTRS_ENV/vm.sh" >/dev/null
}

# modules PLATFORM: two cases. Files that are up to date are not compiled again, and print no
# warning; in a fresh checkout all are compiled.
modules()
{
	local name file log
	name=$(basename "$1")
	file=$HOST/build-$name.ktap
	log=$RTRS_LOGS/build-$name.log

	if "$RTRS_ENV/build.sh" --tests "$1" >/dev/null; then
		printf 'ok 1 the modules build for %s\n' "$name" >"$file"
		if grep -E '(^|: )warning: ' "$log"; then
			printf 'not ok 2 the modules build for %s without a warning\n' "$name" >>"$file"
		else
			printf 'ok 2 the modules build for %s without a warning\n' "$name" >>"$file"
		fi
	else
		printf 'not ok 1 the modules build for %s\n' "$name" >"$file"
		[ ! -f "$log" ] || cp "$log" "$file.log"
		return 1
	fi
}

style()
{
	one_line rustfmt "Rust code is formatted" "$RTRS_ENV/style.sh" rustfmtcheck
	one_line shellcheck "shell scripts pass shellcheck" "$RTRS_ENV/style.sh" shellcheck
	one_line checkpatch "C code passes checkpatch" "$RTRS_ENV/style.sh" checkpatch
	one_line htmldocs "documentation makes HTML without a warning" "$RTRS_ENV/htmldocs.sh"
}

# cargo_tests NAME DIR [OPTION...]: each test in the crate is a case. A crate that does not build
# prints no result, so the exit status counts too.
cargo_tests()
{
	local name=$1 dir=$2 log=$HOST/$1.log
	shift 2

	if ! step "cargo-$name" "host tests: $name" \
		"$RTRS_ENV/enter.sh" env RUSTFLAGS="${FLAGS:-}" cargo test --workspace --locked --no-fail-fast --manifest-path "$dir/Cargo.toml" "$@"; then
		grep -q '^test result: FAILED' "$RTRS_LOGS/cargo-$name.log" ||
			printf 'test %s ... FAILED\ntest result: FAILED. 0 passed; 1 failed;\n' "$name" \
				>>"$RTRS_LOGS/cargo-$name.log"
	fi
	cp "$RTRS_LOGS/cargo-$name.log" "$log"
}

logic_tests() { cargo_tests logic "$RTRS_REPO/tests/host"; }

# ktap NAME CMD...: a script that prints its own results.
ktap()
{
	local name=$1
	shift

	"$@" >"$HOST/$name.ktap" 2>"$HOST/$name.ktap.log" || printf 'not ok 99 %s was not run to its end\n' "$name" >>"$HOST/$name.ktap"
	! grep '^not ok' "$HOST/$name.ktap" || say "$name: FAILED; see $HOST/$name.ktap"
}

# Tests of the installation. The packages themselves only on request: they take as long as a build,
# and need the network.
packages()
{
	local build tree
	build=$("$RTRS_ENV/build.sh" --where "$PLATFORM")
	tree=$(readlink -f "$PLATFORM/tree")

	ktap settings "$RTRS_REPO/tests/packages/settings.sh"
	ktap map "$RTRS_REPO/tests/packages/map.sh"
	ktap dkms "$RTRS_REPO/tests/packages/dkms.sh"
	ktap users "$RTRS_ENV/enter.sh" "$build/tests/packages/users.sh" "$tree"
	ktap sign "$RTRS_ENV/enter.sh" "$build/tests/packages/sign.sh" "$tree"
	[ "${RTRS_LONG:-0}" = 1 ] || return 0
	ktap secureboot "$RTRS_REPO/tests/packages/secureboot.sh" "$PLATFORM"
	one_line deb "the packages build, and lintian finds no error" "$RTRS_ENV/deb.sh" "$RTRS_RESULTS/debs"
	ktap packages "$RTRS_REPO/tests/packages/packages.sh" "$RTRS_RESULTS/debs"
	ktap boot "$RTRS_REPO/tests/packages/boot.sh" "$RTRS_RESULTS/debs"
}

host_tests()
{
	# Tests of the tests' own tools: a pass proves nothing about the modules, but a failure
	# counts.
	cargo_tests setup-runner "$RTRS_REPO/tests/vm"
	# The directory that bench.sh itself builds in.
	cargo_tests setup-bench "$RTRS_REPO/tests/bench" --target-dir "$("$RTRS_REPO/tests/bench/bench.sh" where)"
	say "the set-up and a stub of an archive ..."
	ktap archive "$RTRS_ENV/enter.sh" "$RTRS_REPO/tests/env/archive-test.sh"
	logic_tests
	# Loom replaces the atomics in the whole build, so it has a build of its own.
	FLAGS="--cfg loom" cargo_tests loom "$RTRS_REPO/tests/host" --test 'loom_*' \
		--target-dir "$RTRS_REPO/tests/host/target/loom"
	say "misuse that must not compile ..."
	"$RTRS_ENV/enter.sh" "$RTRS_REPO/tests/misuse/run.sh" "$("$RTRS_ENV/build.sh" --tests "$PLATFORM")" \
		>"$HOST/misuse.ktap" || printf 'not ok 1 misuse was tried\n' >"$HOST/misuse.ktap"
	! grep '^not ok' "$HOST/misuse.ktap" || say "misuse: FAILED; see $HOST/misuse.ktap"
	one_line rustdoc "rustdoc has nothing to warn of" "$RTRS_ENV/enter.sh" \
		"$RTRS_ENV/rustdoc.sh" "$("$RTRS_ENV/build.sh" --tests "$PLATFORM")"
	say "installing, signing and building out of tree ..."
	packages
	# The directory where peer.sh has built it already.
	cargo_tests setup-peer "$RTRS_REPO/tests/peer" \
		--target-dir "$(dirname "$(dirname "$("$RTRS_ENV/peer.sh")")")"
	one_line valgrind "host tests are clean under valgrind" \
		"$RTRS_ENV/enter.sh" "$RTRS_REPO/tests/host/valgrind.sh"
}

# jobs PLATFORM: tests that wait leave time for others, so two run at a time. On the debug kernel
# two at a time take twice as long. Three were seen to delay each other until soft RoCE times out.
jobs()
{
	[ ! -f "$1/debug" ] && [ "$(nproc)" -ge 2 ] && echo 2 || echo 1
}

# vm_tests PLATFORM [NAME...]: run the tests with these names, or all. The results are in a
# directory named like the platform.
vm_tests()
{
	local platform=$1 name names
	name=$(basename "$1")
	shift

	# On a machine with other load a test is late now and then.
	export RTRS_RETRIES=${RTRS_RETRIES:-1}
	mapfile -t names < <("$RTRS_REPO/tests/run.sh" --list "$@" | awk '{ print $1 }')
	# Failures are in the results, which the report reads.
	RTRS_RESULTS=$RTRS_RESULTS/$name "$RTRS_REPO/tests/run.sh" --platform "$platform" --no-build \
		--no-summary --jobs "${RTRS_JOBS:-$(jobs "$platform")}" "$@" || true
	# A test that did not run has no result.
	one_line "setup-vm-$name" "each of ${#names[@]} VM tests has a result on $name" \
		have_results "$RTRS_RESULTS/$name" "${names[@]}"
}

# have_results DIR NAME...
have_results()
{
	local dir=$1 name rc=0
	shift

	[ "$#" -gt 0 ] || rc=1
	for name; do
		[ -f "$dir/$name/result.json" ] || {
			echo "$name has none"
			rc=1
		}
	done
	return "$rc"
}

# The other supported series, as far as the archive still has them.
other_series()
{
	local s p

	for s in "${RTRS_SUPPORTED[@]}"; do
		[ "$s" != "$(series_of "$(basename "$PLATFORM")")" ] || continue
		if ! p=$(RTRS_SERIES=$s platform); then
			say "kernel $s cannot be had: not tested"
			continue
		fi
		! RTRS_STALE=no timed "modules, $s" modules "$p" || timed "VM tests, $s" vm_tests "$p" "${SERIES_TESTS[@]}"
	done
}

# The kernel's own checkers, with the tests that run most of the code.
checkers()
{
	local p

	p=$(platform --debug) || {
		printf 'not ok 1 the debug kernel builds\n' >"$HOST/debug-kernel.ktap"
		return 0
	}
	RTRS_STALE=no timed "modules, debug" modules "$p" || return 0
	planted "$p"
	RTRS_CORE=1 timed "VM tests, debug" vm_tests "$p" "${CORE_TESTS[@]}"
}

# planted PLATFORM: a run with planted faults must fail for each of them. Its results are in a place
# that the report does not read.
planted()
{
	local dir=$RTRS_RESULTS/planted/run kind rc=0

	RTRS_RESULTS=$dir "$RTRS_REPO/tests/run.sh" --platform "$1" --no-build --no-summary planted-bugs || rc=$?
	one_line planted-red "a run with planted faults fails" [ "$rc" -ne 0 ]
	for kind in KASAN lockdep kmemleak; do
		one_line "planted-$kind" "a fault planted for $kind is reported" \
			grep -F "the kernel reports: $kind" "$dir/planted-bugs/result.json"
	done
}

# The cost of a request. The results are in a place that the report does not read.
costs()
{
	RTRS_BENCH_RESULTS=$HOST/bench one_line bench "requests cost no more instructions than the reference" \
		"$RTRS_REPO/tests/bench/bench.sh" quick
	grep -E '^rust .*reference' "$HOST/bench.ktap.log" || true
}

# tests_of PLATFORM: the tests meant for the platform; none means all.
tests_of()
{
	case $(basename "$1") in
	*-rt-amd64) printf '%s\n' "${RT_TESTS[@]}" ;;
	*-arm64) printf '%s\n' "${ARM64_TESTS[@]}" ;;
	esac
}

# Fetch all that needs the network, so that tests run without it afterwards.
fetch_all()
{
	local s

	set_up
	for s in "${RTRS_SUPPORTED[@]}"; do
		RTRS_SERIES=$s platform >/dev/null || say "kernel $s cannot be had"
	done
	platform --debug >/dev/null
	"$RTRS_ENV/htmldocs.sh" --tools
	# shellcheck disable=SC2016 # for the inner shell
	"$RTRS_ENV/enter.sh" sh -c 'for d; do cargo fetch --locked --manifest-path "$d/Cargo.toml" || exit; done' sh \
		"$RTRS_REPO"/tests/{bench,host,peer,vm}
}

everything()
{
	local names

	timed "set-up" set_up
	mapfile -t names < <(tests_of "$PLATFORM")
	if ! timed "modules" modules "$PLATFORM"; then
		say "the modules do not build: no VM tests"
		return 0
	fi
	if [[ $PLATFORM == *-cloud-amd64 ]]; then
		# Without soft RoCE no other test is possible.
		"$RTRS_ENV/loads.sh" "$PLATFORM" | tee "$HOST/loads.ktap"
		return 0
	fi
	if [ "${#names[@]}" -gt 0 ]; then
		timed "VM tests" vm_tests "$PLATFORM" "${names[@]}"
		return 0
	fi
	case $WHAT in
	--quick)
		timed "host tests" logic_tests
		timed "VM tests" vm_tests "$PLATFORM" "${QUICK_TESTS[@]}"
		;;
	--debug)
		planted "$PLATFORM"
		mapfile -t names < <("$RTRS_REPO/tests/run.sh" --list | awk '{ print $1 }')
		# Debian's kernels have no KUnit, so it is not among those.
		timed "VM tests" vm_tests "$PLATFORM" "${names[@]}" kunit
		;;
	*)
		timed "style" style
		timed "host tests" host_tests
		timed "VM tests" vm_tests "$PLATFORM"
		timed "instructions per request" costs
		other_series
		checkers
		;;
	esac
}

main()
{
	local debug='' vm rc=0 results=()

	need_root
	in_use
	if [ "$WHAT" = --set-up ]; then
		fetch_all
		return
	fi
	mkdir -p "$HOST"
	ln -sfn "$(basename "$RTRS_RESULTS")" "$(dirname "$RTRS_RESULTS")/latest"
	everything

	vm=$("$RTRS_ENV/vm.sh")
	mapfile -t results < <(find "$HOST" -maxdepth 1 -name '*.ktap' -o -name '*.log' ! -name '*.ktap.log' | sort
		find "$RTRS_RESULTS" -mindepth 3 -maxdepth 3 -name result.json | sort)
	printf '\nresults: %s\n' "$RTRS_RESULTS"
	printf '%s\n' "${TIMES[@]}" "$(printf '%5d s  all' "$(($(date +%s) - RTRS_T0))")"
	"$RTRS_ENV/enter.sh" "$vm" report "${results[@]}" || rc=1
	"$RTRS_ENV/prune.sh" --results || true
	exit "$rc"
}

# The shell reads a script while it runs. With main at the end, edits meanwhile do no harm.
main "$@"
