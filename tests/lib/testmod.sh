# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers around rtrs-test.ko, a user of the Rust API. Tests that need it source this file after
# common.sh.

RT=/sys/kernel/debug/rtrs_test

Q=/sys/module/rtrs_server/quotas

# quota RESOURCE max|current|refused
quota() { cat "$Q/$1/$2"; }

# in_use RESOURCE N: exactly N of the resource is in use.
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

# rt COMMAND [KEY=VALUE...]: run one command by a single write, whose errno is the result. Tests run
# thousands of commands, so it starts no process.
rt()
{
	printf '%s' "$*" >"$RT/command"
}

# rt_open NAME [KEY=VALUE...]: open a session; one of that name that a failed check has left is
# closed.
rt_open()
{
	local name=$1
	shift

	[ ! -d "/sys/class/rtrs-client/$name" ] || rt close name="$name" || return
	rt open name="$name" "$@"
}

# with_setting FILE VALUE CMD...: run CMD with VALUE in FILE. It stays there if CMD fails: with "||"
# behind CMD no command in there would end the case.
with_setting()
{
	local file=$1 old
	old=$(cat "$file")

	write "$file" "$2"
	"${@:3}"
	write "$file" "$old"
}

# result TAG: the last result of TAG, "ok ..." or "error -90 ...".
result()
{
	local lines line

	mapfile -t lines <"$RT/result"
	for line in "${lines[@]}"; do
		case $line in "$1: "*) printf '%s\n' "${line#"$1: "}" ;; esac
	done
}

has_result() { [ -n "$(result "$1")" ]; }

# field TAG KEY: a number from the last result of TAG.
field()
{
	local words word

	read -r -a words <<<"$(result "$1")"
	for word in "${words[@]}"; do
		case $word in "$2"[=:]*) printf '%s\n' "${word#"$2"?}" ;; esac
	done
}

# total KEY: a number from the statistics.
total()
{
	local lines line

	mapfile -t lines <"$RT/stats"
	for line in "${lines[@]}"; do
		case $line in "$1 "*) printf '%s\n' "${line#"$1 "}" ;; esac
	done
}

# tag_of KEY=VALUE...: the tag under which a command stores its result.
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

# io NAME KEY=VALUE...: run requests; print what was wrong.
io()
{
	rt io "name=$1" "${@:2}" || {
		echo "io $*"
		result "$(tag_of "name=$1" "${@:2}")" >"$TMP/result"
		cat "$TMP/result"
		# EPROTO, EBADMSG: see tests/kmod/README.md.
		! grep -qE '^error -(71|74) ' "$TMP/result" || echo "answers or data were wrong"
		# Where a request is that got no answer.
		cat /sys/kernel/debug/rtrs_client/{requests,connections} || true
		return 1
	}
}

# waiting_shown NAME N: debugfs shows that N requests of NAME wait for a path.
waiting_shown()
{
	grep -Eq "^$1 +- .* path: $2\$" /sys/kernel/debug/rtrs_client/requests || {
		cat /sys/kernel/debug/rtrs_client/requests
		return 1
	}
}

# both NAME KEY=VALUE...: run requests that write, then requests that read.
both()
{
	io "$1" dir=write "${@:2}" && io "$1" dir=read "${@:2}"
}

# refuses ERRNO COMMAND...: the command must fail with exactly -ERRNO.
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

# rt_start COMMAND...: run the command in the background; see rt_wait.
rt_start()
{
	rt "$@" 2>/dev/null &
	RT_PIDS+=($!)
}
RT_PIDS=()

# rt_wait: wait for all commands in the background; did all succeed?
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

# held PORT N: does the server hold exactly N requests?
held()
{
	[ "$(total "server_held:$1")" = "$2" ]
}
