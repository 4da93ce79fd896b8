#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The structures on the way of a request, field by field with their cache lines, as pahole reads
# them from the debug information of the modules: Documentation/performance/structures.rst.
#
# Usage: structures.sh [DIR]	of the modules in DIR; without it builds them for the tests' kernel
#        structures.sh --print DIR	only print the page

set -euo pipefail
# shellcheck source=../env/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../env/lib.sh"

PAGE=$RTRS_REPO/Documentation/performance/structures.rst

# Module, and type as pahole has it. One for each allocation that requests use, and the parts of it
# that have a line of their own in the text.
structures()
{
	cat <<-'END'
	client	Places<rtrs_client::request::Io>
	client	TagQueue
	client	Place<rtrs_client::request::Io>
	client	Io
	client	Loan
	client	Flight<rtrs_client::link::LinkCore>
	client	Data
	client	LinkIo
	client	Stats
	client	Endpoint<rtrs_client::link::LinkCore>
	client	QueuePair
	client	Withheld
	client	SqLedger<rtrs_bindings::ib::queue::Ring>
	client	SendQueue
	client	SqProducer
	server	Chunk<rtrs_server::path::Path>
	server	UsedState
	server	ArcInner<rtrs_server::logic::chunk_state::ChunkState>
	server	Buffers
	server	Slot
	server	Reply
	server	Op<rtrs_server::path::Path>
	server	Inbox
	server	Pile
	server	Active
	server	Stats
	END
}

# Of what pahole prints: members, borders of cache lines, holes and the size, with types as they are
# in the source, but for their paths.
readable()
{
	awk '
	/cacheline [0-9]+ boundary/ {
		sub(/^[^c]*/, ""); sub(/ \*\/.*/, ""); sub(/ ---/, "")
		print "  --- " $0
		next
	}
	/XXX [0-9]+ bytes? hole/ {
		match($0, /[0-9]+ bytes? hole/)
		print "  --- " substr($0, RSTART, RLENGTH)
		next
	}
	/\/\* size:/ {
		match($0, /size: [0-9]+, cachelines: [0-9]+/)
		print "  " substr($0, RSTART, RLENGTH)
		next
	}
	/\/\* +[0-9]+ +[0-9]+ \*\/$/ {
		split($0, half, /\/\*/)
		split(half[2], n, " ")
		text = half[1]
		sub(/ __attribute__.*/, "", text)
		sub(/;.*/, "", text)
		gsub(/(struct|enum) /, "", text)
		gsub(/([a-z_0-9]+|\{[^}]*\})::/, "", text)
		gsub(/, (Kmalloc|KVmalloc|Vmalloc)>/, ">", text)
		gsub(/^[ \t]+/, "", text)
		# A pointer to a function has its name within.
		if (match(text, /\(\*[a-z_]+\)/)) {
			name = substr(text, RSTART + 2, RLENGTH - 3)
			type = "fn"
		} else {
			match(text, /[^ ]+$/)
			name = substr(text, RSTART)
			type = substr(text, 1, RSTART - 1)
			gsub(/ +$/, "", type)
		}
		printf "  %5d %5d  %-16s %s\n", n[1], n[2], name, type
	}'
}

page()
{
	local dir=$1 module type

	printf '%s\n' '.. SPDX-License-Identifier: GPL-2.0' \
		'.. Made by "make structures".' '' \
		'Offset and size in bytes, name, type::' ''
	while IFS=$'\t' read -r module type; do
		printf '  %s: %s\n' "$module" "$(sed -E 's/([a-z_0-9]+::)+//g' <<<"$type")"
		# pahole complains about parts of Rust that it does not know, and goes on.
		RTRS_BIND=$dir "$RTRS_ENV/enter.sh" pahole -C "$type" "$dir/rtrs-$module.ko" 2>/dev/null |
			readable >"$TMP/lines" || true
		grep -q size: "$TMP/lines" || die "the module rtrs-$module has no structure $type"
		cat "$TMP/lines"
		printf '\n'
	done < <(structures) | sed '$d'
}

main()
{
	local dir print=
	if [ "${1:-}" = --print ]; then
		print=1
		shift
	fi
	need_root
	TMP=$(mktemp -d)
	trap 'rm -rf "$TMP"' EXIT
	dir=${1:-}
	if [ -z "$dir" ]; then
		dir=$(RTRS_STALE=no "$RTRS_ENV/build.sh" --tests "$("$RTRS_ENV/kernel.sh" --guest)")
	fi
	page "$(readlink -f "$dir")" >"$TMP/page"
	if [ -n "$print" ]; then
		cat "$TMP/page"
	else
		cp "$TMP/page" "$PAGE"
	fi
}

main "$@"
