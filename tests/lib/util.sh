# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Small helpers that tests and the demonstration share. Read by common.sh and demo.sh.

RTRS_TIME_SCALE=${RTRS_TIME_SCALE:-1}
RTRS_CACHE=${RTRS_CACHE:-/var/cache/rtrs-rs}

# What defer has collected for the end of the test; the demonstration leaves it empty.
# shellcheck disable=SC2034 # used by others
DEFERRED=()

# wait_for SECONDS CMD...: until CMD succeeds, for at least that time.
wait_for()
{
	local end=$((SECONDS + 1 + $1 * RTRS_TIME_SCALE))
	shift

	until "$@"; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "waited in vain for: $*"
			return 1
		fi
		sleep 0.1
	done
}

# has ARGUMENT...: "grep -q" that reads all of its input. With pipefail, a program that still writes
# when grep has found what it wants fails, and the pipeline with it.
has()
{
	local count

	# shellcheck disable=SC2034 # The status is that of grep.
	count=$(grep -c "$@")
}

# ms_now: the clock in milliseconds, without starting a process.
ms_now()
{
	local now=$EPOCHREALTIME
	echo $((${now/./} / 1000))
}

# late TEXT: fail, and say that a slow machine may be the reason. Any other failure is final.
# rtrs-vm may run a test once more if each of its failed cases says this.
late()
{
	echo "late: $*"
	return 1
}

# at_most MS LIMIT WHAT: fail if WHAT took MS milliseconds and that is more than LIMIT.
at_most()
{
	[ "$1" -le "$2" ] || late "$3 took $1 ms, more than $2"
}

# write FILE TEXT: one write(2); its error is the status of the command.
write()
{
	# The shell writes a text that fits into its buffer at once, but splits it at newlines. dd
	# does not, but starting a process takes time.
	if [[ ${#2} -le 512 && $2 != *$'\n'* ]]; then
		printf '%s' "$2" >"$1"
	else
		printf '%s' "$2" | dd of="$1" bs=64k count=1 iflag=fullblock status=none
	fi
}

# Problems that the kernel reports about itself. rtrs-vm looks for more of them in the console log.
DMESG_BAD='BUG: |turning off the locking|non-static key|leak detector disabled|debugging out of memory|dma-debug disabled|lockdep is turned off|duplicate filename|WARNING: |kernel BUG at|Oops: |general protection fault|UBSAN: |refcount_t: '
DMESG_BAD+='|possible circular locking|possible recursive locking|inconsistent lock state'
DMESG_BAD+='|suspicious RCU usage|blocked for more than|detected stall|list_(add|del) corruption'
DMESG_BAD+='|rust_kernel: panicked|DMA-API: .*(device driver|leak)|ODEBUG: (free|init|activate|assert|Out of)|BUG [^ ]+ \((Not t|T)ainted'
