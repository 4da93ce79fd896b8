#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: text without a meaning is -EINVAL in every file, and changes nothing
# topology: single
# timeout: 120
# seconds: 45

. "$(dirname "$0")/lib/common.sh"
require rdma

S=/sys/class/rtrs-client/bad
P=$S/paths/ip:10.9.0.1@ip:10.9.0.1
LONG=$(head -c 4096 /dev/zero | tr '\0' 1)

map() { map_rnbd bad /dev/nullb0 ip:10.9.0.1 >"$TMP/dev"; }

# raw FILE FORMAT: like write, but with the escapes of printf, NUL for example.
raw()
{
	# shellcheck disable=SC2059
	printf -- "$2" | dd of="$1" bs=64k count=1 iflag=fullblock status=none
}

# state: all that a bad string could have changed.
state()
{
	cat "$S/mpath_policy" "$S/mp_policy" "$S/max_reconnect_attempts" "$P/state"
	find "$S/" "/sys/class/rtrs-server/bad/" ! -path '*/power*' | sort
}

# refused FILE FORMAT...: each write is EINVAL and changes nothing.
refused()
{
	local file=$1 text bad=0
	shift

	for text in "$@"; do
		expect_error "Invalid argument" raw "$file" "$text" || {
			printf 'for "%.60s"\n' "$text"
			bad=1
		}
	done
	state >"$TMP/now"
	diff -u "$TMP/state" "$TMP/now" || bad=1
	return "$bad"
}

# RNBD checks its own words, but passes a path on as it is.
bad_map()
{
	local text bad=0

	for text in "$@"; do
		expect_error "" write "$RNBD_CTL/map_device" "sessname=no path=$text device_path=/dev/nullb0" || bad=1
		[ ! -e /sys/class/rtrs-client/no ] || bad=1
	done
	return "$bad"
}

read_only()
{
	local f

	for f in state src_addr dst_addr hca_name hca_port cur_latency request_latency; do
		expect_error "" write "$P/$f" 1
	done
}

still_works() { dd if="/dev/$(cat "$TMP/dev")" of=/dev/null bs=4k count=64 iflag=direct status=none; }

must "soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "a disk" null_blk_up nullb0 16
defer null_blk_down nullb0
rnbd_up
must "a device maps" map
state >"$TMP/state"

check "add_path: no address" refused $S/add_path '\n' ' ' '@' ',' 'ip:' 'gid:' 'ip:\n' 'ip' '1'
check "add_path: no family, or another one" refused $S/add_path '10.9.0.2' 'IP:10.9.0.2' 'tcp:10.9.0.2' \
	'iip:10.9.0.2' ' ip:10.9.0.2'
check "add_path: bad IPv4" refused $S/add_path 'ip:10.9.0' 'ip:10.9.0.256' 'ip:10.9.0.2.1' 'ip:10.9.0.-1' \
	'ip:10.9.0.2x' 'ip:10.9.0.2 ' 'ip:10.9.0.2\n\n' 'ip:0x0a090002' 'ip:10.9.0.2:1234' 'ip:10.9.0.2/24'
check "add_path: bad IPv6" refused $S/add_path 'ip:fd09' 'ip:fd09::1::2' 'ip:fd09:0:0:0:0:0:0:0:1' \
	'ip:fd09::g' 'ip:[fd09::1]' 'ip::::' 'ip:fd09::1%%drxe0' 'ip:fe80::1%%' 'ip:fe80::1%%averyverylongname'
check "add_path: bad GID" refused $S/add_path 'gid:10.9.0.2' 'gid:0000' 'gid:fe80::zz' \
	'gid:fe80:0:0:0:0:0:0:0:1'
check "add_path: bad pairs" refused $S/add_path 'ip:10.9.0.1@' '@ip:10.9.0.1' 'ip:10.9.0.1,' ',ip:10.9.0.1' \
	'ip:10.9.0.1@ip:10.9.0.1@ip:10.9.0.1' 'ip:10.9.0.1@ip:fd09::1' 'ip:10.9.0.1@gid:fe80::1' \
	'ip:10.9.0.1 ip:10.9.0.1' 'ip:10.9.0.1@10.9.0.1'
check "add_path: binary" refused $S/add_path '\0' '\0ip:10.9.0.2' 'ip:10.9.0.2\0' 'ip:10\0009.0.2' \
	'\377\376\375' '\303\050' 'ip:10.9.0.2\033[0m' '%%s%%n' '\001\002\003\004'
check "add_path: 4 KiB" refused $S/add_path "$LONG" "ip:$LONG" "ip:10.9.0.1@${LONG:0:4000}" \
	"gid:${LONG//1/:}" "ip:10.9.0.2${LONG//1/\\n}"
for f in mpath_policy mp_policy; do
	check "$f" refused $S/$f '\n' ' ' '3' '-1' '0x1' '1 1' 'r' 'rrr' 'round' 'fastest' 'min' \
		'\0' '\377' '0\0000' '99999999999999999999' "$LONG"
done
check "max_reconnect_attempts" refused $S/max_reconnect_attempts '\n' 'x' '-2' '10000' '1x' '0x10' '1.5' '--1' \
	'\0' '\377' '1\0002' "${LONG//1/a}"
for f in reconnect disconnect remove_path; do
	check "$f" refused "$P/$f" '\n' '0' '2' '-1' '11' '01' '1 1' ' 1' '1\n\n' 'y' 'yes' 'on' '\0' '1\0001' \
		'\377' "$LONG"
done
check "server: disconnect" refused "/sys/class/rtrs-server/bad/paths/${P##*/}/disconnect" '\n' '0' '2' '11' \
	'1 1' 'x' '\0' '\377' "$LONG"
check "files to read cannot be written" read_only
check "map_device with bad paths" bad_map 10.9.0.1 ip: ip:10.9.0.300 gid:x ip:10.9.0.1@ @ip:10.9.0.1 \
	ip:fd09:::1 ip:10.9.0.1@ip:fd09::1
check "the session still works" still_works
finish
