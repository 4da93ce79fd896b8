#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: two sessions with two paths each, IPv4 and IPv6: files in sysfs, and paths that come and go
# topology: single
# timeout: 240
# seconds: 55

. "$(dirname "$0")/lib/common.sh"
require fio rdma

CLT=/sys/class/rtrs-client
SRV=/sys/class/rtrs-server
A0=ip:10.9.0.1@ip:10.9.0.1
A1=ip:10.9.5.1@ip:10.9.5.1
B0=ip:fd09::1@ip:fd09::1
B1=ip:fd09:5::1@ip:fd09:5::1

path() { printf '%s/%s/paths/%s\n' "$CLT" "$1" "$2"; }
map_a() { map_rnbd sess-a /dev/nullb0 "${A0%@*}" "$A1" >"$TMP/a"; }
map_b() { map_rnbd sess-b /dev/nullb1 "$B0" "$B1" >"$TMP/b"; }
io() { fio_verify "$(cat "$TMP/$1")" "${2:-1M}"; }

# equal FILE TEXT
equal()
{
	local text
	text=$(cat "$1")
	[ "$text" = "$2" ] || {
		printf '%s is "%s", not "%s"\n' "$1" "$text" "$2"
		return 1
	}
}

# names DIR NAME...: the directory has exactly these names.
names()
{
	local dir=$1
	shift
	diff <(printf '%s\n' "$@" | sort) <(find "$dir/" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort)
}

has_state() { equal "$(path "$1" "$2")/state" "$3"; }

# both_at_once: IO of both sessions at the same time.
both_at_once()
{
	io a 2M &
	io b 2M
	wait $!
}

client_dirs()
{
	names "$CLT/sess-a/paths" "$A0" "$A1"
	names "$CLT/sess-b/paths" "$B0" "$B1"
	[ -L "$CLT/sess-a" ]
	[ -d /sys/devices/virtual/rtrs-client/sess-a ]
}

session_files()
{
	local d=$CLT/sess-a f

	equal $d/max_reconnect_attempts -1
	equal $d/mpath_policy "min-inflight (MI: 1)"
	equal $d/add_path "Usage: echo [<source addr>@]<destination addr> > add_path

*addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]"
	for f in max_reconnect_attempts mpath_policy mp_policy add_path; do
		equal_mode "$d/$f" 644
	done
}

equal_mode()
{
	[ "$(stat -c %a "$1")" = "$2" ] || {
		echo "mode of $1 is $(stat -c %a "$1"), not $2"
		return 1
	}
}

# path_files SESSION PATH DEVICE
path_files()
{
	local d f
	d=$(path "$1" "$2")

	equal "$d/state" connected
	equal "$d/src_addr" "${2%@*}"
	equal "$d/dst_addr" "${2#*@}"
	equal "$d/hca_name" "$3"
	equal "$d/hca_port" 1
	grep -qxE '[0-9]+ ns' "$d/cur_latency"
	grep -qxE '[0-9]+ ns' "$d/request_latency"
	equal "$d/reconnect" "Usage: echo 1 > reconnect"
	equal "$d/disconnect" "Usage: echo 1 > disconnect"
	equal "$d/remove_path" "Usage: echo 1 > remove_path"
	for f in reconnect disconnect remove_path; do
		equal_mode "$d/$f" 644
	done
	for f in state src_addr dst_addr hca_name hca_port cur_latency request_latency; do
		equal_mode "$d/$f" 444
	done
}

all_path_files()
{
	path_files sess-a $A0 rxe0
	path_files sess-a $A1 rxe1
	path_files sess-b $B0 rxe0
	path_files sess-b $B1 rxe1
}

# The server's sessions have the names that their clients gave them.
server_files()
{
	local d

	names "$SRV/sess-a/paths" "$A0" "$A1"
	names "$SRV/sess-b/paths" "$B0" "$B1"
	d=$SRV/sess-a/paths/$A1
	equal "$d/src_addr" "${A1%@*}"
	equal "$d/dst_addr" "${A1#*@}"
	equal "$d/hca_name" rxe1
	equal "$d/hca_port" 1
	equal "$d/disconnect" "Usage: echo 1 > disconnect"
	grep -qxE '[0-9]+ [0-9]+ [0-9]+ [0-9]+ [0-9]+' "$d/stats/rdma"
	equal_mode "$d/src_addr" 444
	equal_mode "$d/disconnect" 644
}

# Both paths of a session carry requests.
both_paths_used()
{
	local p n

	write "$CLT/sess-a/mpath_policy" rr
	io a
	for p in $A0 $A1; do
		n=$(awk '{ print $3 }' "$SRV/sess-a/paths/$p/stats/rdma")
		[ "$n" -gt 50 ] || {
			echo "path $p had $n writes"
			return 1
		}
	done
}

policies()
{
	local f=$CLT/sess-a/mpath_policy text

	for text in 0 round-robin Round-Robin rr RR; do
		write $f "$text"
		equal $f "round-robin (RR: 0)"
		equal $CLT/sess-a/mp_policy "round-robin (RR: 0)"
		write $f MI
		equal $f "min-inflight (MI: 1)"
	done
	write $CLT/sess-a/mp_policy $'min-latency\n'
	equal $f "min-latency (ML: 2)"
	equal $CLT/sess-b/mpath_policy "min-inflight (MI: 1)"
	write $f $'1\n'
	equal $f "min-inflight (MI: 1)"
}

