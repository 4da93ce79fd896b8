# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Helpers for tests of two guests, "server" and "client", joined by links. Read by common.sh.
#
# Both guests run the same script; $RTRS_ROLE tells a guest its role. They meet at barriers, by
# files in the directory $RTRS_SYNC that both see.

is_server() { [ "$RTRS_ROLE" = server ]; }
is_client() { [ "$RTRS_ROLE" = client ]; }

pair_peer()
{
	if is_server; then echo client; else echo server; fi
}

# pair_addr LINK [ROLE]: address of ROLE on LINK; links count from 0. Without ROLE, this guest's own
# address.
pair_addr()
{
	case ${2:-$RTRS_ROLE} in
	server) echo "10.9.$(($1 + 1)).1" ;;
	client) echo "10.9.$(($1 + 1)).2" ;;
	esac
}

# pair_links: number of links.
pair_links()
{
	find /sys/class/net -name 'eth*' | wc -l
}

# pair_up: set up addresses and soft RoCE on all links: rxe0 on eth0, and so on.
pair_up()
{
	local n links
	links=$(pair_links)

	modprobe -a "${MODPROBE_RDMA[@]}" || return
	for ((n = 0; n < links; n++)); do
		ip link set "eth$n" mtu 4200 || return
		ip addr add "$(pair_addr "$n")/24" dev "eth$n" || return
		ip addr add "fd09:$((n + 1))::$(is_server && echo 1 || echo 2)/64" dev "eth$n" nodad || return
		ip link set "eth$n" up || return
		neighbour_retrans "$n" 200 || return
		rdma link add "rxe$n" type rxe netdev "eth$n" || return
	done
	for ((n = 0; n < links; n++)); do
		wait_for 5 rdma_active "rxe$n" || return
		wait_for 20 ping -c 1 -W 1 -q "$(pair_addr "$n" "$(pair_peer)")" || return
	done
}

# neighbour_retrans LINK MS: soft RoCE keeps a queue pair while a packet of it waits for a
# neighbour. The kernel gives up the neighbour after three times this time, by default 3 s.
neighbour_retrans() { echo "$2" >"/proc/sys/net/ipv4/neigh/eth$1/retrans_time_ms"; }

# drops_ready LINK: filters can drop packets that arrive over it. Must come before RDMA traffic: to
# add or delete a queueing discipline, also one for packets that arrive, replaces those for sending
# by one that refuses all, for a moment. Soft RoCE ends a queue pair over a packet that is refused,
# also that of the connection manager, which nothing makes again.
drops_ready()
{
	modprobe -q -a sch_ingress cls_u32 act_gact
	tc qdisc add dev "eth$1" clsact
}

# no_drops LINK: deletes the filters.
no_drops() { tc filter delete dev "eth$1" ingress; }

pair_down()
{
	local n links
	links=$(pair_links)

	for ((n = 0; n < links; n++)); do
		rdma link delete "rxe$n" 2>/dev/null
	done
	return 0
}

# pair_main: the whole of a test whose two sides are the functions server_role and client_role.
pair_main()
{
	must "links and soft RoCE come up" pair_up
	defer pair_down
	resource_snapshot
	defer unload_modules
	"${RTRS_ROLE}_role"
	finish
}

# serve_disk MIB [SECONDS [CMD...]]: the whole server side of a test that only needs nullb0 exported
# until the client has unmapped it. CMD runs meanwhile. SERVE_OPTIONS are the server module's.
serve_disk()
{
	must "a memory-backed null_blk" null_blk_up nullb0 "$1"
	defer null_blk_down nullb0
	must "server modules load" eval "load_rtrs rust server ${SERVE_OPTIONS:-} && load_rnbd server"
	barrier listening
	"${@:3}"
	barrier unmapped "${2:-60}"
	check "the server modules unload" unload_modules
}

# reload_when NAME CMD...: the server's modules go when the client asks for it, and come back with
# RELOAD_OPTIONS, or SERVE_OPTIONS. CMD runs while nothing is loaded, which lasts until the client
# has noticed.
reload_when()
{
	local name=$1
	shift

	get "$name" 300 >/dev/null
	check "$name: the server modules unload under load" unload_modules
	must "$name: meanwhile" "$@"
	get "$name.seen" 90 >/dev/null
	must "$name: they load again" eval "load_rtrs rust server ${RELOAD_OPTIONS:-${SERVE_OPTIONS:-}} && load_rnbd server"
	put "$name.done" yes
}

# client_ready: load the client's modules and wait until the server listens.
client_ready()
{
	must "client modules load" eval "load_rtrs rust client && load_rnbd client"
	barrier listening
}

peer_failed()
{
	[ -e "$RTRS_SYNC/abort" ]
}

# barrier NAME [SECONDS]: wait until the other guest gets there too.
barrier()
{
	local name=$1 end=$((SECONDS + ${2:-60} * RTRS_TIME_SCALE))

	: >"$RTRS_SYNC/$name.$RTRS_ROLE"
	until [ -e "$RTRS_SYNC/$name.$(pair_peer)" ]; do
		if peer_failed || [ "$SECONDS" -ge "$end" ]; then
			bail "the $(pair_peer) did not reach barrier $name"
		fi
		sleep 0.1
	done
}

# put NAME TEXT, get NAME [SECONDS]: hand a value to the other guest.
put()
{
	printf '%s\n' "$2" >"$RTRS_SYNC/.$1.tmp" && mv "$RTRS_SYNC/.$1.tmp" "$RTRS_SYNC/$1.value"
}

get()
{
	local end=$((SECONDS + ${2:-60} * RTRS_TIME_SCALE))

	until [ -e "$RTRS_SYNC/$1.value" ]; do
		if peer_failed || [ "$SECONDS" -ge "$end" ]; then
			bail "the $(pair_peer) did not say $1"
		fi
		sleep 0.1
	done
	cat "$RTRS_SYNC/$1.value"
}

# vm_control VERB GUEST [ARG...]: ask the host to do something to a guest:
# kill, start, pause, resume, or "link GUEST N up|down".
vm_control()
{
	local f
	f=$RTRS_SYNC/control/$RTRS_ROLE.$BASHPID.$RANDOM

	printf '%s\n' "$*" >"$f.new" && mv "$f.new" "$f.req" || return
	wait_for 20 test -e "$f.ack" || return
	grep -q '^ok' "$f.ack" || {
		cat "$f.ack"
		return 1
	}
}
