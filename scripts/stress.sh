#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long forms of tests that the ordinary run has in short: rounds by the million without a stale
# value, and ops whose bytes pass 2^31 and 2^32. Exit status 0 only when all ran right.
#
#   scripts/stress.sh [--rounds N] [--small]
#
# --rounds: of mixed dispatch and combine at 4 processes, two groups at once; default 1,000,000
#           (minutes on 2 cores). --small: large ops in 10 GiB of memory instead of 20.
# BUILD=dir uses another build than the debug one (which is built first).
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=1000000
large=()
while [ $# -gt 0 ]; do
	case "$1" in
	--rounds)
		rounds=${2:-}
		shift
		;;
	--small) large=(--small) ;;
	*) rounds= ;;
	esac
	[ $# -eq 0 ] || shift
done
if ! [[ "$rounds" =~ ^[1-9][0-9]*$ ]]; then
	echo "stress: usage: scripts/stress.sh [--rounds N] [--small]" >&2
	exit 2
fi
build=${BUILD:-}
if [ -z "$build" ]; then
	scripts/setup.sh test || exit 1
	build=build-debug
	log=$(mktemp)
	if ! { cmake --preset debug && cmake --build --preset debug -j "$(nproc)"; } >"$log" 2>&1; then
		tail -n 40 "$log"
		echo "stress: the build failed; the whole log is $log"
		exit 1
	fi
	rm -f "$log"
fi
[[ "$build" = /* ]] || build=$PWD/$build
export MOECOMM_TEST_BIN=$build/bin
status=0

echo "== $rounds rounds of mixed ops, two groups of 4 processes"
"$build/tests/ring_stress" --ranks 4 --groups 2 --rounds "$rounds" || status=1

echo "== ops beyond 2^31 and 2^32 bytes"
"$build/tests/large_ops" "${large[@]}"
case $? in
0) ;;
77) echo "stress: large ops were skipped for want of memory" ;;
*) status=1 ;;
esac
[ "$status" = 0 ] && echo "stress: all right" || echo "stress: something failed"
exit $status
