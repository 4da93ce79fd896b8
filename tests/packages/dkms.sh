#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rtrs-dkms with a stub of DKMS that records its commands: which modules are added, built and left
# alone. Needs no root.

set -uo pipefail

# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# stub NAME: make a command, with its script on stdin.
stub()
{
	{ printf '#!/bin/bash\n' && cat; } >"$dir/bin/$1"
	chmod 755 "$dir/bin/$1"
}

# run ARG...: print the changes that DKMS was told to make.
run()
{
	: >"$dir/told"
	STUBS=$dir PATH=$dir/bin:$PATH bash "$dir/rtrs-dkms" "$@" >"$dir/out" 2>"$dir/err"
	echo "$?" >"$dir/rc"
	paste -s -d ';' "$dir/told"
}
rc() { cat "$dir/rc"; }

# status WORD RELEASE...: the state that the stub of DKMS shows.
status()
{
	local word=$1
	shift
	printf "rtrs/1, %s, x86_64: $word\n" "$@" >"$dir/status"
}
build() { printf 'build -m rtrs -v 1 -k %s;install -m rtrs -v 1 -k %s' "$1" "$1"; }

mkdir -p "$dir/bin" "$dir/src/rtrs-1/tests/env" "$dir/modules/7.3.4-a/kernel" "$dir/modules/7.3.5-b/kernel"
sed "s|@VERSION@|1|; s|/usr/src|$dir/src|; s|/usr/lib/modules|$dir/modules|; s|/var/cache|$dir|" \
	"$here/../../debian/extra/rtrs-dkms" >"$dir/rtrs-dkms"
# Kernels of the series 7.3 are supported, and their headers and sources are there.
cat >"$dir/src/rtrs-1/tests/env/kernel-prepare.sh" <<'EOF'
#!/bin/bash
[[ $2 == 7.3* ]]
EOF
chmod 755 "$dir/src/rtrs-1/tests/env/kernel-prepare.sh"
for rel in 7.3.4-a 7.3.5-b; do
	mkdir -p "$dir/src/linux-headers-$rel"
	echo CONFIG_RUST=y >"$dir/src/linux-headers-$rel/.config"
done
# The lines are written one by one, so that a reader that ends after the first one kills the stub,
# as it may kill the real DKMS. An added version is not added again.
stub dkms <<'EOF'
if [ "$1" = status ]; then
	[ "${6:-}" != -k ] || exec grep -F ", $7," "$STUBS/status"
	while IFS= read -r line; do
		printf '%s\n' "$line"
		sleep 0.1
	done <"$STUBS/status"
	exit
fi
printf '%s\n' "$*" >>"$STUBS/told"
[ "$1" != add ] || [ ! -s "$STUBS/status" ] || exit 3
EOF
stub dpkg-query <<'EOF'
case ${!#} in
linux-headers-* | linux-source-*) printf '%s1-1\n' "$(cat "$STUBS/state" 2>/dev/null || echo 'ii ')" ;;
*) exit 1 ;;
esac
EOF
stub df <<'EOF'
printf 'Avail\n9000\n'
EOF

printf 'TAP version 13\n1..19\n'
: >"$dir/status"
same 'added, and built for both kernels' "add -m rtrs -v 1;$(build 7.3.4-a);$(build 7.3.5-b)" "$(run)"
same 'and that succeeds' 0 "$(rc)"
status installed 7.3.4-a 7.3.5-b
same 'what is installed for two kernels is neither added again nor built' '' "$(run)"
same 'and that succeeds' 0 "$(rc)"
status built 7.3.4-a 7.3.5-b
same 'what is only built for two kernels is not added again' "$(build 7.3.4-a);$(build 7.3.5-b)" "$(run)"
status installed 7.3.4-a
same 'one kernel of two' "$(build 7.3.5-b)" "$(run)"
same 'a kernel by name' "$(build 7.3.5-b)" "$(run 7.3.5-b)"
# Desired, present, and error.
for state in 'hi ' 'iU ' 'iF ' 'it '; do
	printf '%s' "$state" >"$dir/state"
	same "packages in the state '$state' have their files" "$(build 7.3.5-b)" "$(run)"
done
for state in 'rc ' 'un ' 'iHR'; do
	printf '%s' "$state" >"$dir/state"
	same "packages in the state '$state' do not" 1 "$(run >/dev/null; grep -c 'linux-headers-7.3.5-b is not installed' "$dir/err")"
done
rm "$dir/state"
# The tree of a build that is going on.
mkdir "$dir/rtrs/kernel/7.3.5-b.new"
exec 8>"$dir/rtrs/kernel/.lock"
flock 8
run >"$dir/second" &
sleep 1
same 'another run waits for the first one' '7.3.5-b.new ' "$(cd "$dir/rtrs/kernel" && echo *) $(cat "$dir/told")"
flock -u 8
wait
same 'and goes on then' "$(build 7.3.5-b)" "$(cat "$dir/second")"
rm "$dir/src/linux-headers-7.3.5-b/.config"
same 'without headers that is one line' ' 1 1' \
	"$(run) $(rc) $(grep -c '^rtrs-dkms: not built for 7.3.5-b: linux-headers-7.3.5-b is not installed' "$dir/err")"
# Of other series, an older one and the newest.
status installed 7.3.4-a 7.3.5-b
mkdir -p "$dir/modules/6.12.1-c/kernel"
same 'nothing is said of an older kernel that is not supported' ' 0 ' "$(run) $(rc) $(cat "$dir/err")"
mkdir -p "$dir/modules/7.10.0-d/kernel"
same 'there is a line about the newest one' \
	' 1 rtrs-dkms: not built for 7.10.0-d: kernels of series 7.10 are not supported' \
	"$(run) $(rc) $(cat "$dir/err")"
