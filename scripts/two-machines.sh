#!/usr/bin/env bash
# The chapter "Two machines" of docs/network.md, word for word, with two network namespaces as the machines alpha and beta: certificates, an agent on each,
# the results copied, gathered and compared with the simulator. Needs root and iproute2. Usage: scripts/two-machines.sh PATH_OF_DIBO
set -euo pipefail
dibo=$(realpath "${1:?path of a dibo built with --features net}")
work=$(mktemp -d)
made=()
end() {
    kill "${first:-}" "${second:-}" 2>/dev/null || true
    for host in alpha beta; do
        ip netns del "$host" 2>/dev/null || true
    done
    [ ${#made[@]} -eq 0 ] || rm -rf "${made[@]}"
    rmdir /etc/netns 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
ip netns add alpha
ip netns add beta
ip link add cable-a netns alpha type veth peer name cable-b netns beta
number=1
for side in alpha:cable-a beta:cable-b; do
    host=${side%:*} cable=${side#*:}
    ip -n "$host" link set lo up
    ip -n "$host" link set "$cable" up
    ip -n "$host" addr add 10.99.0.$number/24 dev "$cable"
    # `ip netns exec` puts this in the place of /etc/hosts: each machine knows the other by its name.
    mkdir -p "/etc/netns/$host"
    made+=("/etc/netns/$host")
    printf '127.0.0.1 localhost\n10.99.0.1 alpha\n10.99.0.2 beta\n' >"/etc/netns/$host/hosts"
    mkdir "$work/$host"
    number=$((number + 1))
done
began=$(date +%s)
on() { (cd "$work/$1" && exec ip netns exec "$1" "$dibo" "${@:2}"); }
on alpha certificates keys --agents alpha=0-4,beta=5-9
mkdir "$work/beta/keys"
cp "$work"/alpha/keys/{ca.pem,beta.pem,beta.key} "$work/beta/keys"
on alpha agent policy --own 0-4 --listen tls/0.0.0.0:7447 --certificates keys --host alpha --seeds 1 &
first=$!
sleep 3
on beta agent policy --own 5-9 --connect tls/alpha:7447 --certificates keys --host beta --seeds 1 2>"$work/beta.log" &
second=$!
wait $first
wait $second
echo "beta said:"
cat "$work/beta.log"
cp -r "$work"/beta/results/policy/agents/* "$work/alpha/results/policy/agents"
on alpha gather policy --seeds 1 --verify
echo "two machines, from certificates to the report: $(($(date +%s) - began)) s"
