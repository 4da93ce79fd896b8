#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs in a host of the test, as a service: does what arrives at its second serial
# port, one script a line, and answers with status and output.

exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
printf '@0 0 %s\n' "$(uname -r | base64 -w 0)" >&3
while read -r id script <&3; do
	out=$(bash -c "$(base64 -d <<<"$script")" 2>&1 </dev/null 3<&-)
	rc=$?
	printf '@%s %s %s\n' "$id" "$rc" "$(tail -c 8000 <<<"$out" | base64 -w 0)" >&3
done
