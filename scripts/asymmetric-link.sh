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
"$dibo" certificates "$work/certificates" --hosts 10.99.0.1,10.99.0.2 >/dev/null
settings=(policy --set run.iterations="$rounds" --set run.every=100 --set problem.omega=0 --seeds 1 --threads 1 --certificates "$work/certificates" --show-private)
# The first of the file's algorithms is enough.
only() { python3 - "$1" <<'P'
import re, sys
text = open(sys.argv[1]).read()
head, *blocks = re.split(r"(?m)^\[\[", text)
kept = [b for b in blocks if b.startswith("algorithm")][:1]
print(head + "".join("[[" + b for b in kept))
P
}
only "$(dirname "$0")/../experiments/policy.toml" >"$work/run.toml"
settings[0]="$work/run.toml"
ip netns exec dibo-a "$dibo" agent "${settings[@]}" --own 0-4 --host 10.99.0.1 --listen tls/10.99.0.1:7447 --connect tls/10.99.0.2:7447 --out "$work/out" --progress >"$work/progress" 2>"$work/a.log" &
first=$!
ip netns exec dibo-b "$dibo" agent "${settings[@]}" --own 5-9 --host 10.99.0.2 --listen tls/10.99.0.2:7447 --connect tls/10.99.0.1:7447 --out "$work/out" 2>"$work/b.log" &
second=$!
at() { tail -n 1 "$work/progress" 2>/dev/null || true; }
while [ -z "$(at)" ] || [ "$(at)" -lt $((rounds / 10)) ]; do
    kill -0 $first $second || { cat "$work"/*.log; exit 1; }
    sleep 0.1
done
# Frames from a to b go to an address that nobody has; those from b to a arrive as before.
ip -n dibo-a neigh replace 10.99.0.2 lladdr 02:00:00:00:00:99 dev veth-a nud permanent
before=$(at)
echo "iteration $before: from a to b is cut"
sleep "$cut"
echo "iteration $(at) after $cut s: restored"
ip -n dibo-a neigh del 10.99.0.2 dev veth-a
wait $first
wait $second
cat "$work"/*.log
echo "iteration $(at): done"
"$dibo" gather "${settings[@]:0:9}" --out "$work/out" --verify
