#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare machine to an expert-parallel MoE layer across four processes: installs what is
# missing, builds, starts the daemon, runs four workers that check themselves against an fp64
# reference, shows what moecommctl sees meanwhile, stops everything it started.
#
#   scripts/demo.sh [WORLD_SIZE]      (default 4)
set -euo pipefail
cd "$(dirname "$0")/.."
world=${1:-4}
case "$world" in
'' | *[!0-9]* | 0)
	echo "usage: scripts/demo.sh [WORLD_SIZE]" >&2
	exit 2
	;;
esac

scripts/setup.sh build

# Without a GPU there is nothing that CUDA code could do, and it takes long to compile.
cuda=OFF
[ -e /dev/nvidiactl ] && cuda=AUTO
echo "demo: building (build/)"
log=$(mktemp)
if ! { cmake --preset release -DMOECOMM_CUDA=$cuda -DBUILD_TESTING=OFF && cmake --build build -j "$(nproc)"; } >"$log" 2>&1; then
	tail -n 40 "$log" >&2
	echo "demo: the build failed; the whole log is $log" >&2
	exit 1
fi
rm -f "$log"

dir=$(mktemp -d)
export MOECOMM_SOCKET=$dir/moecommd.sock
pids=()
finish() {
	trap - EXIT INT TERM
	local pid
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "demo: starting moecommd"
build/bin/moecommd --socket "$MOECOMM_SOCKET" >"$dir/daemon.log" 2>&1 &
daemon=$!
pids+=("$daemon")
for _ in $(seq 100); do
	build/bin/moecommctl status >/dev/null 2>&1 && break
	if ! kill -0 "$daemon" 2>/dev/null; then
		cat "$dir/daemon.log" >&2
		echo "demo: the daemon did not start" >&2
		exit 1
	fi
	sleep 0.1
done

echo "demo: starting $world workers"
workers=()
for rank in $(seq 0 $((world - 1))); do
	progress=()
	[ "$rank" = 0 ] && progress=(--progress)
	build/bin/moecomm-worker --group demo --rank "$rank" --world-size "$world" --layers 4 \
		--tokens 16 --rounds 60 --check "${progress[@]}" >"$dir/worker$rank.log" 2>&1 &
	workers+=($!)
	pids+=($!)
done
tail -n +1 -f --pid="${workers[0]}" "$dir/worker0.log" 2>/dev/null | sed -u 's/^/  rank 0: /' &
pids+=($!)

# What an operator sees meanwhile: wait until the group is ready, then ask.
for _ in $(seq 100); do
	build/bin/moecommctl --json groups 2>/dev/null | grep -q '"ready"' && break
	kill -0 "${workers[0]}" 2>/dev/null || break
	sleep 0.05
done
build/bin/moecommctl status >"$dir/status" 2>&1 || true
build/bin/moecommctl groups -v >"$dir/groups" 2>&1 || true

failed=0
for rank in $(seq 0 $((world - 1))); do
	if ! wait "${workers[$rank]}"; then
		failed=1
		echo "demo: rank $rank failed:" >&2
		tail -n 5 "$dir/worker$rank.log" >&2
	fi
done
sleep 0.2 # lets the tail above print rank 0's last lines

echo
echo "demo: moecommctl status, while they ran"
sed 's/^/  /' "$dir/status"
echo
echo "demo: moecommctl groups -v, while they ran"
sed 's/^/  /' "$dir/groups"
echo
for rank in $(seq 0 $((world - 1))); do
	grep -E 'median|^verified' "$dir/worker$rank.log" | sed "s/^ */  rank $rank: /"
done

kill -TERM "$daemon"
wait "$daemon" || {
	echo "demo: the daemon did not stop cleanly" >&2
	failed=1
}
[ "$failed" = 0 ] || exit 1
echo "demo: done, everything stopped"
