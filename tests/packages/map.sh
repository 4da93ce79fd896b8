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

# The kernel's answers to rows, as bash reports them: some servers are silent, as is one path of
# others; one has room for one path only, one does not have the disk, one was mapped by another run
# meanwhile, and a disk is looked at by udev. Only sleeping moves the clock on.
cat >"$dir/answers" <<'EOF'
unset SECONDS
SECONDS=0
sleep() { SECONDS=$((SECONDS + $1)); }
printf()
{
	local why= out=/proc/self/fd/1 # not /dev/stdout: not each machine has that
	builtin printf "$@"
	if [ $out -ef "${SYSFS:-}/block/rnbd0/rnbd/unmap_device" ] && [ -e "$TOLD.busy" ]; then
		why='Device or resource busy'
	fi
	[ -n "$why" ] || [ $out -ef "${CTL:-}" ] || [ $out -ef "${SYSFS:-}/class/rtrs-client/half/add_path" ] || return 0
	case $2 in
	sessname=full*' path='*' path='*) why='Cannot allocate memory' ;;
	sessname=half*ip:10.1.0.1*) why='Cannot assign requested address' ;;
	sessname=half*)
		mkdir -p "$SYSFS/class/rtrs-client/half" "$SYSFS/block/rnbd3/rnbd"
		: >"$SYSFS/class/rtrs-client/half/add_path"
		echo half >"$SYSFS/block/rnbd3/rnbd/session"
		echo disk1 >"$SYSFS/block/rnbd3/rnbd/mapping_path" ;;
	ip:10.1.0.1) [ -e "$TOLD.repaired" ] || why='Connection timed out' ;;
	ip:10.2.0.1) why='File exists' ;;
	sessname=twice*) why='File exists'; [ ! -e "$TOLD.twice" ] || cp "$TOLD.twice" "$SYSFS/block/rnbd2/rnbd/session" ;;
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
# over: the same, with the paths of each row.
over()
{
	attempts "$@" >/dev/null
	sed 's,^sessname=\([^ ]*\) \(.*\) device_path=\([^ ]*\) .*,\1/\3 \2,; s,path=,,g' "$dir/told" | paste -s -d ';'
}

# Nothing makes links here. What rnbd-map waits for is recorded.
mkdir -p "$dir/bin"
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>"%s/waited"\nrm -f "%s/told.busy"\n' "$dir" "$dir" >"$dir/bin/udevadm"
chmod 755 "$dir/bin/udevadm"
PATH=$dir/bin:$PATH

table() { printf '%s\n' "$@" >"$RNBD_MAPPINGS"; }
unmapped() { cat "$dir/sys/block/rnbd$1/rnbd/unmap_device"; }

mkdir -p "$(dirname "$ctl")"
printf 'TAP version 13\n1..63\n'

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
: >"$dir/told.busy"
attempts --unmap >/dev/null
same 'a disk that udev looks at is unmapped when it is done' 'normal 0' "$(unmapped 0) $(rc)"
: >"$dir/told.busy"
mv "$dir/bin/udevadm" "$dir/bin/away"
ln -s /bin/true "$dir/bin/udevadm"
attempts --unmap >/dev/null
same 'one that is in use stays, with a status of its own' 3 "$(rc)"
same 'and is told' 'rnbd-map: disks/disk2 is still mapped: Device or resource busy' "$(cat "$dir/err")"
mv "$dir/bin/away" "$dir/bin/udevadm"
rm "$dir/told.busy"
run disks/disk3 >/dev/null
same 'a name that is not in the table' 2 "$(rc)"

# shellcheck disable=SC2016 # that it is not expanded is the point
for row in 'disks $(touch${IFS}pwned) ip:10.0.0.1' 'di;sks disk1 ip:10.0.0.1' 'disks ../sda ip:10.0.0.1' \
	'disks disk1 ip:10.0.0.1,force' 'disks disk1 ip:10.0.0.1 port=65536' 'disks disk1 ip:10.0.0.1 port=08' \
	'disks disk1 ip:10.0.0.1,ip:10.0.0.2,ip:10.0.0.3,ip:10.0.0.4,ip:10.0.0.5,ip:10.0.0.6,ip:10.0.0.7' 'disks disk1'; do
	table "$row"
	same "refused: $row" ' 1' "$(run) $(rc)"
done
table 'disks disk1' 'disks disk2x ip:10.0.0.1'
same 'a bad row does not keep the others from being mapped' \
	'sessname=disks path=ip:10.0.0.1 device_path=disk2x access_mode=rw' "$(run)"
same 'but is told' 1 "$(grep -c 'line 1:' "$dir/err")"
table 'a-b c ip:10.0.0.1' 'a b-c ip:10.0.0.2'
same 'two rows with one link: the first is mapped' 'sessname=a-b path=ip:10.0.0.1 device_path=c access_mode=rw' "$(run)"
same 'the second is refused' '1 1' "$(rc) $(grep -c 'line 2: the link a-b-c is that of line 1' "$dir/err")"
table 'disks disk1x ip:10.0.0.1' 'disks disk1x ip:10.0.0.1 ro'
same 'the same disk twice is refused, too' 'sessname=disks path=ip:10.0.0.1 device_path=disk1x access_mode=rw 1' "$(run) $(rc)"

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
same 'other paths may get there, one by one' \
	'silent1/disk1 ip:10.0.0.1;silent1/disk2 ip:10.0.0.1 ip:10.1.0.1;silent1/disk2 ip:10.0.0.1;silent1/disk2 ip:10.1.0.1' "$(over)"
