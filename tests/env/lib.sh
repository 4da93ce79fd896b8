# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the set-up scripts of tests/env: where things are kept, how progress is shown, and how a
# missing package, network or disk is reported.
#
# Sourced by scripts that run under "set -euo pipefail".

RTRS_REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
RTRS_CACHE=${RTRS_CACHE:-/var/cache/rtrs-rs}
RTRS_ENV=$RTRS_REPO/tests/env
# over.sh puts a layer over the root.
RTRS_ROOTFS=${RTRS_OVER:-$RTRS_CACHE/rootfs}
RTRS_LOGS=${RTRS_LOGS:-$RTRS_CACHE/log}
RTRS_DEBS=$RTRS_CACHE/debs

# The distribution that the modules are built for, and the supported kernel series, the newest
# first.
RTRS_SUITE=trixie
RTRS_SUPPORTED=(7.3 7.2)
# The series to use; empty means the newest supported one.
RTRS_SERIES=${RTRS_SERIES:-}
# The flavour of the kernel, which also determines the architecture.
case ${ARCH:-} in
"" | x86 | x86_64 | amd64) RTRS_FLAVOUR=${RTRS_FLAVOUR:-amd64} ;;
arm64 | aarch64) RTRS_FLAVOUR=${RTRS_FLAVOUR:-arm64} ;;
*)
	printf 'error: ARCH=%s is not supported (amd64, arm64)\n' "$ARCH" >&2
	exit 1
	;;
esac
# ARCH has a meaning for kbuild, even if it is empty.
unset ARCH
# shellcheck disable=SC2034 # used by kernel.sh
RTRS_FLAVOURS=(amd64 rt-amd64 cloud-amd64 arm64)

export RTRS_REPO RTRS_CACHE RTRS_ENV RTRS_ROOTFS RTRS_LOGS RTRS_DEBS
export RTRS_SUITE RTRS_SERIES RTRS_FLAVOUR

RTRS_T0=${RTRS_T0:-$(date +%s)}
export RTRS_T0

# All messages go to stderr: stdout is for the answers of scripts.
say()
{
	printf '[%4ds] %s\n' "$(($(date +%s) - RTRS_T0))" "$*" >&2
}

die()
{
	printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

need_root()
{
	[ "$(id -u)" -eq 0 ] || die "must be run as root (it builds and enters a chroot)"
}

# need_memory MIB WHAT: a guest that is swapped out, or killed, looks like a bug.
need_memory()
{
	local mib=$1 what=$2 have

	have=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) / 1024))
	[ "$have" -ge "$mib" ] ||
		die "$what needs $mib MiB of memory, only $have MiB are available"
}

# debian_arch FLAVOUR: Debian's name of the flavour's architecture.
debian_arch() { printf '%s\n' "${1##*-}"; }

# kbuild_args FLAVOUR: arguments that kbuild needs for an architecture other than the host's.
kbuild_args()
{
	case $(debian_arch "$1") in
	arm64) printf '%s\n' ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- ;;
	esac
}

# What Debian puts between version and flavour, as in 7.3.4+deb13-rt-amd64. A release that was built
# again from one version has a number, too: 7.3.4+deb13+1-amd64.
RTRS_MARK='\+deb13(\+[0-9]+)?-'

is_debian() { [[ $1 =~ $RTRS_MARK ]]; }

# flavour_of RELEASE: a debug kernel is amd64.
flavour_of()
{
	if is_debian "$1"; then
		printf '%s\n' "${1#*"${BASH_REMATCH[0]}"}"
	else
		printf 'amd64\n'
	fi
}

# newest_first: sorts releases of one flavour. "sort -V" alone has those with a number last.
newest_first() { sed 's/+deb13-/+deb13+0-/' | sort -Vr | sed 's/+deb13+0-/+deb13-/'; }

