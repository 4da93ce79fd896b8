#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What people read about parameters, files in sysfs and trace events is what the code has: each of
# them, with its default or its mode. The same for the version. Needs no root.

set -uo pipefail

# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$repo" || exit
ABI=(Documentation/ABI/sysfs-class-rtrs-{client,server})

# agree WANTED GOT: two lists of lines; those of one only are printed.
agree()
{
	sort "$1" >"$1.sorted" && sort "$2" >"$2.sorted" && [ -s "$1" ] && diff "$1.sorted" "$2.sorted"
}

# parameters MODULE FILE: each with the default that the code has, and with that of its description,
# in the files "code" and "told".
parameters()
{
	perl -0777 - "$@" "$dir" rtrs_core/proto/heartbeat.rs <<'EOF'
		my ($module, $file, $dir, $constants) = @ARGV;
		sub text { open(my $f, "<", $_[0]) or die "$_[0]: $!\n"; return scalar(<$f>) }
		my %names = text($constants) =~ /const (\w+): u32 = ([\d_]+);/g;
		open(my $code, ">>", "$dir/code") or die;
		open(my $told, ">>", "$dir/told") or die;
		my $source = text($file);
		my $n = () = $source =~ /^\s+static \w+: \w+ =\s/mg;
		while ($source =~ /static \w+: \w+\s*=\s*"(\w+)",\s*([^"]*?|c""),\s*"([^"]*)"/g) {
			my ($name, $default, $text) = ($1, $2, $3);
			$default = $names{$1} if $default =~ /^heartbeat::(\w+) as i32$/;
			$default =~ tr/_//d;
			$default = { "true" => "Y", "false" => "N", 'c""' => "" }->{$default} // $default;
			my ($says) = $text =~ /\(default: (.*)\)$/;
			$says = "" if ($says // "") eq "nothing";
			print $code "$module $name $default\n";
			print $told "$module $name ", $says // "(none)", "\n";
			$n--;
		}
		$n == 0 or die "$file has $n parameters that are not understood\n";
EOF
}

code()
{
	parameters rtrs-client rtrs_client/params.rs && parameters rtrs-server rtrs_server/config.rs &&
		agree "$dir/code" "$dir/told"
}

# Parameters of RNBD are not in the code here.
modprobe_d()
{
	awk '/^#?options rtrs-/ { for (i = 3; i <= NF; i++) { sub("=", " ", $i); print $2, $i } }' \
		debian/extra/modprobe.conf >"$dir/modprobe.d"
	agree "$dir/code" "$dir/modprobe.d"
}

man_page()
{
	awk '/^\.Ss / { module = $2 } /^\.S[Hh] / { module = "" }
		module ~ /^rtrs-/ && /^\.It Cm / { print module, $3, $8 }' debian/extra/man/rtrs.4 >"$dir/man"
	agree "$dir/code" "$dir/man"
}

# A default is a word of the description; that of "listen" is nothing.
abi_parameters()
{
	sed 's/-/_/; s/ $/ empty/' "$dir/code" >"$dir/code.abi"
	tests/lib/abi.pl list "${ABI[@]}" | perl -lne '
		BEGIN { open(my $f, "<", shift(@ARGV)) or die; %default = map { /^(\S+ \S+) (.*)$/ } <$f> }
		my (undef, $path, $text) = split(/\t/);
		my ($module, $name) = $path =~ m{^/sys/module/(\w+)/parameters/(\w+)$} or next;
		my $default = $default{"$module $name"} // "(none)";
		print "$module $name ", $text =~ /\b\Q$default\E\b/ ? $default : "(none)"' "$dir/code.abi" >"$dir/abi"
	agree "$dir/code.abi" "$dir/abi"
}

# files FILE TABLE DIRECTORY...: the files in tables of attributes, with their modes.
files()
{
	local file=$1
	shift
	while [ "$#" -gt 0 ]; do
		sed -n "/^ *static $1: /,/^    };/p" "$file" |
			sed -n 's/^ *"\(.*\)" => \(ro_root\|ro\|rw_self\|rw\)(.*/\2 \1/p' |
			sed "s,^ro_root ,0400 $2/,; s,^ro ,0444 $2/,; s,^rw\(_self\)\? ,0644 $2/,"
		shift 2
	done
}

sysfs()
{
	local clt='/sys/class/rtrs-client/<session>' srv='/sys/class/rtrs-server/<session>' all tables
	{
		files rtrs_client/sysfs.rs SESSION_FILES "$clt" PATH_FILES "$clt/paths/<path>" \
			STATS_FILES "$clt/paths/<path>/stats"
		files rtrs_server/sysfs.rs SESSION_FILES "$srv" PATH_FILES "$srv/paths/<path>" \
			STATS_FILES "$srv/paths/<path>/stats" QUOTA_FILES '/sys/module/rtrs_server/quotas/<quota>'
		files rtrs_server/stats.rs TOTAL_FILES /sys/module/rtrs_server/stats
	} >"$dir/files"
	# A table that is new is not left out.
	all=$(cat rtrs_*/*.rs rtrs_*/*/*.rs | grep -cE '^ *static [A-Z_]+_FILES: ')
	tables=8
	[ "$all" = "$tables" ] || { echo "there are $all tables, known are $tables"; return 1; }
	tests/lib/abi.pl list "${ABI[@]}" | awk -F '\t' '$1 != "-" && $2 !~ "/parameters/" { print $1, $2 }' >"$dir/documented"
	agree "$dir/files" "$dir/documented"
}

# What mainline has, by drivers/infiniband/ulp/rtrs of Linux 7.3.
mainline()
{
	local clt='/sys/class/rtrs-client/<session>' srv='/sys/class/rtrs-server/<session>'
	printf '%s\n' "$clt"/{max_reconnect_attempts,mpath_policy,add_path} \
		"$clt/paths/<path>"/{state,reconnect,disconnect,remove_path,hca_name,hca_port,src_addr,dst_addr,cur_latency} \
		"$clt/paths/<path>/stats"/{cpu_migration_from,cpu_migration_to,reconnects,rdma,reset_all} \
		"$srv/paths/<path>"/{hca_name,hca_port,src_addr,dst_addr,disconnect,stats/rdma} \
		/sys/module/rtrs_server/parameters/{always_invalidate,max_chunk_size,sess_queue_depth} >"$dir/mainline"
	tests/lib/abi.pl list "${ABI[@]}" |
		awk -F '\t' '$1 != "-" && $3 !~ /[Nn]ot in mainline/ { print $2 }' >"$dir/not-ours"
	agree "$dir/mainline" "$dir/not-ours"
}

events()
{
	local side event n=0 rc=0
	for side in client server; do
		while read -r event; do
			n=$((n + 1))
			grep -qF "\`\`$event\`\`" "Documentation/$side.rst" || { echo "$side.rst does not have $event"; rc=1; }
		done < <(grep -oE '^(TRACE|DEFINE_RTRS_[A-Z_]+)_EVENT\([a-z_]+' "rtrs_$side/trace.h" | cut -d '(' -f 2)
	done
	echo "$n events"
	[ "$n" -gt 0 ] && return "$rc"
}

version()
{
	local code changelog
	code=$(sed -n 's/^RTRS_VERSION := //p' Kbuild)
	changelog=$(sed -n '1s/^rtrs (\(.*\)) .*/\1/p' debian/changelog)
	echo "Kbuild $code, changelog $changelog"
	[ -n "$code" ] && [ "$code" = "$changelog" ]
}

printf 'TAP version 13\n1..8\n'
check 'what modinfo says of a parameter has its default' code
check 'modprobe.d has all parameters, and their defaults' modprobe_d
check 'rtrs(4) has all parameters, and their defaults' man_page
check 'Documentation/ABI has all parameters, and their defaults' abi_parameters
check 'Documentation/ABI has all files, and their modes' sysfs
check 'what mainline does not have is marked' mainline
check 'all trace events are documented' events
check 'Kbuild and changelog have the same version' version
