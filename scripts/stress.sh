#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A million rounds of unique payloads through the ring of 4 processes, in two groups at once, and as
# many verified ops through the daemon and the client library.
#
#   scripts/stress.sh [rounds]        default: 1000000
#
# BUILD=dir uses that build; otherwise the debug one is built first. SEED=N changes what is drawn.
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-1000000}
if ! [[ "$rounds" =~ ^[1-9][0-9]*$ ]]; then
	echo "stress: '$rounds' is no number of rounds; usage: scripts/stress.sh [rounds]" >&2
	exit 2
fi
build=${BUILD:-}
if [ -z "$build" ]; then
	build=build-debug
	log=$(mktemp)
	if ! { cmake --preset debug && cmake --build --preset debug -j "$(nproc)" --target ring_stress moecomm_soak; } >"$log" 2>&1; then
		tail -n 40 "$log"
		echo "stress: the build failed; the whole log is $log"
		exit 1
	fi
	rm -f "$log"
fi
seed=${SEED:-1}
failed=0
echo "== ring: 2 groups of 4 processes, $rounds rounds each"
"$build/tests/ring_stress" --ranks 4 --groups 2 --rounds "$rounds" --seed "$seed" || failed=1
echo "== daemon and library: groups of 1 to 6 processes that come and go, $rounds verified ops"
# the hours are a limit that the number of ops ends first
BUILD=$build scripts/soak.sh 240 --calm --ops "$rounds" --seed "$seed" || failed=1
[ "$failed" = 0 ] && echo "stress: passed" || echo "stress: failed"
exit "$failed"