# series_of RELEASE
series_of() { [[ $1 =~ ^[0-9]+\.[0-9]+ ]] && printf '%s\n' "${BASH_REMATCH[0]}"; }

# same_kind RELEASE RELEASE: can one release replace the other?
same_kind() { [ "$(series_of "$1") $(flavour_of "$1")" = "$(series_of "$2") $(flavour_of "$2")" ]; }

supported()
{
	local s

	for s in "${RTRS_SUPPORTED[@]}"; do
		[ "$s" != "$1" ] || return 0
	done
	return 1
}

# in_use: keep the cache from being pruned until the calling script ends.
in_use()
{
	mkdir -p "$RTRS_CACHE"
	exec 6>"$RTRS_CACHE/.use"
	flock -s 6
}

# need_space DIR MIB WHAT: fail early rather than half way.
need_space()
{
	local dir=$1 mib=$2 what=$3 have

	mkdir -p "$dir" || die "cannot create $dir"
	have=$(df --output=avail -m "$dir" | tail -n 1 | tr -d ' ')
	[ "$have" -ge "$mib" ] ||
		die "$what needs $mib MiB under $dir, only $have MiB are free (set RTRS_CACHE to a larger disk)"
}

# Body of step's ticker. It holds neither the cache's lock nor a pipe that another process waits
# for, and stops its sleep when it is stopped.
ticker()
{
	local text=$1 log=$2 t0=$3 nap=

	exec 9>&-
	trap 'kill "$nap" 2>/dev/null; exit 0' TERM
	while :; do
		sleep 20 >/dev/null 2>&1 &
		nap=$!
		wait "$nap"
		say "$text: still at it after $(($(date +%s) - t0)) s: $(tail -n 1 "$log" | cut -c 1-90)"
	done
}

# step NAME TEXT CMD...: run a long command with its output in a log file, and report now and then
# that it still runs. Shows the end of the log on failure.
step()
{
	local name=$1 text=$2 log t0 pid ticker rc=0
	shift 2

	mkdir -p "$RTRS_LOGS"
	log=$RTRS_LOGS/$name.log
	t0=$(date +%s)
	say "$text ..."

	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	ticker "$text" "$log" "$t0" &
	ticker=$!
	# An interrupted set-up must not leave its worker running.
	trap 'kill "$pid" "$ticker" 2>/dev/null; exit 130' INT TERM
	wait "$pid" || rc=$?
	trap - INT TERM
	kill "$ticker" 2>/dev/null || true
	wait "$ticker" 2>/dev/null || true

	if [ "$rc" -ne 0 ]; then
		say "$text: FAILED after $(($(date +%s) - t0)) s, exit status $rc; end of $log:"
		tail -n 60 "$log" | sed 's/^/    | /' >&2
		return "$rc"
	fi
	say "$text: done in $(($(date +%s) - t0)) s"
}

# One set-up at a time per cache; other scripts wait, and then find it done. Scripts call each
# other, so the lock is taken once per process tree.
lock_cache()
{
	[ -z "${RTRS_LOCKED:-}" ] || return 0
	mkdir -p "$RTRS_CACHE" || die "cannot create $RTRS_CACHE (set RTRS_CACHE)"
	exec 9>"$RTRS_CACHE/.lock"
	if ! flock -n 9; then
		say "another set-up works in $RTRS_CACHE, waiting for it"
		flock 9
	fi
	export RTRS_LOCKED=1
}

