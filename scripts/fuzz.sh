#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target under address and undefined-behaviour sanitizers; exit 0 when none finds anything.
#
#   scripts/fuzz.sh [SECONDS_EACH]    (default 300)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
scripts/setup.sh fuzz
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(nproc)" | tail -n 1
status=0
for target in build-fuzz/fuzz/fuzz_*; do
	[ -x "$target" ] || continue
	name=$(basename "$target")
	work=$(mktemp -d)
	echo "== $name: $seconds s"
	if ! "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$work/" "$work" "tests/fuzz/corpus/$name" 2>"$work.log"; then
		status=1
		tail -n 30 "$work.log"
		echo "fuzz: $name found something; inputs are in $work"
		continue
	fi
	grep -E 'stat::|Done' "$work.log" || true
	rm -rf "$work" "$work.log"
done
exit $status
