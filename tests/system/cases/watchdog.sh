# SPDX-License-Identifier: Apache-2.0
# systemd's watchdog finds a loop that does not turn, and no other.

case_blocked_loop() {
	local epoch pid
	grep -q MOECOMM_INJECT_DAEMON "$(command -v moecommd)" || skip "this build has no injected faults"
	drop_in <<-'EOF'
		[Service]
		WatchdogSec=2
		LimitCORE=0
		Environment=MOECOMM_INJECT_DAEMON=block_ms:600000
	EOF
	start
	start_ranks running --rounds 300 --pause 20
	epoch=$(epoch_of_group running)
	pid=$(property MainPID)
	systemctl kill -s USR2 --kill-who=main moecommd
	expect_resumed running "$epoch" "$pid"
	logged "Watchdog timeout"
	equal "restarts" "$(property NRestarts)" 1
	expect_verified
}

is_joined_by_all() {
	[ "$(cat "$SCRATCH"/large-* | grep -c 'joined group')" = 2 ]
}

start_large() { # TOKENS
	local rank
	for rank in 0 1; do
		systemd-run -q --unit="rank-$rank" --uid=alice -p RemainAfterExit=yes \
			-p StandardOutput="truncate:$SCRATCH/large-$rank" -p StandardError=inherit \
			-- moecomm-worker --group large --rank "$rank" --world-size 2 --backend host \
			--tokens "$1" --hidden 1024 --layers 1 --rounds 1 --job large
	done
}

# The largest that the quota allows: one more row and it is refused.
case_largest_ring() {
	local bytes
	configure <<<$'[limits]\nmax_arena_bytes_per_uid = 1T'
	start
	start_large 65535
	await 120 "a first join" is_joined_by_all
	bytes=$(moecommctl --json groups large | tr -d ' \n' | sed -n 's/.*"arena_bytes":\([0-9]*\).*/\1/p')
	systemctl kill -s KILL rank-0 rank-1
	systemctl stop rank-0 rank-1 moecommd
	systemctl reset-failed
	[ "$bytes" -gt $((500 << 20)) ] || fail "arenas of $bytes bytes are not large"
	configure <<<$'[limits]\nmax_arena_bytes_per_uid = '"$bytes"
	drop_in <<<$'[Service]\nWatchdogSec=500ms\nLimitCORE=0'
	start
	start_large 65535
	await 120 "a join at the quota" is_joined_by_all
	equal "restarts" "$(property NRestarts)" 0
	systemctl kill -s KILL rank-0 rank-1
	await 10 "end of rank 0" has_ended 0
	await 10 "end of rank 1" has_ended 1
	systemctl stop rank-0 rank-1 2>/dev/null || true
	systemctl reset-failed
	start_large 65536
	await 30 "a refusal" grep -q QUOTA "$SCRATCH/large-0" "$SCRATCH/large-1"
	echo "$bytes bytes of arenas were armed under WatchdogSec=500ms"
}