mkdir -p "$dir/sys/class/rtrs-client/silent1"
same 'but not if the session is there' 'silent1/disk1 silent1/disk2' "$(attempts)"
table 'silent1 disk1 ip:10.0.0.1 nofail' 'good disk4 ip:10.0.0.3'
same 'rows with nofail come last, and are not waited for' 'good/disk4 silent1/disk1' "$(attempts --wait 08)"
same 'and that succeeds' 0 "$(rc)"
same 'but is told' 'rnbd-map: silent1/disk1 is not mapped: Connection timed out' "$(cat "$dir/err")"
table 'silent1 disk1 ip:10.0.0.1 nofail' 'down1 disk1 ip:10.0.0.2'
same 'they are not tried again along with others' 'down1/disk1 silent1/disk1 down1/disk1' \
	"$(attempts --wait 5)"
left=$dir/left
table 'silent1 disk1 ip:10.0.0.1 nofail' 'down1 disk1 ip:10.0.0.2' 'good disk4 ip:10.0.0.3'
same 'what is left is noted' 'down1/disk1 silent1/disk1 1' \
	"$(attempts --left "$left" >/dev/null; paste -s -d ' ' "$left") $(rc)"
table 'silent1 disk1 ip:10.0.0.1 nofail' 'good disk4 ip:10.0.0.3' 'good disk5 ip:10.0.0.3'
same 'only that is mapped again, if it is still in the table' 'silent1/disk1' "$(attempts --again "$left")"
same 'what is still left is noted' 'silent1/disk1 0' "$(cat "$left") $(rc)"
table 'good disk4 ip:10.0.0.3' 'good disk5 ip:10.0.0.3'
echo good/disk5 >"$left"
same 'a server that is back' 'good/disk5' "$(attempts --again "$left")"
same 'nothing is left' '' "$(cat "$left")"
same 'and nothing is mapped again' ' 0' "$(attempts --again "$left") $(rc)"

# RNBD opens it for another run.
mapped 2 twice disk1
mv "$dir/sys/block/rnbd2/rnbd/session" "$dir/told.twice"
table 'twice disk1 ip:10.0.0.1' 'twice disk2 ip:10.0.0.1'
same 'what another run maps meanwhile is mapped' 'twice/disk1 twice/disk2 1' "$(attempts) $(rc)"
same 'what it does not map is not' 'rnbd-map: twice/disk2 is not mapped: File exists' "$(cat "$dir/err")"

# Of three paths the first one is not there, and the session has the third one already.
table 'half disk1 ip:10.1.0.1,ip:10.0.0.1,ip:10.2.0.1'
same 'a path that cannot be reached does not keep the others from being used' \
	"half/disk1 ip:10.1.0.1 ip:10.0.0.1 ip:10.2.0.1;half/disk1 ip:10.1.0.1;half/disk1 ip:10.0.0.1;ip:10.2.0.1 1" \
	"$(over --left "$left") $(rc)"
same 'but is told' 'rnbd-map: half/disk1 is mapped without ip:10.1.0.1: Cannot assign requested address' "$(cat "$dir/err")"
same 'and is noted' 'half/disk1 ip:10.1.0.1' "$(cat "$left")"
table 'full disk1 ip:10.0.0.1,ip:10.0.0.2'
same 'nor does a server that has room for one path only' \
	'full/disk1 ip:10.0.0.1 ip:10.0.0.2;full/disk1 ip:10.0.0.1 1' "$(over) $(rc)"
table 'half disk1 ip:10.1.0.1,ip:10.0.0.1,ip:10.2.0.1'
mapped 3 half disk1
same 'what is mapped is left alone' ' 0' "$(attempts) $(rc)"
echo half/disk1 ip:10.1.0.1 >"$left"
same 'only the path is tried again' 'ip:10.1.0.1 1' "$(attempts --again "$left") $(rc)"
same 'which is told' 'rnbd-map: half/disk1 is mapped without ip:10.1.0.1: Connection timed out' "$(cat "$dir/err")"
: >"$dir/told.repaired"
same 'and added when it is there' 'ip:10.1.0.1 0' "$(attempts --again "$left") $(rc)"
same 'nothing is left' '' "$(cat "$left")"
rm -r "$dir/sys/block/rnbd3" "$dir/told.repaired"
echo half/disk1 ip:10.1.0.1 >"$left"
same 'a disk that was unmapped meanwhile stays so, others of its session get the path' 'ip:10.1.0.1 1' \
	"$(attempts --again "$left") $(rc)"
same 'that its session is without it is told' \
	'rnbd-map: session half is without ip:10.1.0.1: Connection timed out' "$(cat "$dir/err")"
rm -r "$dir/sys/class/rtrs-client/half"
same 'without its session that is forgotten' ' 0' "$(attempts --again "$left")$(cat "$left") $(rc)"
echo half/disk1 ip:10.3.0.1 >"$left"
same 'a path that is not in the table any more is forgotten' ' 0' "$(attempts --again "$left")$(cat "$left") $(rc)"
table 'half disk1 ip:10.1.0.1,ip:10.0.0.1 nofail'
same 'with nofail that is no failure' 'half/disk1 half/disk1 half/disk1 0' "$(attempts --wait 60) $(rc)"

table 'good disk4 ip:10.0.0.3' 'good disk5'
same 'a wrong row is noted as well' '# 1' "$(attempts --left "$left" >/dev/null; cat "$left") $(rc)"
same 'so that each further run fails' ' # 1' "$(attempts --again "$left") $(cat "$left") $(rc)"
table 'good disk4 ip:10.0.0.3' 'good disk5 ip:10.0.0.3'
same 'until it is mended' ' 0' "$(attempts --again "$left")$(cat "$left") $(rc)"
