#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rnbd-map on a table of each kind and a copy of what RNBD has in sysfs: what it
# would tell RNBD, what it leaves alone, what it refuses. Needs no root.

set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
map=$here/../../debian/extra/rnbd-map
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export RNBD_MAPPINGS=$dir/mappings RNBD_SYSFS=$dir/sys
ctl=$dir/sys/class/rnbd-client/ctl/map_device
n=0

# same TEXT WANTED GOT
same()
{
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		printf 'ok %d %s\n' "$n" "$1"
	else
		printf 'not ok %d %s\n# wanted: %s\n# got: %s\n' "$n" "$1" "$2" "$3"
	fi
}

# run ARG...: what was told to RNBD, as far as it is a file: the last thing.
run()
{
	: >"$ctl"
	"$map" "$@" >"$dir/out" 2>"$dir/err"
	echo "$?" >"$dir/rc"
	cat "$ctl"
}
rc() { cat "$dir/rc"; }

# mapped NUMBER SESSION DEVICE: as if it were.
mapped()
{
	mkdir -p "$dir/sys/block/rnbd$1/rnbd"
	printf '%s\n' "$2" >"$dir/sys/block/rnbd$1/rnbd/session"
	printf '%s\n' "$3" >"$dir/sys/block/rnbd$1/rnbd/mapping_path"
	printf 'open\n' >"$dir/sys/block/rnbd$1/rnbd/state"
	: >"$dir/sys/block/rnbd$1/rnbd/unmap_device"
}

table() { printf '%s\n' "$@" >"$RNBD_MAPPINGS"; }
unmapped() { cat "$dir/sys/block/rnbd$1/rnbd/unmap_device"; }

mkdir -p "$(dirname "$ctl")"
printf 'TAP version 13\n1..17\n'

table '# nothing' '' 'disks disk1 ip:10.0.0.1,ip:10.1.0.2@ip:10.1.0.1'
same 'a row with two paths, one with a source' \
	'sessname=disks path=ip:10.0.0.1 path=ip:10.1.0.2@ip:10.1.0.1 device_path=disk1 access_mode=rw' "$(run)"
same 'and that succeeds' 0 "$(rc)"
table 'disks disk1 ip:fe80::1 ro,port=2000,poll=4,nofail'
same 'options; the port is before the paths' \
	'sessname=disks dest_port=2000 path=ip:fe80::1 device_path=disk1 access_mode=ro nr_poll_queues=4' "$(run)"
table 'disks disk1 ip:10.0.0.1 -' 'disks disk2 ip:10.0.0.1 -'
same 'one row of two, by name' \
	'sessname=disks path=ip:10.0.0.1 device_path=disk1 access_mode=rw' "$(run disks/disk1)"
mapped 0 disks disk2
mapped 1 other disk1
same 'what is mapped is left alone, in another session it is another one' \
	'sessname=disks path=ip:10.0.0.1 device_path=disk1 access_mode=rw' "$(run)"
run --list >/dev/null
same 'the list' $'disks/disk1\t-\tunmapped\ndisks/disk2\t/dev/rnbd0\topen' "$(cat "$dir/out")"
run --unmap >/dev/null
same 'the row that is mapped is unmapped' normal "$(unmapped 0)"
same 'a disk that is not in the table stays' '' "$(unmapped 1)"
run disks/disk3 >/dev/null
same 'a name that is not in the table' 2 "$(rc)"

# shellcheck disable=SC2016 # that it is not expanded is the point
for row in 'disks $(touch${IFS}pwned) ip:10.0.0.1' 'di;sks disk1 ip:10.0.0.1' 'disks ../sda ip:10.0.0.1' \
	'disks disk1 ip:10.0.0.1,force' 'disks disk1 ip:10.0.0.1 port=70000x' 'disks disk1'; do
	table "$row"
	same "refused: $row" ' 1' "$(run) $(rc)"
done
table 'disks disk1' 'disks disk2x ip:10.0.0.1'
same 'a bad row does not keep the others from being mapped' \
	'sessname=disks path=ip:10.0.0.1 device_path=disk2x access_mode=rw' "$(run)"
same 'but is told' 1 "$(grep -c 'line 1:' "$dir/err")"