# Both forms of apt sources, as lines "URI SUITE COMPONENTS...", for the Debian archive and others
# alike. A deb822 stanza may have several of each.
apt_sources()
{
	local f
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -f "$f" ] || continue
		sed -n 's/^[[:space:]]*deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]*\)\{0,1\}//p' "$f"
	done
	for f in /etc/apt/sources.list.d/*.sources; do
		[ -f "$f" ] || continue
		awk '
		function flush(  u, s, i, j) {
			if (types ~ /(^| )deb( |$)/ && enabled != "no") {
				split(uris, u); split(suites, s)
				for (i in u) for (j in s) print u[i], s[j], comps
			}
			types = uris = suites = comps = enabled = key = ""
		}
		/^#/ { next }
		/^[[:space:]]*$/ { flush(); next }
		{
			val = $0
			if (match($0, /^[A-Za-z-]+:/)) {
				key = tolower(substr($0, 1, RLENGTH - 1))
				val = substr($0, RLENGTH + 1)
			}
			gsub(/^[[:space:]]+|[[:space:]]+$/, "", val)
			if (key == "types") types = types " " val
			if (key == "uris") uris = uris " " val
			if (key == "suites") suites = suites " " val
			if (key == "components") comps = comps " " val
			if (key == "enabled") enabled = tolower(val)
		}
		END { flush() }' "$f"
	done
}

# real_mirrors: replace a list of mirrors in a file, as in cloud images, with its first entry.
real_mirrors()
{
	local uri rest file

	while read -r uri rest; do
		case $uri in
		mirror+file:*)
			file=${uri#mirror+file:}
			# The URI may have an authority part, which is empty, or none.
			file=/${file#"${file%%[!/]*}"}
			uri=$(awk '/^[a-z]+:/ { print $1; exit }' "$file" 2>/dev/null)
			[ -n "$uri" ] || continue
			;;
		esac
		printf '%s %s\n' "$uri" "$rest"
	done
}

# The mirror of the Debian archive this host already uses: the URI of the
# entry for the host's own release. The same archive carries other suites.
apt_mirror()
{
	local codename mirror

	if [ -n "${RTRS_MIRROR:-}" ]; then
		printf '%s\n' "$RTRS_MIRROR"
		return
	fi
	[ -r /etc/os-release ] || die "/etc/os-release is missing, this is not a Debian host"
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
	# awk must not exit early: under pipefail a closed pipe would fail the whole pipeline.
	mirror=$(apt_sources | real_mirrors | awk -v code="$codename" '
		$1 ~ /^(http|https|file|copy):/ &&
		($2 == code || $2 == "stable" || $2 == "oldstable" || $2 == "testing") {
			for (i = 3; i <= NF; i++)
				if ($i == "main" && first == "")
					first = $1
		}
		END { print first }')
	[ -n "$mirror" ] ||
		die "no Debian archive entry (suite $codename, component main) in this host's apt sources; set RTRS_MIRROR"
	printf '%s\n' "$mirror"
}

# The host's proxy and similar settings of apt, as option lines for another root.
apt_host_options()
{
	apt-config dump 2>/dev/null |
		grep -E '^Acquire::(http|https)::(Proxy|Timeout|Pipeline-Depth)|^Acquire::(Retries|Check-Valid-Until|ForceIPv[46]) ' |
		grep -v ' "";$' || true
}

# keep_modules BUILD DIR: copy the modules for a run of its own; the next build, maybe of another
# user, must not change them under running guests.
keep_modules()
{
	mkdir -p "$2/stale"
	# shellcheck disable=SC2016 # for the inner shell
	flock "$1/.lock" sh -c 'cp "$1"/*.ko "$1"/users/*.ko "$2/" && { ! ls "$1"/stale/*.ko || cp "$1"/stale/*.ko "$2/stale/"; }' sh "$1" "$2" >/dev/null 2>&1 ||
		die "there are no modules in $1; build them first"
}

# host_packages CMD=PACKAGE...: install programs that the host itself lacks.
host_packages()
{
	local pair missing=()

	for pair in "$@"; do
		command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	need_root
	export DEBIAN_FRONTEND=noninteractive
	step host-apt "installing ${missing[*]} on this host" \
		sh -c 'apt-get update && apt-get install -y --no-install-recommends "$@"' sh "${missing[@]}" ||
		die "cannot install ${missing[*]}: is the network there, and do the apt sources work?"
}
