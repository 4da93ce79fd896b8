# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the server counts as memory of its clients.

# pow2 N: the smallest power of two that is at least N.
pow2()
{
	local p=1

	while [ "$p" -lt "$1" ]; do
		p=$((2 * p))
	done
	echo "$p"
}

# con_memory SENDS RECEIVES: what the server counts for the queues of a connection.
con_memory()
{
	echo $((($(pow2 "$1") + $(pow2 "$2")) * 256 + $(pow2 $(($1 + $2))) * 64))
}

# receives DEPTH: the receives that a client can count on, on an IO connection, if it sends writes.
receives()
{
	local words=$((($1 + 63) / 64)) n

	n=$((64 * ((words + $(nproc) - 1) / $(nproc))))
	echo $((n < $1 ? n : $1))
}

# received_memory N: the memory of N receives.
received_memory() { echo $(($1 * (4096 + 512))); }

# chunk_memory DEPTH SIZE: what the server counts for the chunks of a path, with always_invalidate.
# Each chunk has private pages, and one for writes that are sent.
chunk_memory()
{
	local page large=$((65536 < $2 ? 65536 : $2)) rest=$(($1 % 64)) n

	page=$(getconf PAGESIZE)
	# Of each 64 chunks the first 16 have large private pages, each other one has a page.
	n=$((($1 - rest) / 4 + (rest < 16 ? rest : 16)))
	echo $(($1 * ($2 + 2 * page) + n * (large - page)))
}

# queue_memory DEPTH: what it counts for the queues of a path, with always_invalidate and one IO
# connection per CPU. 32 receives are spare, and one of each is for the drain.
queue_memory()
{
	local io n

	n=$(($(receives "$1") + 33))
	io=$(con_memory $(((5 * $1 < 16 ? 16 : 5 * $1) + 1)) "$n")
	echo $(($(con_memory 1049 1065) + $(nproc) * (io + $(received_memory "$n"))))
}
