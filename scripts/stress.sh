#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A million rounds of unique payloads through the ring of 4 processes, in two groups at once, and as
# many verified ops through the daemon and the client library; then ops beyond 2^31 and 2^32 bytes.
#
#   scripts/stress.sh [rounds] [--small]      default: 1000000
#
# The large ops take 20 GiB of memory, with --small 10.
#
# BUILD=dir uses that build; otherwise the debug one is built first. SEED=N changes what is drawn.
set -uo pipefail
cd "$(dirname "$0")/.."
large=()
rounds=1000000
for argument in "$@"; do
	case $argument in
	--small) large=(--small) ;;
	*) rounds=$argument ;;
	esac
done
if ! [[ "$rounds" =~ ^[1-9][0-9]*$ ]]; then
	echo "stress: '$rounds' is no number of rounds; usage: scripts/stress.sh [rounds] [--small]" >&2
	exit 2
fi
build=${BUILD:-}
if [ -z "$build" ]; then
	build=build-debug
	log=$(mktemp)
	if ! { cmake --preset debug && cmake --build --preset debug -j "$(nproc)" --target ring_stress moecomm_soak large_ops; } >"$log" 2>&1; then
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
echo "== daemon and library: ops beyond 2^31 and 2^32 bytes"
bin=$PWD/$build/bin
[[ "$build" = /* ]] && bin=$build/bin
MOECOMM_TEST_BIN=$bin "$build/tests/large_ops" ${large[@]+"${large[@]}"}
case $? in
0) ;;
77) echo "stress: large ops were skipped for want of memory" ;;
*) failed=1 ;;
esac
[ "$failed" = 0 ] && echo "stress: passed" || echo "stress: failed"
exit "$failed"
