# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers around RDMA devices, the modules under test, RNBD and block devices.
# Read by common.sh.

#
# Modules
#

RTRS_CPEER=${RTRS_CPEER:-$RTRS_CACHE/c-peer/$(uname -r)}
MODPROBE_RDMA=(ib_core rdma_cm rdma_rxe)

module_loaded()
{
	[ -d "/sys/module/${1//-/_}" ]
}

# load_one DIR NAME [PARAM=VALUE...]: load the module from DIR, or the installed one if DIR is
# empty.
load_one()
{
	local dir=$1 name=$2 ko
	shift 2

	module_loaded "$name" && return 0
	if [ -n "$dir" ]; then
		ko=$dir/$name.ko
		[ -f "$ko" ] || {
			echo "no $ko"
			return 1
		}
		insmod "$ko" "$@"
	else
		modprobe "$name" "$@"
	fi
}

unload_one()
{
	local t0
	t0=$(ms_now)

	module_loaded "$1" || return 0
	rmmod "$1" || return
	echo "$1 unloaded in $(($(ms_now) - t0)) ms"
}

# impl_dir rust|c|earlier: the directory with the modules of an implementation. RTRS_EARLIER has an
# earlier version of ours.
impl_dir()
{
	case $1 in
	rust) printf '%s\n' "${RTRS_MODULES:-}" ;;
	c) printf '%s\n' "$RTRS_CPEER" ;;
	earlier) printf '%s\n' "${RTRS_EARLIER:?}" ;;
	*)
		echo "no implementation $1" >&2
		return 1
		;;
	esac
}

# client_params PARAM=VALUE...: parameters for the next load of rtrs-client, if it is the Rust one.
CLIENT_PARAMS=()
client_params() { CLIENT_PARAMS=("$@"); }

# load_rtrs rust|c both|client|server [PARAM=VALUE... for the server]
load_rtrs()
{
	local dir side=$2
	local ack=${RTRS_ACK_TIMEOUT:-} slow=() client=()
	# With many emulated processors half a second without an acknowledgment means nothing, on
	# the debug kernel even less. Soft RoCE mishandles that timeout: it registers memory again
	# that is in use.
	[ "$RTRS_TIME_SCALE" -eq 1 ] || ack=21
	[ "$1" != rust ] || [ -z "$ack" ] || slow=("ack_timeout=$ack")
	[ "$1" != rust ] || client=("${CLIENT_PARAMS[@]}")
	[ "$1" != rust ] || [ "$RTRS_TIME_SCALE" -eq 1 ] || client+=("silent_path_ms=$((800 * RTRS_TIME_SCALE))")
	dir=$(impl_dir "$1") || return
	shift 2

	modprobe -a "${MODPROBE_RDMA[@]}" || return
	load_one "$dir" rtrs-core || return
	case $side in both | client) load_one "$dir" rtrs-client "${slow[@]}" "${client[@]}" || return ;; esac
	case $side in both | server) load_one "$dir" rtrs-server "${slow[@]}" "$@" || return ;; esac
}

# load_rnbd both|client|server: load unmodified mainline RNBD, on top of either RTRS.
load_rnbd()
{
	local dir=$RTRS_CPEER

	[ -d "$dir" ] || dir=
	case $1 in both | server) load_one "$dir" rnbd-server || return ;; esac
	case $1 in both | client) load_one "$dir" rnbd-client || return ;; esac
}

# client_has_queues: also true for a session that is still being closed.
client_has_queues() { rdma resource show qp 2>/dev/null | has -F '[rtrs_client]'; }

unload_rnbd()
{
	# When its last device goes, RNBD puts the session, maybe in a work item after unmapping. It
	# warns if it is unloaded before that work is done. Nothing shows its list of sessions; it
	# becomes empty only a moment after the queues are gone.
	if [ -d /sys/module/rnbd_client ] && [ -z "$(rnbd_devices)" ] && client_has_queues; then
		wait_for 10 not client_has_queues || return
		sleep "$RTRS_TIME_SCALE"
	fi
	unload_one rnbd-client && unload_one rnbd-server
}

unload_rtrs()
{
	unload_one rtrs-test && unload_one rtrs-client && unload_one rtrs-server &&
		unload_one rtrs-core
}

