#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rnbd-map on a table of each kind and a copy of RNBD's files in sysfs: what it would write to RNBD,
# what it leaves alone, what it refuses. Needs no root.

set -uo pipefail

# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

map=$repo/debian/extra/rnbd-map
export RNBD_MAPPINGS=$dir/mappings RNBD_SYSFS=$dir/sys
ctl=$dir/sys/class/rnbd-client/ctl/map_device

# run ARG...: print what was written to RNBD; a file keeps only the last write.
run()
{
	: >"$ctl"
	"$map" "$@" >"$dir/out" 2>"$dir/err"
	echo "$?" >"$dir/rc"
	cat "$ctl"
}
rc() { cat "$dir/rc"; }

# mapped NUMBER SESSION DEVICE: make the links as if it were mapped.
mapped()
{
	mkdir -p "$dir/sys/block/rnbd$1/rnbd"
	printf '%s\n' "$2" >"$dir/sys/block/rnbd$1/rnbd/session"
	printf '%s\n' "$3" >"$dir/sys/block/rnbd$1/rnbd/mapping_path"
	printf 'open\n' >"$dir/sys/block/rnbd$1/rnbd/state"
	: >"$dir/sys/block/rnbd$1/rnbd/unmap_device"
}

# The kernel's answers to rows, as bash reports them: some servers are silent, one does not have the
# disk. Only sleeping moves the clock on.
cat >"$dir/answers" <<'EOF'
unset SECONDS
SECONDS=0
sleep() { SECONDS=$((SECONDS + $1)); }
printf()
{
	local why=
	builtin printf "$@"
	[ /dev/stdout -ef "${CTL:-}" ] || return 0
	case $2 in
	sessname=silent*) why='Connection timed out' ;;
	sessname=down*) why='No route to host' ;;
	*' device_path=absent '*) why='No such file or directory' ;;
	esac
	builtin printf '%s\n' "$2" >>"$TOLD"
	[ -z "$why" ] || { builtin printf 'line 1: printf: write error: %s\n' "$why" >&2; return 1; }
}
EOF

# attempts ARG...: the rows that RNBD is told to map, in their order.
attempts()
{
	: >"$dir/told"
	BASH_ENV=$dir/answers TOLD=$dir/told "$map" "$@" >"$dir/out" 2>"$dir/err"
	echo "$?" >"$dir/rc"
	sed 's,^sessname=\([^ ]*\) .*device_path=\([^ ]*\) .*,\1/\2,' "$dir/told" | paste -s -d ' '
}

# Nothing makes links here. What rnbd-map waits for is recorded.
mkdir -p "$dir/bin"
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>"%s/waited"\n' "$dir" >"$dir/bin/udevadm"
chmod 755 "$dir/bin/udevadm"
PATH=$dir/bin:$PATH

table() { printf '%s\n' "$@" >"$RNBD_MAPPINGS"; }
unmapped() { cat "$dir/sys/block/rnbd$1/rnbd/unmap_device"; }

mkdir -p "$(dirname "$ctl")"
printf 'TAP version 13\n1..35\n'

table '# nothing' '' 'disks disk1 ip:10.0.0.1,ip:10.1.0.2@ip:10.1.0.1'
same 'a row with two paths, one with a source' \
	'sessname=disks path=ip:10.0.0.1 path=ip:10.1.0.2@ip:10.1.0.1 device_path=disk1 access_mode=rw' "$(run)"
same 'and that succeeds' 0 "$(rc)"
same 'when there is a link to it' 'settle --timeout=30' "$(cat "$dir/waited")"
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

table 'silent1 disk1 ip:10.0.0.1' 'silent1 disk2 ip:10.0.0.1' 'silent1 disk3 ip:10.0.0.1' \
	'down1 disk1 ip:10.0.0.2' 'down1 disk2 ip:10.0.0.2' 'good absent ip:10.0.0.3' 'good disk4 ip:10.0.0.3'
: >"$dir/waited"
same 'a silent server is tried once, rows of others behind it are mapped' \
	'silent1/disk1 down1/disk1 good/absent good/disk4' "$(attempts)"
same 'that fails' 1 "$(rc)"
same 'only the mapped one is waited for' 'settle --timeout=30' "$(cat "$dir/waited")"
same 'each row that is not mapped is told' 6 "$(grep -c ' is not mapped: ' "$dir/err")"
same 'with the reason of its session' 1 "$(grep -c 'silent1/disk3 is not mapped: Connection timed out' "$dir/err")"
same 'the next round tries it again' 'silent1/disk1 silent1/disk1 silent1/disk1' \
	"$(attempts --wait 10 silent1/disk1 silent1/disk2)"
table 'silent1 disk1 ip:10.0.0.1' 'silent1 disk2 ip:10.0.0.1,ip:10.1.0.1' 'silent1 disk3 ip:10.0.0.1 ro'
same 'other paths may get there' 'silent1/disk1 silent1/disk2' "$(attempts)"
table 'silent1 disk1 ip:10.0.0.1 nofail' 'good disk4 ip:10.0.0.3'
same 'rows with nofail are not waited for' 'silent1/disk1 good/disk4' "$(attempts --wait 60)"
same 'and that succeeds' 0 "$(rc)"
same 'but is told' 'rnbd-map: silent1/disk1 is not mapped: Connection timed out' "$(cat "$dir/err")"
table 'silent1 disk1 ip:10.0.0.1 nofail' 'down1 disk1 ip:10.0.0.2'
same 'they are tried again along with others' 'silent1/disk1 down1/disk1 silent1/disk1 down1/disk1' \
	"$(attempts --wait 5)"
left=$dir/left
table 'silent1 disk1 ip:10.0.0.1 nofail' 'down1 disk1 ip:10.0.0.2' 'good disk4 ip:10.0.0.3'
same 'what is left is noted' 'silent1/disk1 down1/disk1 1' \
	"$(attempts --left "$left" >/dev/null; paste -s -d ' ' "$left") $(rc)"
table 'silent1 disk1 ip:10.0.0.1 nofail' 'good disk4 ip:10.0.0.3' 'good disk5 ip:10.0.0.3'
same 'only that is mapped again, if it is still in the table' 'silent1/disk1' "$(attempts --again "$left")"
same 'what is still left is noted' 'silent1/disk1 0' "$(cat "$left") $(rc)"
table 'good disk4 ip:10.0.0.3' 'good disk5 ip:10.0.0.3'
echo good/disk5 >"$left"
same 'a server that is back' 'good/disk5' "$(attempts --again "$left")"
same 'nothing is left' '' "$(cat "$left")"
same 'and nothing is mapped again' ' 0' "$(attempts --again "$left") $(rc)"
