#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: NM=nm gen-exports.sh USERS "PROVIDER_OBJECTS" "CONSUMER_OBJECTS"
#
# Prints export lines for the Rust symbols and C helpers that the consumers
# refer to and the provider defines, visible to the modules USERS only.

set -eu
users=$1 provider=$2 consumers=$3

defined=$(mktemp) wanted=$(mktemp)
trap 'rm -f "$defined" "$wanted"' EXIT

# shellcheck disable=SC2086 # lists of files
"$NM" -p --defined-only $provider |
	awk '$2 ~ /^[TRDB]$/ && $3 ~ /^(_R|rtrs_helper_)/ && $3 !~ /__module_init/ { print $3 }' |
	LC_ALL=C sort -u > "$defined"
if [ -n "$consumers" ]; then
	# shellcheck disable=SC2086
	"$NM" -p --undefined-only $consumers | awk 'NF == 2 { print $2 }' | LC_ALL=C sort -u > "$wanted"
fi

LC_ALL=C comm -12 "$defined" "$wanted" |
	sed "s/.*/extern int &; EXPORT_SYMBOL_FOR_MODULES(&, \"$users\");/"