# load_modules [rust|c] / unload_modules: all modules, client and server, on one kernel.
load_modules()
{
	load_rtrs "${1:-rust}" both && load_rnbd both
}

unload_modules()
{
	unload_rnbd && unload_rtrs
}

# module_refs NAME N: has the module exactly N users?
module_refs()
{
	local n
	n=$(cat "/sys/module/${1//-/_}/refcnt")

	[ "$n" = "$2" ] || {
		echo "module $1 has $n references, not $2"
		return 1
	}
}

#
# RDMA devices
#

# rxe_up NAME [ADDRESS/PREFIX...]: set up soft RoCE over a dummy interface, whose packets loop back
# inside the kernel.
rxe_up()
{
	local name=$1 dev=d$1 addr
	shift
	[ "$#" -gt 0 ] || set -- 10.9.0.1/24 fd09::1/64

	modprobe -a "${MODPROBE_RDMA[@]}" dummy || return
	ip link add "$dev" type dummy || return
	ip link set "$dev" mtu 4200 || return
	for addr in "$@"; do
		case $addr in
		*:*) ip addr add "$addr" dev "$dev" nodad || return ;;
		*) ip addr add "$addr" dev "$dev" || return ;;
		esac
	done
	ip link set "$dev" up || return
	rdma link add "$name" type rxe netdev "$dev" || return
	wait_for 5 rdma_active "$name"
}

rxe_down()
{
	rdma link delete "$1" 2>/dev/null
	ip link delete "d$1" 2>/dev/null
	return 0
}

rdma_active()
{
	rdma link show "$1/1" 2>/dev/null | has 'state ACTIVE'
}

# Objects by kind, device and holder. The CQ pool of ib_core keeps its CQs for the life of the
# device: these are no leak.
resource_counts()
{
	local kind

	for kind in pd cq qp cm_id mr; do
		rdma resource show "$kind" 2>/dev/null | awk -v kind="$kind" '
			{
				comm = "?"
				for (i = 1; i < NF; i++)
					if ($i == "comm")
						comm = $(i + 1)
			}
			!(kind == "cq" && comm == "[ib_core]") { print kind, $2, comm }'
	done | sort | uniq -c
}

