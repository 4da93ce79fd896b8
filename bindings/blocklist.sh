#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: blocklist.sh bindings_generated.rs
#
# Prints options that keep bindgen from generating the structures again that the
# kernel crate has complete: the two versions would be different types.
# Structures that are only an opaque stub in the kernel crate are not listed.

set -eu

awk '
/^pub (struct|union) [A-Za-z_0-9]+( |<)/ || /^pub (struct|union) [A-Za-z_0-9]+;/ {
	name = $3; sub(/[^A-Za-z_0-9].*/, "", name); body = 1; next
}
# An enum as a type of its own.
/^pub struct [A-Za-z_0-9]+\(pub / {
	name = $3; sub(/[^A-Za-z_0-9].*/, "", name); print "--blocklist-type ^" name "$"; body = 0; next
}
body == 1 {
	if ($0 !~ /_unused: \[u8; 0/ && name !~ /^__Bindgen/ && name !~ /__bindgen_ty/)
		print "--blocklist-type ^" name "$"
	body = 0
}' "$1"
