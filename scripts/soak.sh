#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs groups of changing sizes while ranks and the daemon are killed, stopped, delayed, aborted and
# restarted, and checks every op, every failure's status and time, and that nothing is left behind.
#
#   scripts/soak.sh [minutes] [--seed N] [--calm] [--slack-ms N]     default: 10 minutes
#
# BUILD=dir uses another build than the debug one (which is built first). Exit status 0 only when it
# ran clean.
set -uo pipefail
cd "$(dirname "$0")/.."
minutes=10
if [ $# -gt 0 ] && [[ "$1" != --* ]]; then
	minutes=$1
	shift
fi
if ! [[ "$minutes" =~ ^[1-9][0-9]*$ ]]; then
	echo "soak: '$minutes' is no number of minutes; usage: scripts/soak.sh [minutes] [--seed N] [--calm]" >&2
	exit 2
fi
build=${BUILD:-}
if [ -z "$build" ]; then
	build=build-debug
	log=$(mktemp)
	if ! { cmake --preset debug && cmake --build --preset debug -j "$(nproc)" --target moecomm_soak; } >"$log" 2>&1; then
		tail -n 40 "$log"
		echo "soak: the build failed; the whole log is $log"
		exit 1
	fi
	rm -f "$log"
fi
export MOECOMM_TEST_BIN=$PWD/$build/bin
[[ "$build" = /* ]] && MOECOMM_TEST_BIN=$build/bin
exec "$build/tests/moecomm_soak" --seconds $((minutes * 60)) "$@"
