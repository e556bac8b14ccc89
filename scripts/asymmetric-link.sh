#!/usr/bin/env bash
# Two hosts as network namespaces with a cable between them, TLS, one direction cut for a while in the middle of a run: the run must go on and end with
# the simulator's bits. Needs root and iproute2. Usage: scripts/asymmetric-link.sh PATH_OF_DIBO [SECONDS_OF_THE_CUT] [ROUNDS]
set -euo pipefail
dibo=$(realpath "${1:?path of a dibo built with --features net}")
cut=${2:-10}
rounds=${3:-20000}
work=$(mktemp -d)
end() {
    kill "${first:-}" "${second:-}" 2>/dev/null || true
    ip netns del dibo-a 2>/dev/null || true
    ip netns del dibo-b 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
ip netns add dibo-a
ip netns add dibo-b
ip link add veth-a netns dibo-a type veth peer name veth-b netns dibo-b
for side in a b; do
    ip -n dibo-$side link set lo up
    ip -n dibo-$side link set veth-$side up
done
ip -n dibo-a addr add 10.99.0.1/24 dev veth-a
ip -n dibo-b addr add 10.99.0.2/24 dev veth-b
"$dibo" certificates "$work/certificates" --agents 10.99.0.1=0-4,10.99.0.2=5-9 >/dev/null
# The first of the file's algorithms is enough.
awk '/^\[\[/ { blocks++ } blocks < 2' "$(dirname "$0")/../crates/dibo-paper/experiments/policy.toml" >"$work/run.toml"
settings=("$work/run.toml" --set run.iterations="$rounds" --set run.every=100 --set problem.omega=0 --seeds 1)
agent=("$dibo" agent "${settings[@]}" --threads 1 --certificates "$work/certificates" --show-private --out "$work/out")
ip netns exec dibo-a "${agent[@]}" --own 0-4 --host 10.99.0.1 --listen tls/10.99.0.1:7447 --progress >"$work/progress" 2>"$work/a.log" &
first=$!
ip netns exec dibo-b "${agent[@]}" --own 5-9 --host 10.99.0.2 --connect tls/10.99.0.1:7447 >/dev/null 2>"$work/b.log" &
second=$!
at() { grep -E '^[0-9]+$' "$work/progress" 2>/dev/null | tail -n 1; }
failed() { tail -n 20 "$work"/*.log; exit 1; }
while at=$(at); [ "${at:-0}" -lt $((rounds / 10)) ]; do
    kill -0 $first $second || failed
    sleep 0.1
done
# Frames from a to b go to an address that nobody has; those from b to a arrive as before.
ip -n dibo-a neigh replace 10.99.0.2 lladdr 02:00:00:00:00:99 dev veth-a nud permanent
echo "iteration $(at): from a to b is cut"
sleep "$cut"
echo "iteration $(at) after $cut s: restored"
ip -n dibo-a neigh del 10.99.0.2 dev veth-a
wait $first || failed
wait $second || failed
cat "$work"/*.log
echo "iteration $(at): done"
"$dibo" gather "${settings[@]}" --out "$work/out" --verify
