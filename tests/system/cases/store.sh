# SPDX-License-Identifier: Apache-2.0
# The daemon dies, is restarted and stopped under four running ranks; systemd keeps the fds.

# A board, a control block and an arena a rank, and the state.
FDS=10

begin() { # OPTION…
	start
	start_ranks running --rounds 300 --pause 20 "$@"
	epoch=$(epoch_of_group running)
	pid=$(property MainPID)
	equal "epoch that rank 0 tells" "$(epoch_of_rank 0)" "$epoch"
	equal "fds in the store" "$(n_stored)" "$FDS"
}

goes_on() {
	local rounds
	rounds=$(n_rounds 0)
	await 30 "another round" has_gone_on "$rounds"
}

case_kill_under_load() {
	begin
	kill -9 "$pid"
	expect_resumed running "$epoch" "$pid"
	equal "restarts" "$(property NRestarts)" 1
	equal "fds in the store after the restart" "$(n_stored)" "$FDS"
	goes_on
	await 30 "return of the ranks" logged "rank 3 of group running has come back"
	expect_verified
	await 10 "an empty store" store_is_empty
}

store_is_empty() { # but for the state
	[ "$(n_stored)" -le 1 ]
}

case_five_kills_in_a_row() {
	local i
	drop_in <<<$'[Unit]\nStartLimitIntervalSec=0'
	begin --rounds 450
	for i in 1 2 3 4 5; do
		pid=$(property MainPID)
		kill -9 "$pid"
		expect_resumed running "$epoch" "$pid"
	done
	equal "restarts" "$(property NRestarts)" 5
	equal "fds in the store" "$(n_stored)" "$FDS"
	expect_verified
}

case_restart_under_load() {
	begin
	systemctl restart moecommd
	expect_resumed running "$epoch" "$pid"
	equal "fds in the store after the restart" "$(n_stored)" "$FDS"
	goes_on
	expect_verified
}

# Stopping is final: systemd lets go of the fds. Ranks go on without a daemon, and beside the next one,
# which does not know their group.
case_stop_under_load() {
	begin
	systemctl stop moecommd
	equal "result" "$(property Result)" success
	equal "exit status" "$(property ExecMainCode) $(property ExecMainStatus)" "1 0"
	! logged "SIGKILL" || fail "systemd had to kill it"
	equal "fds in the store" "$(n_stored)" 0
	goes_on
	expect_verified
}

case_stop_and_start_under_load() {
	begin
	systemctl stop moecommd
	goes_on
	start
	contains "what the new one knows" "$(moecommctl groups)" "no groups"
	goes_on
	expect_verified
}

case_death_while_the_daemon_is_away() {
	drop_in <<<$'[Service]\nRestartSec=3'
	begin --rounds 0
	kill -9 "$pid"
	systemctl kill -s KILL rank-2
	await 10 "restart" is_restarted "$pid"
	for rank in 0 1 3; do
		await 10 "end of rank $rank" has_ended "$rank"
		equal "exit status of rank $rank" "$(property ExecMainStatus "rank-$rank")" 3
		contains "output of rank $rank" "$(cat "$SCRATCH/rank-$rank")" "PEER_LOST (rank 2)"
	done
	logged "group running epoch $epoch is ready: taken over"
	logged "took 1 running groups over from the last run, dropped 0"
}
