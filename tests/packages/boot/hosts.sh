# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Two emulated hosts of boot.sh, "server" and "client", and how they are told what
# to do. Each has an image, DIR/HOST.img, and boots from it; two links go from one to
# the other. The server has a second disk with the serial number XYZ.
#
# To be sourced, with "dir", "debs" and RTRS_* set.
# shellcheck disable=SC2154

declare -A QEMU=() TO=() FROM=()
ASKED=0
# Emulated processors are slow, and two of them may share one.
BOOT_LIMIT=600
# Names of disks are not the same at each boot, so the root is found by its label. The rest is as the
# VM tests have it, tests/vm/src/platform.rs: a busy machine serves emulated timers late.
CMDLINE="root=LABEL=root ro console=ttyS0 net.ifnames=0 mitigations=off tsc=nowatchdog no_timer_check \
random.trust_cpu=on watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=90 panic=-1 oops=panic"

chan() { printf '%s/%s.agent' "$dir" "$1"; }

# qemu_args HOST: arguments that differ.
qemu_args()
{
	local i end=server=on own=1
	if [ "$1" = server ]; then
		printf '%s\n' -drive "file=$dir/disk.img,format=raw,if=none,id=disk" \
			-device virtio-blk-pci,drive=disk,serial=XYZ,write-cache=off
	else
		end=server=off,reconnect-ms=200 own=2
	fi
	for i in 0 1; do
		printf '%s\n' -netdev "stream,id=link$i,$end,addr.type=unix,addr.path=$dir/link$i" \
			-device "virtio-net-pci,id=nic$i,netdev=link$i,romfile=,mac=52:54:00:11:0$own:0$i"
	done
}

# start HOST [RELEASE]: from its own /boot.
start()
{
	local host=$1 args to from
	mkdir -p "$dir/$host"
	"$HERE/image.sh" kernel "$dir/$host.img" "$dir/$host" ${2:+"$2"} || return
	mapfile -t args < <(qemu_args "$host")
	# Nothing that was said before it was switched off.
	exec {to}<>"$(chan "$host").in" {from}<>"$(chan "$host").out" || return
	TO[$host]=$to FROM[$host]=$from
	while read -r -t 0.1 -u "${FROM[$host]}" _; do :; done
	printf '\n=== boot\n' >>"$dir/$host.console"
	"$RTRS_ENV/enter.sh" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
		-M pc,hpet=off -accel tcg,thread=multi,tb-size=512 \
		-cpu max,la57=off,erms=off,fsrm=off,fsrs=off,fzrm=off -smp 1 -m 1536 \
		-kernel "$dir/$host/vmlinuz" -initrd "$dir/$host/initrd.img" -append "$CMDLINE" \
		-chardev "file,id=console,path=$dir/$host.console,append=on" -serial chardev:console \
		-chardev "pipe,id=agent,path=$(chan "$host")" -serial chardev:agent \
		-drive "file=$dir/$host.img,format=raw,if=virtio,cache=unsafe" "${args[@]}" \
		</dev/null >"$dir/$host.qemu" 2>&1 &
	QEMU[$host]=$!
}

alive() { [ -n "${QEMU[$1]:-}" ] && kill -0 "${QEMU[$1]}" 2>/dev/null; }

# answer HOST ID SECONDS: what it says to that, with the status it had. A line may arrive in parts:
# when the time of a "read" is over, the variable has what came so far, and the next one gets the
# rest.
answer()
{
	local host=$1 part line='' id rc text end=$((SECONDS + $3))
	while [ "$SECONDS" -lt "$end" ]; do
		if IFS= read -r -t 2 -u "${FROM[$host]}" part; then
			read -r id rc text <<<"$line$part"
			line=
			[ "$id" = "@$2" ] || { echo "$host also said: $id $rc" >&2; continue; }
			base64 -d <<<"$text"
			return "$rc"
		fi
		line+=$part
		alive "$host" || { echo "$host is gone"; return 1; }
	done
	echo "$host did not answer in $3 s${line:+, but began to: ${line:0:40}}"
	return 1
}

# booted HOST RELEASE: when it has.
booted()
{
	local got
	got=$(answer "$1" 0 "$BOOT_LIMIT") || { echo "$got"; tail -n 30 "$dir/$1.console"; return 1; }
	echo "$1 runs $got"
	[ "$got" = "$2" ]
}

# tell HOST SCRIPT: without waiting for it.
tell()
{
	ASKED=$((ASKED + 1))
	printf '%d %s\n' "$ASKED" "$(base64 -w 0 <<<"$2")" >&"${TO[$1]}"
}

# on HOST SCRIPT [SECONDS]
on()
{
	alive "$1" || { echo "$1 is not running"; return 1; }
	tell "$1" "$2"
	answer "$1" "$ASKED" "${3:-240}"
}

# gone HOST: when it has switched itself off, or wants to boot again.
gone()
{
	local end=$((SECONDS + 300))
	while alive "$1"; do
		[ "$SECONDS" -lt "$end" ] || { echo "$1 does not go down"; tail -n 30 "$dir/$1.console"; return 1; }
		sleep 1
	done
	wait "${QEMU[$1]}"
}

# An answer may come first, or the end.
down() { tell "$1" 'systemctl --no-block reboot' && gone "$1"; }

# inside HOST SCRIPT: in a chroot of its image, while it is switched off.
inside() { RTRS_BIND=$debs "$HERE/image.sh" run "$dir/$1.img" "$2"; }

# An empty disk, and nothing that was said before.
new_hosts()
{
	rm -f "$dir"/*.agent.* "$dir/disk.img"
	mkfifo "$dir"/{server,client}.agent.{in,out} && truncate -s 512M "$dir/disk.img"
}

hosts_down()
{
	local host
	for host in "${!QEMU[@]}"; do
		! alive "$host" || kill "${QEMU[$host]}"
		wait "${QEMU[$host]}" 2>/dev/null
	done
}
