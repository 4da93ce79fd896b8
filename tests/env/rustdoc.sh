#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Make rustdoc's pages of the crates, of private items as well. A warning is an error.
#
# Usage: rustdoc.sh BUILD [OUTPUT]	(a directory in which build.sh has built the modules, and where
#					the pages go, by default doc in it)

set -uo pipefail

cd "$1" || exit 2
export RUSTC_BOOTSTRAP=1
# As Kbuild does.
export RTRS_BINDINGS=$PWD/bindings/bindings_generated.rs
out=${2:-doc}

# document CRATE: with the options that the crate is compiled with. rustdoc links to the others.
document()
{
	local crate=$1 dir=$1 command

	[ "$crate" != rtrs_bindings ] || dir=bindings
	command=$(sed -n '1s/^savedcmd_[^ ]* := //p' "$dir/.$crate.o.cmd")
	command=${command%% --out-dir*}
	# shellcheck disable=SC2001 # more than one word
	command=$(echo "$command" | sed -e 's/clippy-driver\|\<rustc\>/rustdoc/' -e 's/ -Zbinary_dep_depinfo=y//' \
		-e 's/ --emit=[^ ]*//g' -e 's/ -W\(clippy\|rust_2018_idioms\|unreachable_pub\)[^ ]*//g' \
		-e 's/ -Zcross-crate-inline-threshold=[^ ]*//')
	# A command line of make, for a shell.
	eval "$command --output '$out' --document-private-items -Aunknown_lints -Dwarnings" \
		"-Arustdoc::private_intra_doc_links '$dir/$crate.rs'"
}

rc=0
for crate in rtrs_bindings rtrs_core rtrs_client rtrs_server; do
	document "$crate" || rc=1
done
exit "$rc"
