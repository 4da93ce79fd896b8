#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# desc: README's commands without packages, and those under "What to measure", word by word, between two guests
# topology: pair
# timeout: 240
# seconds: 60

. "$(dirname "$0")/lib/common.sh"
. "$RTRS_LIB/commands.sh"
require fio rdma depmod

README=$(dirname "$0")/../README.md
# Addresses of README: the server's are 10.0.0.1 and 10.1.0.1.
HOST=2
is_client || HOST=1

# follow PATTERN [REGEX]: run README's next command, which must match PATTERN; its output must have a
# line that matches REGEX.
NEXT=0
follow()
{
	local cmd=${STEPS[$NEXT]:-nothing}

	# shellcheck disable=SC2053 # it is a pattern
	[[ $cmd == $1 ]] || { echo "README says: $cmd"; echo "expected was: $1"; return 1; }
	echo "$cmd"
	bash -ec "$cmd" >"$TMP/out" 2>&1 || { cat "$TMP/out"; return 1; }
	cat "$TMP/out"
	grep -qE "${2:-}" "$TMP/out" || [ -z "${2:-}" ]
}

# step TEXT PATTERN [REGEX]
step()
{
	check "README: $1" follow "$2" "${3:-}"
	NEXT=$((NEXT + 1))
}

# installed: the modules are where "make modules_install" places them.
installed()
{
	local lib needed
	lib=/lib/modules/$(uname -r)

	mkdir -p "$TMP/up" && mount -t tmpfs tmpfs "$TMP/up" && mkdir "$TMP/up/upper" "$TMP/up/work"
	mount -t overlay overlay "$lib" -o "lowerdir=$lib,upperdir=$TMP/up/upper,workdir=$TMP/up/work"
	mkdir "$lib/updates"
	cp "$RTRS_MODULES"/rtrs-{core,client,server}.ko "$RTRS_CPEER"/rnbd-{client,server}.ko "$lib/updates"
	# To read all modules takes an emulated processor minutes. These are all that are loaded here.
	modprobe -a --show-depends "${MODPROBE_RDMA[@]}" null_blk |
		awk '$1 == "insmod" { print $2 }' | sort -u >"$TMP/needed"
	mapfile -t needed <"$TMP/needed"
	depmod "$(uname -r)" "${needed[@]}" "$lib"/updates/*.ko
}

not_installed() { umount "/lib/modules/$(uname -r)" && umount "$TMP/up"; }

addressed()
{
	ip addr add "10.0.0.$HOST/24" dev eth0
	ip addr add "10.1.0.$HOST/24" dev eth1
}

all_followed() { [ "$NEXT" = "${#STEPS[@]}" ] || { echo "not known: ${STEPS[*]:$NEXT}"; return 1; }; }

server_role()
{
	step "the server's directory" 'mkdir -p /etc/rnbd/export'
	must "a disk to offer" eval "null_blk_up nullb0 64 1 && ln -s /dev/nullb0 /etc/rnbd/export/disk1"
	defer null_blk_down nullb0
	step "the server's module" 'modprobe rnbd-server dev_search_path=/etc/rnbd/export'
	barrier listening
	barrier unmapped 120
}

client_role()
{
	# The commands of the server come first.
	NEXT=2
	barrier listening
	step "the client's module" 'modprobe rnbd-client'
	step "a disk is mapped" 'echo "sessname=alpha path=ip:10.0.0.1 path=ip:10.1.0.1 device_path=disk1" > /sys/class/rnbd-client/ctl/map_device'
	measure
	step "it is unmapped" 'echo normal > /sys/block/rnbd0/rnbd/unmap_device'
	check "these are all commands" all_followed
	barrier unmapped 120
}

# Between the commands that map the disk and unmap it.
measure()
{
	local next=$NEXT was=("${STEPS[@]}")

	mapfile -t STEPS < <(readme_commands "$README" '## What to measure' '## What it costs')
	NEXT=0
	step "the state of the session" 'cat /sys/class/rtrs-client/alpha/state*' '^connected 2/2'
	step "IO per second" 'fio --name=t --filename=/dev/rnbd0 *' 'IOPS='
	step "latency by path" 'cat /sys/class/rtrs-client/alpha/paths/*/stats/rdma_lat_us' 'us: .*[1-9]'
	step "moves between CPUs" 'cat /sys/class/rtrs-client/alpha/paths/*/stats/cpu_migration' '[0-9]'
	# on-host.sh runs it.
	NEXT=$((NEXT + 1))
	check "these are all commands that measure" all_followed
	STEPS=("${was[@]}") NEXT=$next
}

mapfile -t STEPS < <(readme_commands "$README" 'Without packages' 'Other kernel trees')
defer not_installed
must "the modules are installed" installed
must "the hosts have README's addresses" addressed
pair_main
