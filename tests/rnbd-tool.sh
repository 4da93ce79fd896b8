#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: the rnbd tool works, and the files that it reads and writes are there, in the format that it parses
# topology: single
# timeout: 360
# seconds: 45

. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/observe.sh"
require rdma

# The tool is https://github.com/ionos-enterprise/rnbd, version 1.2.0. It uses no file of sysfs but
# these. Mainline's modules are a check of the list itself, in the long mode. The tool runs as well
# if RTRS_RNBD_TOOL names it, built in the root of the guests:
#
#	tests/env/enter.sh make -C DIRECTORY-BELOW-THE-CACHE rnbd
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
	wait_for 5 connected "$OTHER@$ADDR"
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

#
# The tool itself, when RTRS_RNBD_TOOL names it.
#

tool() { "$RTRS_RNBD_TOOL" "$@"; }

# shows EXPECTED ARGUMENT...: a list of the tool, as CSV without quotes.
shows()
{
	local expected=$1
	shift

	same "rnbd $*" "$(tool "$@" csv noheaders | tr -d '"')" "$expected"
}

# says TEXT ARGUMENT...: the tool succeeds, and TEXT is in its output.
says()
{
	local text=$1 out
	shift

	out=$(tool "$@" 2>&1) || {
		echo "rnbd $*: $out"
		return 1
	}
	[[ $out == *"$text"* ]] || {
		echo "rnbd $*: no \"$text\" in: $out"
		return 1
	}
}

tool_version()
{
	[ -n "${RTRS_RNBD_TOOL:-}" ] || skip "RTRS_RNBD_TOOL does not name the tool"
	tool version
	printf 'rnbd version 1.2.0\n%s\n' "$(tool version)" | sort -CV
	says "rnbd client|server|help|version" help
	says "devices|sessions|paths" client help
	says "devices|sessions|paths" server help
	says "from <server>" client device map help
}

# There is no other device.
tool_device()
{
	tool client device list devname csv noheaders | tr -d '"' >"$TMP/dev"
	wait_for 10 test -b "/dev/$(dev)"
}

tool_maps()
{
	says "Successfully mapped '/dev/nullb0'" map /dev/nullb0 from "$NAME" "$OTHER@$ADDR" rw verbose
	tool_device
	expect_error "File exists" tool map /dev/nullb0 from "$NAME"
}

tool_devices()
{
	local d name
	d=$(dev)

	shows "$NAME,/dev/nullb0,$d,/dev/$d,open,rw,import" \
		client device list sessname,mapping_path,devname,devpath,state,access_mode,direction
	shows "$NAME,/dev/nullb0,nullb0,/dev/nullb0,rw,export" \
		server device list sessname,mapping_path,devname,devpath,access_mode,direction
	for name in "$d" "/dev/$d" /dev/nullb0; do
		says "Mapping Path  /dev/nullb0" client device show "$name"
	done
	says "Access Mode   rw" server device show nullb0
	says "Device        $d" client show "$d"
}

tool_sessions()
{
	shows "$NAME,1,1,connected,U,min-inflight,MI,0,outgoing" client session list \
		sessname,path_cnt,act_path_cnt,state,path_uu,mp,mp_short,reconnects,direction
	shows "$NAME,1,incoming" server session list sessname,path_cnt,direction
	says "State         connected" client session show "$NAME"
	says "rxe0     1  $ADDR  connected" client session show "$NAME"
	says "rxe0     1  $OTHER" server session show "$NAME"
	expect_error "Multiple entries match" tool show "$NAME"
}

tool_paths()
{
	shows "$NAME,$OTHER@$ADDR,$OTHER,$ADDR,rxe0,1,connected,0,0,outgoing" client path list \
		sessname,pathname,src_addr,dst_addr,hca_name,hca_port,state,inflights,reconnects,direction
	shows "$NAME,$OTHER@$ADDR,$OTHER,$ADDR,rxe0,1,0,incoming" server path list \
		sessname,pathname,src_addr,dst_addr,hca_name,hca_port,inflights,direction
	says "State       connected" client path show "$OTHER@$ADDR"
	says "Path name   $OTHER@$ADDR" client path show "$NAME" rxe0:1
	says "Path name  $OTHER@$ADDR" server path show "$NAME" "$OTHER@$ADDR"
}

# bytes client|server rx|tx
bytes() { tool "$1" path list "$2_bytes" csv noheaders nototals; }

# data N BYTES: so many bytes of data, and what was said about them.
data() { [ "$1" -ge "$2" ] && [ "$1" -lt $(($2 + 65536)) ]; }

