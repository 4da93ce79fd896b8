#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the files that the rnbd tool reads and writes are there, in the format that it parses
# topology: single
# timeout: 240
# seconds: 45

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/observe.sh"
require rdma

# The tool is https://github.com/ionos-enterprise/rnbd, version 1.2.0. It uses no file of sysfs but
# these. Mainline's modules are a check of the list itself, in the long mode.
CLT=/sys/class/rtrs-client
SRV=/sys/class/rtrs-server
NAME=tool
ADDR=ip:10.9.0.1
OTHER=ip:10.9.0.2

# What scanf() takes for %s and %d; it stops at a blank or the end of the line.
S='[^ ]+'
D='[0-9]+'

dev() { cat "$TMP/dev"; }
server_device() { find /sys/class/rnbd-server/ctl/devices/ -mindepth 1 -maxdepth 1; }

# only DIR NAME...: the tool takes each entry of a directory for a session, or a path.
only()
{
	local dir=$1
	shift

	same "entries of $dir" "$(find "$dir/" -mindepth 1 -maxdepth 1 ! -name ctl -printf '%f\n' | sort | tr '\n' ' ')" \
		"$(printf '%s ' "$@")"
}

map() { map_rnbd "$NAME" /dev/nullb0 "path=$OTHER@$ADDR" access_mode=rw >"$TMP/dev"; }

# begins DIR FILE REGEX: the file begins with what is looked for.
begins() { matches "$1/$2" "$3 .*"; }

client_session()
{
	only "$CLT" "$NAME"
	begins "$CLT/$NAME" mpath_policy "$S \([A-Z]{2}: $D\)"
	only "$CLT/$NAME/paths" "$OTHER@$ADDR"
}

client_path()
{
	local path="$CLT/$NAME/paths/$OTHER@$ADDR"

	begins "$path" src_addr "$OTHER"
	begins "$path" dst_addr "$ADDR"
	begins "$path" hca_name rxe0
	begins "$path" hca_port 1
	# Any other word is a path that is down.
	begins "$path" state connected
	begins "$path" stats/rdma "$D $D $D $D $D $D"
	begins "$path" stats/reconnects "$D $D"
}

client_device()
{
	local device
	device=$(readlink -f "/sys/class/rnbd-client/ctl/devices/$(ls /sys/class/rnbd-client/ctl/devices)")

	same "the device" "$(basename "$device")" "$(dev)"
	begins "$device" rnbd/session "$NAME"
	begins "$device" rnbd/mapping_path /dev/nullb0
	begins "$device" rnbd/access_mode rw
	begins "$device" rnbd/state open
	begins "$device" stat " *($D +){6}$D"
}

# One that has no state is never said to be down.
server_session()
{
	local path="$SRV/$NAME/paths/$OTHER@$ADDR"

	only "$SRV" "$NAME"
	only "$SRV/$NAME/paths" "$OTHER@$ADDR"
	begins "$path" src_addr "$OTHER"
	begins "$path" dst_addr "$ADDR"
	begins "$path" hca_name rxe0
	begins "$path" hca_port 1
	[ ! -e "$path/state" ] || begins "$path" state connected
	begins "$path" stats/rdma "$D $D $D $D"
}

server_device_files()
{
	local device
	device=$(server_device)

	same "the disk" "$(basename "$(readlink -f "$device/block_dev")")" nullb0
	begins "$device/sessions/$NAME" mapping_path /dev/nullb0
	begins "$device/sessions/$NAME" access_mode rw
}

# The traffic of reads is the second number of the statistics, that of writes the fourth.
traffic()
{
	local path="$CLT/$NAME/paths/$OTHER@$ADDR" read written

	read=$(nth "$path/stats/rdma" 2)
	written=$(nth "$path/stats/rdma" 4)
	dd if="/dev/$(dev)" of=/dev/null bs=64k count=4 iflag=direct status=none
	[ $(($(nth "$path/stats/rdma" 2) - read)) -ge 262144 ]
	dd if=/dev/zero of="/dev/$(dev)" bs=64k count=4 oflag=direct conv=nocreat status=none
	[ $(($(nth "$path/stats/rdma" 4) - written)) -ge 262144 ]
}

state_is() { [ "$(cat "$CLT/$NAME/paths/$1/state")" = "$2" ]; }
connected() { state_is "$1" connected; }
disconnected() { not connected "$1"; }
no_path() { [ ! -e "$CLT/$NAME/paths/$1" ]; }

# What is written has no newline.
path_commands()
{
	local new="$ADDR@$OTHER"

	# The tool separates the addresses by either character.
	write "$CLT/$NAME/add_path" "$ADDR,$OTHER"
	wait_for 10 connected "$new"
	write "$CLT/$NAME/paths/$new/disconnect" 1
	wait_for 10 disconnected "$new"
	write "$CLT/$NAME/paths/$new/reconnect" 1
	wait_for 10 connected "$new"
	write "$CLT/$NAME/paths/$new/remove_path" 1
	wait_for 10 no_path "$new"
	write "$CLT/$NAME/add_path" "$new"
	wait_for 10 connected "$new"
	write "$CLT/$NAME/paths/$new/remove_path" 1
	wait_for 10 no_path "$new"
}

# reconnects N: as often as that.
reconnects() { [ "$(nth "$CLT/$NAME/paths/$OTHER@$ADDR/stats/reconnects" 1)" = "$1" ]; }

server_disconnects()
{
	reconnects 0
	write "$SRV/$NAME/paths/$OTHER@$ADDR/disconnect" 1
	wait_for 30 reconnects 1
	connected "$OTHER@$ADDR"
}

device_commands()
{
	local sectors
	sectors=$(cat "/sys/block/$(dev)/size")

	write "/sys/block/$(dev)/rnbd/resize" $((sectors / 2))
	same "sectors" "$(cat "/sys/block/$(dev)/size")" $((sectors / 2))
	write "/sys/block/$(dev)/rnbd/resize" "$sectors"
	# The device is open: there is nothing to do.
	expect_error "Operation already in progress" write "/sys/block/$(dev)/rnbd/remap_device" 1
}

no_device() { [ ! -e "/sys/block/$(dev)" ]; }
server_has_none() { [ -z "$(server_device)" ]; }

server_closes()
{
	write "$(server_device)/sessions/$NAME/force_close" 1
	wait_for 10 server_has_none
}

unmaps()
{
	write "/sys/block/$(dev)/rnbd/unmap_device" normal
	wait_for 10 no_device
}

# all IMPLEMENTATION
all()
{
	must "$1: the modules load" load_modules "$1"
	must "$1: a device is mapped" map
	check "$1: the session of the client" client_session
	check "$1: its path" client_path
	check "$1: its device" client_device
	check "$1: the session of the server" server_session
	check "$1: its device" server_device_files
	check "$1: traffic is counted" traffic
	check "$1: paths are added, disconnected, reconnected and removed" path_commands
	# Mainline's client comes back only after half a minute.
	[ "$1" = c ] || check "$1: the server disconnects a path" server_disconnects
	check "$1: a device is resized, and not mapped anew" device_commands
	check "$1: the server closes it" server_closes
	check "$1: it is unmapped" unmaps
	check "$1: the modules unload" unload_modules
}

must "soft RoCE comes up" rxe_up rxe0 "${ADDR#ip:}/24" "${OTHER#ip:}/24"
defer rxe_down rxe0
must "a null_blk" null_blk_up nullb0 64
defer null_blk_down nullb0
resource_snapshot
defer unload_modules
defer unmap_all_rnbd force
all rust
[ -z "${RTRS_LONG:-}" ] || all c
finish