# resource_snapshot: call it when the devices are up and before modules are loaded. Whatever is
# deferred after it is undone before the comparison.
resource_snapshot()
{
	# shellcheck disable=SC2034 # read by finish
	SNAPSHOT_DEFERRED=${#DEFERRED[@]}
	resource_counts >"$TMP/resources"
	lsmod | awk 'NR > 1 && $1 ~ /^(ib_core|rdma_cm|rdma_rxe)$/ { print $1, $3 }' |
		sort >"$TMP/modrefs"
}

resources_same()
{
	resource_counts >"$TMP/resources.now"
	cmp -s "$TMP/resources" "$TMP/resources.now"
}

modrefs_same()
{
	lsmod | awk 'NR > 1 && $1 ~ /^(ib_core|rdma_cm|rdma_rxe)$/ { print $1, $3 }' |
		sort >"$TMP/modrefs.now"
	cmp -s "$TMP/modrefs" "$TMP/modrefs.now"
}

# resource_compare: is everything as before? The last objects of a connection are freed after a
# grace period.
resource_compare()
{
	if ! wait_for 10 resources_same; then
		diff -u "$TMP/resources" "$TMP/resources.now" || true
		rdma resource show qp
		rdma resource show cm_id
		rdma resource show mr
		echo "resources are left"
		return 1
	fi
	if ! wait_for 5 modrefs_same; then
		diff -u "$TMP/modrefs" "$TMP/modrefs.now" || true
		echo "module references are left"
		return 1
	fi
}

#
# Block devices
#

# null_blk_up NAME MIB [memory_backed 0|1 [NANOSECONDS [DEPTH]]]: create /dev/NAME by configfs. Each
# request takes NANOSECONDS, and there are DEPTH at a time; the block layer gives it a minute before
# a timeout.
null_blk_up()
{
	local name=$1 mib=$2 backed=${3:-1} ns=${4:-0} d=/sys/kernel/config/nullb/$1

	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config || return
	module_loaded null_blk || modprobe null_blk nr_devices=0 || return
	mkdir "$d" || return
	echo "$mib" >"$d/size" || return
	echo "$backed" >"$d/memory_backed" || return
	[ -z "${5:-}" ] || echo "$5" >"$d/hw_queue_depth" || return
	[ "$ns" -eq 0 ] || {
		echo 2 >"$d/irqmode" && echo "$ns" >"$d/completion_nsec"
	} || return
	echo 1 >"$d/power" || return
	wait_for 5 test -b "/dev/$name" || return
	[ "$ns" -eq 0 ] || echo 60000 >"/sys/block/$name/queue/io_timeout"
}

null_blk_down()
{
	[ -d "/sys/kernel/config/nullb/$1" ] || return 0
	rmdir "/sys/kernel/config/nullb/$1"
}

#
# RNBD
#

RNBD_CTL=/sys/class/rnbd-client/ctl

# map_rnbd SESSION DEVICE PATH... [OPTION=VALUE...]: prints the new device.
# PATH as in "ip:10.9.0.1" or "ip:10.9.0.2@ip:10.9.0.1".
map_rnbd()
{
	local sess=$1 device=$2 words before after p
	shift 2

	words="sessname=$sess"
	for p in "$@"; do
		case $p in
		*=*) words+=" $p" ;;
		*) words+=" path=$p" ;;
		esac
	done
	before=$(ls "$RNBD_CTL/devices" 2>/dev/null)
	write "$RNBD_CTL/map_device" "$words device_path=$device" || return
	# The device node may appear later than the write returns.
	after=$(basename "$(readlink -f "$RNBD_CTL/devices/$(comm -13 \
		<(printf '%s\n' "$before" | sort) \
		<(find "$RNBD_CTL/devices" -mindepth 1 -printf '%f\n' | sort) | head -n 1)")")
	wait_for 10 test -b "/dev/$after" || return
	printf '%s\n' "$after"
}

# unmap_rnbd DEVICE [normal|force]
unmap_rnbd()
{
	local f=/sys/block/$1/rnbd/unmap_device

	[ -e "$f" ] || return 0
	write "$f" "${2:-normal}"
}

# rnbd_devices: names of the mapped devices.
rnbd_devices()
{
	find /sys/block -maxdepth 1 -name 'rnbd*' -printf '%f\n'
}

unmap_all_rnbd()
{
	local d

	for d in $(rnbd_devices); do
		unmap_rnbd "$d" "${1:-normal}" || return
	done
}

# usable DEVICE: does the device take IO? Wait for this after an outage, before verified IO, which
# is not tried again. It overwrites the first block with zeros.
usable()
{
	dd if=/dev/zero of="/dev/$1" bs=4k count=1 oflag=direct conv=nocreat status=none
}

# rnbd_up [normal|force]: load all modules on one kernel until the end of the test. Devices that are
# left by then are unmapped in this way.
rnbd_up()
{
	resource_snapshot
	must "modules load" load_modules rust
	defer unload_modules
	defer unmap_all_rnbd "${1:-normal}"
}

# fio_verify DEVICE SIZE [FIO OPTION...]: write random blocks, read them back and compare.
fio_verify()
{
	local dev=$1 size=$2
	shift 2

	fio --name=verify --filename="/dev/$dev" --direct=1 --ioengine=libaio \
		--rw=randwrite --bs=4k --iodepth=16 --size="$size" --verify=crc32c \
		--do_verify=1 --verify_fatal=1 --group_reporting "$@" || {
		echo "IO failed, or did not verify"
		return 1
	}
}

# fio_rate randread|randwrite DEVICE SECONDS [FIO OPTION...]: prints IOPS.
fio_rate()
{
	local rw=$1 dev=$2 secs=$3
	shift 3

	fio --name=rate --filename="/dev/$dev" --direct=1 --ioengine=libaio --rw="$rw" \
		--bs=4k --iodepth=32 --time_based --runtime="$secs" --output-format=terse \
		--terse-version=3 "$@" |
		awk -F';' -v rw="$rw" '/^3;/ { print (rw ~ /read/) ? $8 : $49 }'
}