tool_traffic()
{
	local side rx tx

	for side in client server; do
		rx=$(bytes $side rx)
		tx=$(bytes $side tx)
		dd if="/dev/$(dev)" of=/dev/null bs=64k count=8 iflag=direct status=none
		dd if=/dev/zero of="/dev/$(dev)" bs=64k count=4 oflag=direct conv=nocreat status=none
		data $(($(bytes $side rx) - rx)) 524288
		data $(($(bytes $side tx) - tx)) 262144
		shows "$(bytes $side rx),$(bytes $side tx)" $side session list rx_bytes,tx_bytes
	done
	shows "$(awk '{ print $3 "," $7 }' "/sys/block/$(dev)/stat")" client device list rx_sect,tx_sect
	shows "$(awk '{ print $3 "," $7 }' /sys/block/nullb0/stat)" server device list rx_sect,tx_sect
}

# In JSON the tool leaves out the comma after outgoing sessions and paths.
tool_formats()
{
	tool server path list json >"$TMP/server"
	tool dump json | sed -E 's/^\t\]\t"/\t],\t"/' >"$TMP/json"
	{ echo "<all>"; tool dump xml; echo "</all>"; } >"$TMP/xml"
	python3 - "$TMP" "$(dev)" "$OTHER@$ADDR" <<-'END'
		import json, sys, xml.etree.ElementTree as tree
		tmp, dev, path = sys.argv[1:]
		server = json.load(open(tmp + "/server"))
		a = json.load(open(tmp + "/json"))
		x = tree.parse(tmp + "/xml")
		assert [p["hca_name"] for p in server["incoming paths"]] == ["rxe0"], server
		assert [d["devname"] for d in a["imports"]] == [dev], a
		assert [d["devname"] for d in a["exports"]] == ["nullb0"], a
		assert [s["state"] for s in a["outgoing sessions"]] == ["connected"], a
		assert [s["path_cnt"] for s in a["incoming sessions"]] == [1], a
		assert [p["pathname"] for p in a["outgoing paths"]] == [path], a
		assert [p["pathname"] for p in a["incoming paths"]] == [path], a
		assert x.findtext("imports/device/devname") == f'"{dev}"'
		assert x.findtext("exports/device/devname") == '"nullb0"'
		assert x.findtext("outgoing-sessions/session/state") == '"connected"'
		assert x.findtext("incoming-sessions/session/path_cnt") == "1"
		assert x.findtext("outgoing-paths/path/pathname") == f'"{path}"'
		assert x.findtext("incoming-paths/path/pathname") == f'"{path}"'
	END
}

# active N: so many paths are connected.
active() { [ "$(tool client session list act_path_cnt csv noheaders)" = "$1" ]; }

# tool_commands SOURCE DESTINATION: for another path.
tool_commands()
{
	local new=$1@$2 how

	says "Successfully added path" client path add "$NAME" "$new" verbose
	wait_for 10 active 2
	shows UU client session list path_uu
	expect_error "File exists" tool client path add "$NAME" "$1,$2"
	for how in "path recover $NAME $new" "path recover $new" "path reconnect $NAME $new" \
		"session recover $NAME" "session recover all"; do
		says "Successfully disconnected path '$new'" client path disconnect "$NAME" "$new" verbose
		wait_for 10 active 1
		says "disconnected" client path show "$NAME" "$new"
		# shellcheck disable=SC2086 # several words
		says "Successfully reconnected path '$new'" client $how verbose
		wait_for 10 active 2
	done
	tool client path disconnect "$new"
	wait_for 10 active 1
	tool recover all
	wait_for 10 active 2
	says "Successfully removed path '$new'" client path delete "$NAME" "$new" verbose
	wait_for 10 no_path "$new"
	shows "$OTHER@$ADDR" client path list pathname
}

tool_readds()
{
	local new=$ADDR@$OTHER

	tool client path add "$NAME" "$new"
	wait_for 10 active 2
	says "Successfully readded path '$new'" client path readd "$NAME" "$new" verbose
	wait_for 10 active 2
	tool client path delete "$new"
	wait_for 10 no_path "$new"
}

tool_reconnects()
{
	shows 0 client session list reconnects
	tool client session reconnect "$NAME"
	wait_for 10 reconnects 1
	wait_for 10 active 1
	shows 1 client session list reconnects
}

tool_disconnects()
{
	says "Successfully disconnected path" server path disconnect "$NAME" "$OTHER@$ADDR" verbose
	wait_for 30 reconnects 2
	wait_for 10 active 1
	says "Successfully disconnected path" server session disconnect "$NAME" verbose
	wait_for 30 reconnects 3
	wait_for 10 active 1
}

