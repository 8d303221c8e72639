#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The daemon with the cuda backend over the fake driver, as operators see it: what auto means, what
# status shows, why it is not ready.
set -eu

bin=$MOECOMM_TEST_BIN
dir=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill "$pid" 2>/dev/null || :; rm -rf "$dir"' EXIT

fail() {
	echo "$1" >&2
	cat "$dir/log" >&2
	exit 1
}

# start BACKEND [VARIABLE=VALUE…]
start() {
	backend=$1
	shift
	rm -f "$dir/s"
	env "$@" "$bin/moecommd" --backend "$backend" --socket "$dir/s" >"$dir/log" 2>&1 &
	pid=$!
}

stop() {
	kill "$pid"
	wait "$pid" || fail "the daemon ended with status $?"
	pid=
}

# await WORDS COMMAND…: until the command's output has them, 10 s at most
await() {
	words=$1
	shift
	n=0
	until "$@" 2>&1 | grep -qF "$words"; do
		n=$((n + 1))
		test $n -lt 200 || fail "'$words' does not come from: $*"
		sleep 0.05
	done
}

status() {
	"$bin/moecommctl" --socket "$dir/s" "$@" status
}

fake=LD_LIBRARY_PATH=$MOECOMM_FAKE_CUDA

start auto "$fake"
await 'GPU-00000000-0000-0000-0000-000000000001' status
await '"backend": "cuda"' status --json
await '"ready": true' status --json
stop

# no driver: auto is host, and says so in one line
start auto LD_LIBRARY_PATH=/nonexistent
if [ ! -e /dev/nvidiactl ]; then
	await '"backend": "host"' status --json
	await '"ready": true' status --json
fi
stop

# asked for by name it stays not ready, with the reason, and exit status 4 of the health command
start cuda LD_LIBRARY_PATH=/nonexistent
if [ ! -e /dev/nvidiactl ]; then
	await 'not ready: no NVIDIA driver: libcuda.so.1' status
	rc=0
	"$bin/moecommctl" --socket "$dir/s" health >"$dir/health" 2>&1 || rc=$?
	test $rc = 4 || fail "health ended with $rc: $(cat "$dir/health")"
fi
stop

# a helper at a path of its own, and one that is not there
printf '[daemon]\narm_helper = %s\n' "$dir/none" >"$dir/conf"
rm -f "$dir/s"
env "$fake" "$bin/moecommd" --config "$dir/conf" --backend cuda --socket "$dir/s" >"$dir/log" 2>&1 &
pid=$!
await "not ready: the arming helper $dir/none" status
stop

ln -s "$bin/moecomm-arm" "$dir/elsewhere"
printf '[daemon]\narm_helper = %s\n' "$dir/elsewhere" >"$dir/conf"
rm -f "$dir/s"
env "$fake" "$bin/moecommd" --config "$dir/conf" --backend cuda --socket "$dir/s" >"$dir/log" 2>&1 &
pid=$!
await '"ready": true' status --json
stop
