# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The building blocks of boot.sh: the commands of README.md, and questions to the two hosts of
# hosts.sh. Scripts in quotes are for the hosts.
#
# To be sourced, with "repo" and "release" set.
# shellcheck disable=SC2016,SC2154

# shellcheck source=../../lib/commands.sh
. "$repo/tests/lib/commands.sh"

# steps: the commands of README, one per line.
steps()
{
	readme_commands "$repo/README.md" '## Install on two hosts' 'Without packages' \
		'systemctl|rnbd-map|apt-get|modprobe'
}

# readme PATTERN: put the next command into CMD. The test expects one that matches, and uses its own
# disk.
readme()
{
	CMD=${STEPS[$NEXT]:-nothing}
	# shellcheck disable=SC2053 # it is a pattern
	[[ $CMD == $1 ]] || { echo "README says: $CMD"; echo "expected was: $1"; return 1; }
	NEXT=$((NEXT + 1))
	CMD=${CMD//nvme-XYZ/virtio-XYZ}
	CMD=${CMD//'$(uname -r)'/$release}
}

# must TEXT CMD...: a step that the rest depends on.
must()
{
	local t0=$SECONDS
	check "$@" || exit 1
	say "$1: $((SECONDS - t0)) s"
}

both() { "$@" server && "$@" client; }
in_images() { readme "$1" && inside server "$CMD" && inside client "$CMD"; }
on_host() { readme "$2" && on "$1" "$CMD"; }
all_known() { [ "$NEXT" = "${#STEPS[@]}" ] || { echo "not known: ${STEPS[*]:$NEXT}"; return 1; }; }
update() { inside "$1" 'apt-get update'; }

boot_both() { start server && start client && booted server "$1" && booted client "$1"; }
reboot() { down "$1" && start "$1" && booted "$1" "$2"; }
boots() { start "$1" "${3:-}" && booted "$1" "$2"; }

# poll SECONDS CONDITION: part of a script.
poll() { printf 'for i in $(seq %d); do if %s; then exit 0; fi; sleep 1; done; dmesg | tail -n 20; exit 1' "$1" "$2"; }
state() { on client "$(poll 120 "[ \"\$(cat /sys/class/rtrs-client/alpha/state)\" = '$1' ]")"; }

untouched()
{
	on "$1" '! lsmod | grep -E "^(rtrs|rnbd|rdma_rxe)" && ! systemctl list-units --no-legend "rnbd*" "rtrs*" | grep .'
}

# Soft RoCE on both links. One host starts both units at the same time, as at boot.
soft_roce()
{
	readme 'systemctl enable --now rtrs-rxe@eth0' || return
	on server "$CMD rtrs-rxe@eth1 || { journalctl -b --no-pager -u 'rtrs-rxe@*'; dmesg | grep -i -E 'rxe|infiniband'; exit 1; }" &&
		on client "$CMD" && on client "${CMD/eth0/eth1}"
}
# The module is not loaded before, as at boot: it opens its port with the first device. systemd
# starts a unit at most five times in ten seconds.
at_once()
{
	on "$1" 'for i in 1 2 3 4 5 6; do
			sleep 2; systemctl stop rtrs-rxe@eth0 rtrs-rxe@eth1 && modprobe -r rdma_rxe &&
				systemctl start rtrs-rxe@eth0 rtrs-rxe@eth1 || { dmesg | tail -n 20; exit 1; }
		done'
}
has_soft_roce() { on "$1" 'rdma link; [ "$(rdma link | grep -c "^link rxe_eth[01]/1 state ACTIVE")" = 2 ]'; }

# settled HOST: systemd reports it when the last job of booting has ended.
settled()
{
	on "$1" 'systemctl is-system-running --wait; systemctl --failed --no-legend; systemctl list-jobs --no-legend
		[ "$(systemctl is-system-running)" = running ] || { journalctl -b --no-pager -p warning | tail -n 30; exit 1; }'
}

# found_by_uuid: the disk has the link that a line UUID= in fstab needs.
found_by_uuid()
{
	on client 'dev=$(readlink -f /dev/disk/by-rnbd/alpha-disk1); uuid=$(blkid -p -o value -s UUID "$dev")
		ls -l /dev/disk/by-uuid
		[ -n "$uuid" ] && [ "$(readlink -f "/dev/disk/by-uuid/$uuid")" = "$dev" ] && udevadm info "$dev" | grep ID_FS_TYPE=ext4'
}

# made_anew HOST: the name of the interface is one that systemd has to escape.
made_anew()
{
	on "$1" "ip link add br-lan type bridge && systemctl enable --now \"rtrs-rxe@\$(systemd-escape br-lan)\" &&
		rdma link | grep rxe_br-lan && ip link delete br-lan && $(poll 30 '! rdma link | grep rxe_br-lan')" &&
		on "$1" "$(poll 30 '[ "$(systemctl show -P ActiveState "rtrs-rxe@$(systemd-escape br-lan)")" = inactive ]')" &&
		on "$1" "ip link add br-lan type bridge; $(poll 30 'rdma link | grep rxe_br-lan')" && settled "$1" &&
		on "$1" 'systemctl disable --now "rtrs-rxe@$(systemd-escape br-lan)" && ip link delete br-lan'
}

write_data() { on client 'head -c 64M /dev/urandom >/mnt/data && sha256sum /mnt/data >/mnt/sum && sync'; }
# Twice the interval of rnbd-map's timer.
mounted() { on client "$(poll 300 'mountpoint -q /mnt')" 360; }
data_there() { mounted && on client 'echo 3 >/proc/sys/vm/drop_caches && findmnt /mnt && sha256sum -c /mnt/sum'; }

# IO that never pauses, and ends at the first error.
io()
{
	on client 'rm -f /run/enough; systemd-run -q --unit=io --property=RemainAfterExit=yes sh -c \
		"while [ ! -e /run/enough ]; do dd if=/dev/zero of=/mnt/io bs=64k count=16 oflag=direct conv=fsync status=none || exit; done"'
}
io_ended()
{
	on client 'touch /run/enough
		for i in $(seq 120); do [ "$(systemctl show -P SubState io)" = running ] || break; sleep 1; done
		systemctl show -P SubState,Result io
		[ "$(systemctl show -P SubState io) $(systemctl show -P Result io)" = "exited success" ]'
}

# nothing_left HOST: no file in it has a name of this project, except for its kernel sources. That
# includes the names in depmod's files.
nothing_left()
{
	inside "$1" '
		! find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /run -o -path "/usr/src/linux-*" \) \
			-prune -o \( -name "*rtrs*" -o -name "*rnbd*" \) -print | grep . || exit
		! grep -E "rtrs|rnbd" /usr/lib/modules/*/modules.dep || exit
		[ -z "$(dpkg --audit)" ] && ! dpkg -l | grep rtrs'
}

# From soft RoCE to the mounted file system, by the commands of README.
to_mount()
{
	must 'README: soft RoCE, on two interfaces at once and on one after the other' soft_roce
	check 'units that start at the same time wait for each other' at_once server
	check 'the server has two devices' has_soft_roce server
	check 'the client has two devices' has_soft_roce client
	must 'README: the disk to offer' on_host server 'ln -s /dev/disk/by-id/* /etc/rnbd/export/disk1'
	must 'README: the server at each boot' on_host server 'sed -i *rnbd-server* /etc/modules-load.d/rnbd.conf'
	must 'README: the server now' on_host server 'modprobe rnbd-server'
	must 'README: the mapping' on_host client "echo 'alpha disk1 ip:10.0.0.1,ip:10.1.0.1 -' >> /etc/rnbd/mappings"
	must 'README: mapped, now and at each boot' on_host client 'systemctl enable --now rnbd-map'
	must 'README: mkfs, at once' on_host client 'mkfs.ext4 /dev/disk/by-rnbd/alpha-disk1'
	must 'README: the line of fstab' on_host client "echo '/dev/disk/by-rnbd/alpha-disk1 /mnt ext4 *' >> /etc/fstab"
	must 'README: mount' on_host client 'systemctl daemon-reload && mount /mnt'
	check 'both paths are connected' state 'connected 2/2'
	must 'data are written' write_data
}
