# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The commands of README.md, for tests that follow them.

# readme_commands FILE BEGIN END [PROGRAMS]: the commands from the line that begins with BEGIN to the
# one that begins with END, one per line: those in blocks, without comments, and those in a sentence
# that begin with one of PROGRAMS, as in "modprobe|rnbd-map".
readme_commands()
{
	sed -n "/^$2/,/^$3/p" "$1" | awk -v programs="${4:-}" '
	/^    / {
		sub(/^ +/, ""); sub(/ +# .*$/, "")
		line = line $0
		if (sub(/\\$/, "", line)) next
		gsub(/ +/, " ", line); print line; line = ""
		next
	}
	programs != "" {
		while (match($0, "`(" programs ") [^`]*`")) {
			print substr($0, RSTART + 1, RLENGTH - 2)
			$0 = substr($0, RSTART + RLENGTH)
		}
	}'
}
