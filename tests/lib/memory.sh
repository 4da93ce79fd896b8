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

# chunk_memory DEPTH SIZE: what the server counts for the chunks of a path, with always_invalidate.
# Each chunk has private pages.
chunk_memory()
{
	local page large=$((65536 < $2 ? 65536 : $2)) rest=$(($1 % 64)) n

	page=$(getconf PAGESIZE)
	# Of each 64 chunks the first 16 have large private pages, each other one has a page.
	n=$((($1 - rest) / 4 + (rest < 16 ? rest : 16)))
	echo $(($1 * ($2 + page) + n * (large - page)))
}

# queue_memory DEPTH: what it counts for the queues of a path, with always_invalidate and one IO
# connection per CPU. 32 receives are spare, and one of each is for the drain.
queue_memory()
{
	local io

	io=$(con_memory $(((5 * $1 < 16 ? 16 : 5 * $1) + 1)) $(($1 + 33)))
	echo $(($(con_memory 1049 1065) + $(nproc) * io))
}
