#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test that this machine can run; closes with one
# summary line. Exit status 0 only when nothing failed.
#
#   scripts/test.sh            debug build with everything, then short sanitizer runs
#   scripts/test.sh debug|asan|tsan …   only these
#
# Long forms: scripts/fuzz.sh, scripts/stress.sh, scripts/soak.sh, scripts/system.sh.
set -uo pipefail
cd "$(dirname "$0")/.."
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(debug asan tsan)

scripts/setup.sh test || exit 1
# one test boots a container; where that can't be had it is skipped
scripts/setup.sh system || echo "test: system/booted will be skipped"

passed=0 failed=0 skipped=0
count() { # adds one suite's JUnit numbers
	local numbers
	numbers=$(python3 - "$1" <<'PY'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot()
tests, bad = int(suite.get('tests')), int(suite.get('failures'))
skipped = int(suite.get('skipped')) + int(suite.get('disabled'))
print(tests - bad - skipped, bad, skipped)
for case in suite.iter('testcase'):
    if case.get('status') == 'notrun':
        reason = case.find('skipped')
        print('  not run:', case.get('name'), file=sys.stderr)
PY
	) || return 1
	read -r p f s <<<"$numbers"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

for suite in "${suites[@]}"; do
	options=()
	labels=()
	case "$suite" in
	debug)
		# CUDA code that can't run here must still compile; one architecture is enough for that.
		options=(-DMOECOMM_CUDA=AUTO -DMOECOMM_CUDA_ARCHITECTURES=90-real)
		;;
	asan) labels=(-L 'unit|integration|fault|fuzz') ;;
	tsan) labels=(-L 'unit|integration') ;;
	*)
		echo "test: unknown suite '$suite': use debug, asan or tsan" >&2
		exit 2
		;;
	esac
	echo "== $suite: build"
	log=$(mktemp)
	if ! { cmake --preset "$suite" "${options[@]}" && cmake --build --preset "$suite" -j "$(nproc)"; } >"$log" 2>&1; then
		grep -E 'error|FAILED|Error' "$log" | head -n 40
		tail -n 20 "$log"
		echo "test: the $suite build failed; the whole log is $log"
		failed=$((failed + 1))
		continue
	fi
	rm -f "$log"
	echo "== $suite: tests"
	junit=$(mktemp)
	ctest --preset "$suite" -j "$(nproc)" "${labels[@]}" --output-on-failure --output-junit "$junit" ||
		echo "== $suite: some tests failed"
	count "$junit" || {
		echo "test: $suite left no results"
		failed=$((failed + 1))
	}
	rm -f "$junit"
done

echo
echo "total: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
