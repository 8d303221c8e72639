#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots a small Debian with its own systemd in a container, and runs the installed moecommd as its
# service: starts, rights, restarts under load with the fd store, watchdog, settings, journal.
# Closes with one summary line.
#
#   scripts/system.sh [--starts N] [--cases PATTERN] [--verbose]     default: 100 starts, all cases
#
# BUILD=dir keeps the build and the cached root elsewhere than in build-system. Needs root. Exit status:
# 0 all passed, 1 something failed, 77 it can't run here, and the reason is said.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build-system}

scripts/setup.sh system || {
	echo "skipped: what booting a container needs can't be installed"
	exit 77
}
# Debug, because faults to inject are compiled in; the prefix of packages, because the unit holds it.
log=$(mktemp)
if ! { cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_FLAGS_DEBUG=-g -O1" \
	-DCMAKE_INSTALL_PREFIX=/usr -DMOECOMM_WERROR=ON -DMOECOMM_FAULT_INJECTION=ON \
	-DMOECOMM_CUDA=OFF -DBUILD_TESTING=OFF && cmake --build "$build" -j "$(nproc)"; } >"$log" 2>&1; then
	tail -n 40 "$log"
	echo "system: the build failed; the whole log is $log"
	exit 1
fi
rm -f "$log"
exec tests/system/run.sh --build "$build" "$@"
