#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test under the sanitizers, and longer runs of what the sanitizers are best at: the ring, the
# soak. scripts/test.sh runs a short form.
#
#   scripts/sanitizers.sh [asan|tsan …]      default: both
#
# ROUNDS=N (default 100000) rounds of the ring a group, SOAK=N (default 2) minutes of the soak.
# Closes with one line; exit status 0 only when nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.."
presets=("$@")
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)
rounds=${ROUNDS:-100000} soak=${SOAK:-2}
failed=() ran=0

step() { # name command...
	local name=$1 log begin=$SECONDS
	shift
	log=$(mktemp)
	ran=$((ran + 1))
	if "$@" >"$log" 2>&1; then
		echo "ok   $name ($((SECONDS - begin)) s): $(grep -vE '^ *$' "$log" | tail -n 1)"
		rm -f "$log"
	else
		grep -E 'WARNING: ThreadSanitizer|ERROR: |runtime error|\*\*\*Failed|\*\*\*Timeout|FAILED|soak:' "$log" | head -n 30
		tail -n 15 "$log"
		echo "FAIL $name ($((SECONDS - begin)) s); the whole log is $log"
		failed+=("$name")
		return 1
	fi
}

build() { cmake --preset "$1" && cmake --build --preset "$1" -j "$(nproc)"; }

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
for preset in "${presets[@]}"; do
	case "$preset" in
	asan) ring=() ;;
	# the thread sanitizer sees races between threads only: the ranks are threads then
	tsan) ring=(--threads) ;;
	*)
		echo "sanitizers: unknown preset '$preset': use asan or tsan" >&2
		exit 2
		;;
	esac
	step "$preset: build" build "$preset" || continue
	# one test at a time: times are asserted, and a sanitizer costs them already
	step "$preset: all tests" ctest --preset "$preset" -j 1 --output-on-failure
	step "$preset: ring of 4, two groups, $rounds rounds" \
		"build-$preset/tests/ring_stress" --ranks 4 --groups 2 --rounds "$rounds" "${ring[@]}"
	step "$preset: ring of 7, $((rounds / 4)) rounds" \
		"build-$preset/tests/ring_stress" --ranks 7 --rounds "$((rounds / 4))" --seed 7 "${ring[@]}"
	step "$preset: calm soak" env BUILD="build-$preset" scripts/soak.sh 1 --calm --slack-ms 4000
	step "$preset: soak" env BUILD="build-$preset" scripts/soak.sh "$soak" --slack-ms 4000
done
echo
if [ ${#failed[@]} -gt 0 ]; then
	printf 'sanitizers: %d of %d steps failed:' "${#failed[@]}" "$ran"
	printf ' "%s"' "${failed[@]}"
	echo
	exit 1
fi
echo "sanitizers: all $ran steps passed"
