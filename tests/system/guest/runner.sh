#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the cases, each in a shell of its own on a stopped daemon without settings. A line a case:
# how it ended, its name, seconds; then, if it failed, what it wrote and what the journal has of it.
set -uo pipefail
cd /system || exit 1
source settings
source guest/lib.sh
touch out/started

names_in() {
	sed -n 's/^case_\([a-z0-9_]*\)() .*/\1/p' "$1"
}

# Lines of the daemon itself that a case has not announced are failures.
unexpected_errors() {
	journalctl --sync
	[ -e "$SCRATCH/errors_expected" ] ||
		journalctl -q --no-pager --after-cursor="$1" -p err _SYSTEMD_UNIT=moecommd.service -o cat
}

tidy() {
	systemctl stop 'rank-*.service' moecommd first-user
	rm -rf /run/systemd/system/*.d/test-*.conf "$CONFIG"
	systemctl daemon-reload
	systemctl reset-failed
	rm -rf "$SCRATCH"
	mkdir -p -m 0755 "$SCRATCH"
} 2>/dev/null

run_case() { # FILE NAME
	local name=$(basename "$1" .sh)/$2 started=$EPOCHREALTIME status word errors cursor seconds
	# boot is about what the machine has done by itself
	[ "$name" = boot/order ] && mkdir -p "$SCRATCH" || tidy
	cursor=$(journalctl -q -n 0 --show-cursor | sed -n 's/^-- cursor: //p')
	timeout -k 5 "$CASE_S" bash -euo pipefail -c "source guest/lib.sh; source $1; case_$2" \
		>"out/case" 2>&1
	status=$?
	errors=$(unexpected_errors "$cursor")
	if [ "$status" = 0 ] && [ -n "$errors" ]; then
		printf 'the daemon logged what was not expected:\n%s\n' "$errors" >>out/case
		status=1
	fi
	case $status in
	0) word=ok ;;
	77) word=skipped ;;
	124 | 137) word=failed && echo "not done within $CASE_S s" >>out/case ;;
	*) word=failed ;;
	esac
	seconds=$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
	printf '%-7s %-34s %5s s\n' "$word" "$name" "$seconds" | tee -a out/results
	if [ "$word" = failed ]; then
		sed 's/^/    /' out/case
		echo "    -- journal"
		journalctl -q --no-pager -o short-monotonic --after-cursor="$cursor" | tail -n 80 |
			sed 's/^/    /'
	elif [ "$word" = skipped ] || [ "$VERBOSE" = yes ]; then
		sed 's/^/    /' out/case
	fi
}

for file in cases/boot.sh $(printf '%s\n' cases/*.sh | grep -v /boot.sh); do
	for name in $(names_in "$file"); do
		# shellcheck disable=SC2053
		[[ "$(basename "$file" .sh)/$name" != $CASES ]] || run_case "$file" "$name"
	done
done
tidy
touch out/finished
