#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What "make test" does: set up, build, check, run everything, sum up. The
# last line is "N passed, N failed".
#
# Usage: tests/all.sh [--debug]

set -euo pipefail
# shellcheck source=env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/env/lib.sh"

KIND=()
[ "${1:-}" != --debug ] || KIND=(--debug)
export RTRS_RESULTS=${RTRS_RESULTS:-$RTRS_REPO/results/$(date +%Y%m%d-%H%M%S)-$$}
# Others may use the cache at the same time.
export RTRS_LOGS=$RTRS_RESULTS/log
HOST=$RTRS_RESULTS/host
TIMES=()

# timed NAME CMD...: remembers how long it took.
timed()
{
	local name=$1 t0 rc=0
	shift

	t0=$(date +%s)
	"$@" || rc=$?
	TIMES+=("$(printf '%5d s  %s' "$(($(date +%s) - t0))" "$name")")
	return "$rc"
}

# one_line FILE NAME CMD...: a check that is one case of its own.
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

set_up()
{
	"$RTRS_ENV/kernel.sh" >/dev/null
	"$RTRS_ENV/c-peer.sh" "${KIND[@]}" >/dev/null
	"$RTRS_ENV/peer.sh" >/dev/null
	"$RTRS_ENV/vm.sh" >/dev/null
}

build_modules() { W=1 CLIPPY=1 "$RTRS_ENV/build.sh" --tests "${KIND[@]}" >/dev/null; }

build_from_nothing()
{
	rm -rf "$("$RTRS_ENV/build.sh" --where "${KIND[@]}")"
	build_modules
}

# What an earlier run left in the cache is no reason for a failure of this one.
modules()
{
	local file=$HOST/build.ktap log=$RTRS_LOGS/build-stock.log

	[ "${#KIND[@]}" -eq 0 ] || log=$RTRS_LOGS/build-debug.log
	if build_modules || {
		say "once more, with nothing of an earlier build"
		build_from_nothing
	} || {
		say "once more, with a new kernel tree"
		"$RTRS_ENV/kernel.sh" --renew >/dev/null && build_from_nothing
	}; then
		printf 'ok 1 the modules build\n' >"$file"
		# With W=1 and CLIPPY=1; what was built before says nothing, a fresh copy everything.
		if grep -E '(^|: )warning: ' "$log"; then
			printf 'not ok 2 the modules build without a warning\n' >>"$file"
		else
			printf 'ok 2 the modules build without a warning\n' >>"$file"
		fi
	else
		printf 'not ok 1 the modules build\n' >"$file"
		[ ! -f "$log" ] || cp "$log" "$file.log"
	fi
}

style()
{
	one_line rustfmt "Rust code is formatted" "$RTRS_ENV/style.sh" rustfmtcheck
	one_line shellcheck "shell scripts pass shellcheck" "$RTRS_ENV/style.sh" shellcheck
	one_line checkpatch "C code passes checkpatch" "$RTRS_ENV/style.sh" checkpatch
}

# cargo_tests NAME DIR [OPTION...]: results count test by test. A crate that
# does not even build prints none, so the exit status has a say.
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

host_tests()
{
	cargo_tests runner "$RTRS_REPO/tests/vm"
	cargo_tests logic "$RTRS_REPO/tests/host"
	# Loom replaces the atomics of the whole build, so it has a build of its own.
	FLAGS="--cfg loom" cargo_tests loom "$RTRS_REPO/tests/host" --test 'loom_*' \
		--target-dir "$RTRS_REPO/tests/host/target/loom"
	# Where it was built already.
	cargo_tests peer "$RTRS_REPO/tests/peer" \
		--target-dir "$(dirname "$(dirname "$("$RTRS_ENV/peer.sh")")")"
	one_line valgrind "host tests are clean under valgrind" \
		"$RTRS_ENV/enter.sh" "$RTRS_REPO/tests/host/valgrind.sh"
}

# jobs: tests that wait leave room for others. On the debug kernel they do not: two at a time take
# twice as long. Three were seen to hold each other up until soft RoCE times out.
jobs()
{
	[ "${#KIND[@]}" -eq 0 ] && [ "$(nproc)" -ge 2 ] && echo 2 || echo 1
}

# A machine that others use as well makes some test late now and then.
vm_tests()
{
	local names

	export RTRS_RETRIES=${RTRS_RETRIES:-1}
	# Failures are in the results, which the report reads.
	"$RTRS_REPO/tests/run.sh" "${KIND[@]}" --no-build --no-summary --jobs "${RTRS_JOBS:-$(jobs)}" || true
	# What did not run has none.
	mapfile -t names < <("$RTRS_REPO/tests/run.sh" --list | awk '{ print $1 }')
	one_line vm "each of ${#names[@]} VM tests has a result" have_results "${names[@]}"
}

# have_results NAME...
have_results()
{
	local name rc=0

	[ "$#" -gt 0 ] || rc=1
	for name; do
		[ -f "$RTRS_RESULTS/$name/result.json" ] || {
			echo "$name has none"
			rc=1
		}
	done
	return "$rc"
}

main()
{
	local vm rc=0 results=()

	need_root
	mkdir -p "$HOST"
	ln -sfn "$(basename "$RTRS_RESULTS")" "$(dirname "$RTRS_RESULTS")/latest"
	# Without these nothing can be counted: their failure ends it here.
	timed "set-up" set_up
	timed "modules" modules
	timed "style" style
	timed "host tests" host_tests
	if grep -q '^ok' "$HOST/build.ktap"; then
		timed "VM tests" vm_tests
	else
		say "the modules do not build: no VM tests"
	fi

	vm=$("$RTRS_ENV/vm.sh")
	mapfile -t results < <(find "$HOST" -name '*.ktap' -o -name '*.log' ! -name '*.ktap.log' | sort
		find "$RTRS_RESULTS" -mindepth 2 -maxdepth 2 -name result.json | sort)
	printf '\nresults: %s\n' "$RTRS_RESULTS"
	printf '%s\n' "${TIMES[@]}" "$(printf '%5d s  all' "$(($(date +%s) - RTRS_T0))")"
	"$RTRS_ENV/enter.sh" "$vm" report "${results[@]}" || rc=1
	exit "$rc"
}

# The shell reads a script as it goes; it must not read one that is edited.
main "$@"