attempts()
{
	local f=$CLT/sess-a/max_reconnect_attempts n

	for n in 0 7 9999 -1; do
		write $f $n
		equal $f $n
	done
	equal $CLT/sess-b/max_reconnect_attempts -1
}

# One path less; IO goes over the other one.
disconnect_one()
{
	write "$(path sess-a $A1)/disconnect" 1
	has_state sess-a $A1 disconnected
	has_state sess-a $A0 connected
	# The files of a path that is down still show these.
	equal "$(path sess-a $A1)/hca_name" rxe1
	equal "$(path sess-a $A1)/dst_addr" "${A1#*@}"
	wait_for 10 test ! -e "$SRV/sess-a/paths/$A1"
	# A second disconnect is no error.
	write "$(path sess-a $A1)/disconnect" 1
	io a
}

# A disconnected path stays down: it would otherwise be back after 1 to 1.5 seconds.
stays_down()
{
	sleep 2
	has_state sess-a $A1 disconnected
}

reconnect_one()
{
	write "$(path sess-a $A1)/reconnect" 1
	has_state sess-a $A1 connected
	[ -d "$SRV/sess-a/paths/$A1" ]
	io a
}

reconnect_connected()
{
	local n

	for n in 1 2 3; do
		write "$(path sess-b $B0)/reconnect" $'1\n'
		has_state sess-b $B0 connected
	done
	io b
}

remove_one()
{
	write "$(path sess-a $A1)/remove_path" 1
	names "$CLT/sess-a/paths" "$A0"
	wait_for 10 test ! -e "$SRV/sess-a/paths/$A1"
	io a
}

# add_again SEPARATOR
add_again()
{
	write $CLT/sess-a/add_path "${A1%@*}$1${A1#*@}"
	has_state sess-a $A1 connected
	names "$CLT/sess-a/paths" "$A0" "$A1"
	io a
}

# A path of another address family, beside the IPv4 ones, and without a source address.
add_ipv6()
{
	write $CLT/sess-a/add_path $'ip:fd09:5::1\n'
	names "$CLT/sess-a/paths" "$A0" "$A1" "$B1"
	has_state sess-a $B1 connected
	io a
	write "$(path sess-a $B1)/remove_path" 1
	names "$CLT/sess-a/paths" "$A0" "$A1"
}

add_twice()
{
	expect_error "File exists" write $CLT/sess-a/add_path $A0
	names "$CLT/sess-a/paths" "$A0" "$A1"
	has_state sess-a $A0 connected
}

# reconnects SESSION PATH: how many times it came back.
reconnects() { cut -d ' ' -f 1 "$(path "$1" "$2")/stats/reconnects"; }

# The server ends a path, and the client reconnects it.
server_disconnects()
{
	local before
	before=$(reconnects sess-a $A0)

	write "$SRV/sess-a/paths/$A0/disconnect" 1
	wait_for 30 eval "[ \$(reconnects sess-a $A0) -gt $before ]"
	wait_for 30 has_state sess-a $A0 connected
	wait_for 10 test -e "$SRV/sess-a/paths/$A0/disconnect"
	io a
}

gone()
{
	unmap_rnbd "$(cat "$TMP/$1")"
	wait_for 10 test ! -e "$CLT/sess-$1"
	wait_for 10 test ! -e "$SRV/sess-$1"
}

no_session()
{
	find "$CLT/" "$SRV/" -mindepth 1 -maxdepth 1 | tee "$TMP/left"
	[ ! -s "$TMP/left" ]
}

must "first soft RoCE comes up" rxe_up rxe0
defer rxe_down rxe0
must "second soft RoCE comes up" rxe_up rxe1 10.9.5.1/24 fd09:5::1/64
defer rxe_down rxe1
must "two disks" eval "null_blk_up nullb0 64 && null_blk_up nullb1 64"
defer null_blk_down nullb0
defer null_blk_down nullb1
rnbd_up
must "first session: IPv4, one source given and one not" map_a
must "second session: IPv6" map_b
check "directories of the client" client_dirs
check "files of a session" session_files
check "files of all paths" all_path_files
check "files of the server" server_files
check "IO of both sessions at once" both_at_once
check "both paths are used" both_paths_used
check "policy: what is accepted" policies
check "max_reconnect_attempts: what is accepted" attempts
check "disconnect: IO takes the other path" disconnect_one
check "a path that was disconnected stays down" stays_down
check "reconnect brings it back" reconnect_one
check "reconnect of a connected path" reconnect_connected
check "remove_path: IO takes the other path" remove_one
check "add_path src@dst" add_again @
check "remove_path again" remove_one
check "add_path src,dst" add_again ,
check "add_path of another family, without a source" add_ipv6
check "add_path of a path that is there" add_twice
check "a path that the server ends comes back" server_disconnects
check "the second session is as it was" io b
check "the first session goes" gone a
check "the second one still works" io b
check "the second session goes" gone b
check "no session is left" no_session
finish
