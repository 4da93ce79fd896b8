# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers around rtrs-test.ko, the user of the Rust API. To be read after
# common.sh by the tests that need it.

RT=/sys/kernel/debug/rtrs_test

Q=/sys/module/rtrs_server/quotas

# quota RESOURCE max|current|refused
quota() { cat "$Q/$1/$2"; }

# in_use RESOURCE N: so much of it is in use.
in_use()
{
	[ "$(quota "$1" current)" = "$2" ] || {
		echo "$1: $(quota "$1" current) in use, not $2"
		return 1
	}
}

# load_test [PARAM=VALUE... of the server]
load_test()
{
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug || return
	load_rtrs rust both "$@" && load_one "$RTRS_MODULES" rtrs-test
}

# rt COMMAND [KEY=VALUE...]: one command; its errno is that of the write, a
# single one. Thousands of these are made: no process is.
rt()
{
	printf '%s' "$*" >"$RT/command"
}

# pow2 N: the power of two that is not less.
pow2()
{
	local p=1

	while [ "$p" -lt "$1" ]; do
		p=$((2 * p))
	done
	echo "$p"
}

# con_memory SENDS RECEIVES: what the server counts for the queues of a connection.
con_memory()
{
	echo $((($(pow2 "$1") + $(pow2 "$2")) * 256 + $(pow2 $(($1 + $2))) * 64))
}

# chunk_memory DEPTH SIZE: for those of a path, with always_invalidate: each has a page for
# few data.
chunk_memory() { echo $(($1 * ($2 + $(getconf PAGESIZE)))); }

# queue_memory DEPTH: for those of a path, with always_invalidate and one IO
# connection for each CPU. Sixteen receives are spare, and one of each is for the drain.
queue_memory()
{
	local io

	io=$(con_memory $(((5 * $1 < 16 ? 16 : 5 * $1) + 1)) $(($1 + 17)))
	echo $(($(con_memory 1043 1043) + $(nproc) * io))
}

# result TAG: its last result, "ok ..." or "error -90 ...".
result()
{
	local lines line

	mapfile -t lines <"$RT/result"
	for line in "${lines[@]}"; do
		case $line in "$1: "*) printf '%s\n' "${line#"$1: "}" ;; esac
	done
}

has_result() { [ -n "$(result "$1")" ]; }

# field TAG KEY: a number out of the last result.
field()
{
	local words word

	read -r -a words <<<"$(result "$1")"
	for word in "${words[@]}"; do
		case $word in "$2"[=:]*) printf '%s\n' "${word#"$2"?}" ;; esac
	done
}

# total KEY: a number out of the statistics.
total()
{
	local lines line

	mapfile -t lines <"$RT/stats"
	for line in "${lines[@]}"; do
		case $line in "$1 "*) printf '%s\n' "${line#"$1 "}" ;; esac
	done
}

# tag_of KEY=VALUE...: where the result of a command is to be found.
tag_of()
{
	local word name=

	for word in "$@"; do
		case $word in
		tag=*) name=${word#*=} && break ;;
		name=*) name=${word#*=} ;;
		esac
	done
	printf '%s\n' "${name:-$1}"
}

# io NAME KEY=VALUE...: a run of requests; says what was wrong.
io()
{
	rt io "name=$1" "${@:2}" || {
		echo "io $*"
		result "$(tag_of "name=$1" "${@:2}")" >"$TMP/result"
		cat "$TMP/result"
		# EPROTO, EBADMSG: see tests/kmod/README.md.
		! grep -qE '^error -(71|74) ' "$TMP/result" || echo "answers or data were wrong"
		return 1
	}
}

# both NAME KEY=VALUE...: the run for writing and for reading.
both()
{
	io "$1" dir=write "${@:2}" && io "$1" dir=read "${@:2}"
}

# refuses ERRNO COMMAND...: fails with -ERRNO and nothing else.
refuses()
{
	local want=$1 got
	shift

	if rt "$@" 2>/dev/null; then
		echo "not refused: $*"
		return 1
	fi
	got=$(result "$(tag_of "$@")")
	case $got in
	"error -$want "*) ;;
	*)
		echo "$*: $got, not -$want"
		return 1
		;;
	esac
}

# balanced: every request was completed once, nothing was corrupt.
balanced()
{
	[ "$(total submitted)" = "$(total completed)" ] &&
		[ "$(total doubled)" = 0 ] && [ "$(total in_flight)" = 0 ] &&
		[ "$(total server_corrupt)" = 0 ] || {
		cat "$RT/stats"
		echo "requests were lost, doubled or corrupt"
		return 1
	}
}

# rt_start COMMAND...: in the background, see rt_wait.
rt_start()
{
	rt "$@" 2>/dev/null &
	RT_PIDS+=($!)
}
RT_PIDS=()

# rt_wait: until all of them are done; do they all succeed?
rt_wait()
{
	local pid rc=0

	for pid in "${RT_PIDS[@]}"; do
		wait "$pid" || rc=1
	done
	RT_PIDS=()
	[ "$rc" = 0 ] || cat "$RT/result"
	return "$rc"
}

# held PORT N: does the server hold so many requests?
held()
{
	[ "$(total "server_held:$1")" = "$2" ]
}