# A size is in bytes, or its unit is a word of its own.
tool_resizes()
{
	tool resize "$(dev)" 33554432
	same "sectors" "$(cat "/sys/block/$(dev)/size")" 65536
	tool client device resize "$(dev)" 64 M
	same "sectors" "$(cat "/sys/block/$(dev)/size")" 131072
	says "does not need to be remapped" remap "$(dev)" verbose
	says "does not need to be remapped" client session remap "$NAME" verbose
	tool client device recover "$(dev)"
}

exported() { tool server device list devname csv noheaders | has "$1"; }

# A second device of the session, whose paths the tool looks up.
tool_modes()
{
	local mode

	for mode in ro migration; do
		says "Successfully mapped '/dev/nullb1'" map /dev/nullb1 from "$NAME" "$mode" verbose
		tool client device list mapping_path,access_mode csv noheaders | has "^\"/dev/nullb1\",\"$mode\"$"
		tool server device list devname,access_mode csv noheaders | has "^\"nullb1\",\"$mode\"$"
		says "unmapped" unmap /dev/nullb1 force verbose
		wait_for 10 not exported nullb1
	done
	shows "$(dev)" client device list devname
}

# The client is not told; its requests fail until the device is mapped again.
tool_closes()
{
	says "Successfully closed device 'nullb0'" server device close nullb0 "$NAME" verbose
	wait_for 10 server_has_none
	shows "" server device list devname
	not usable "$(dev)"
	says "Successfully mapped" client session remap "$NAME" force verbose
	tool_device
	wait_for 10 usable "$(dev)"
	shows nullb0 server device list devname
}

tool_unmaps()
{
	says "unmapped" unmap "$(dev)" verbose
	wait_for 10 no_device
	shows "" client device list devname
	wait_for 10 server_has_none
	expect_error "Did not found device" tool unmap "$(dev)"
}

tool_two_paths()
{
	says "Successfully mapped" map /dev/nullb0 from "$NAME" "$OTHER@$ADDR" "$ADDR,$OTHER" verbose
	tool_device
	wait_for 10 active 2
	shows UU client session list path_uu
	says "unmapped" unmap /dev/nullb0 verbose
	wait_for 10 no_device
	wait_for 10 server_has_none
}

# Mainline's server refuses a path that it has not forgotten yet, and paths of IPv6 beside those of
# IPv4.
beyond_mainline()
{
	check "rust: the tool adds and deletes paths of IPv6, too" tool_commands ip:fd09::2 ip:fd09::1
	check "rust: the tool deletes a path and adds it again at once" tool_readds
}

# by_tool IMPLEMENTATION
by_tool()
{
	must "$1: the tool maps a device" tool_maps
	check "$1: the tool lists and shows devices" tool_devices
	check "$1: the tool lists and shows sessions" tool_sessions
	check "$1: the tool lists and shows paths" tool_paths
	check "$1: the tool counts traffic" tool_traffic
	check "$1: the tool dumps all as JSON and XML" tool_formats
	check "$1: the tool adds, disconnects, reconnects, recovers and deletes paths" tool_commands "$ADDR" "$OTHER"
	[ "$1" = c ] || beyond_mainline
	check "$1: the tool reconnects a session" tool_reconnects
	[ "$1" = c ] || check "$1: the tool disconnects paths and sessions of the server" tool_disconnects
	check "$1: the tool resizes a device, and does not map an open one again" tool_resizes
	check "$1: the tool maps devices in other modes" tool_modes
	check "$1: the tool closes a device of the server, and maps it again" tool_closes
	check "$1: the tool unmaps" tool_unmaps
	check "$1: the tool maps a device over two paths at once" tool_two_paths
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
	[ -z "${RTRS_RNBD_TOOL:-}" ] || by_tool "$1"
	check "$1: the modules unload" unload_modules
}

must "soft RoCE comes up" rxe_up rxe0 "${ADDR#ip:}/24" "${OTHER#ip:}/24" fd09::1/64 fd09::2/64
defer rxe_down rxe0
must "a null_blk" null_blk_up nullb0 64
defer null_blk_down nullb0
must "another one" null_blk_up nullb1 32
defer null_blk_down nullb1
resource_snapshot
defer unload_modules
defer unmap_all_rnbd force
check "the tool is of version 1.2.0 or later" tool_version
all rust
[ -z "${RTRS_LONG:-}" ] || all c
finish
