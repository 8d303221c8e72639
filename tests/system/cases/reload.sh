# SPDX-License-Identifier: Apache-2.0
# Settings, changed while it runs, and wrong.

case_changed() {
	configure <<<$'[groups]\nstall_ms = 2000\n[limits]\nmax_queue_bytes = 4M'
	start
	configure <<<$'[groups]\nstall_ms = 500\n[limits]\nmax_queue_bytes = 8M'
	systemctl reload moecommd
	await 10 "the new value" logged "stall_ms is now 500"
	await 10 "what needs a restart" logged "max_queue_bytes stays 4M: 8M takes effect when the daemon is restarted"
	await 10 "being active again" systemctl -q is-active moecommd
	contains "dump" "$(moecommctl dump | tr -d ' \n')" 'stall_ms=500\n'
}

case_broken() {
	local pid
	expect_errors
	configure <<<$'[groups]\nstall_ms = 700'
	start
	pid=$(property MainPID)
	configure <<<$'[groups]\nstall_ms = soon'
	systemctl reload moecommd
	await 10 "a line that says so" logged "the configuration was not reloaded: $CONFIG:2: stall_ms = soon"
	await 10 "being active again" systemctl -q is-active moecommd
	equal "the daemon" "$(property MainPID)" "$pid"
	contains "dump" "$(moecommctl dump | tr -d ' \n')" 'stall_ms=700\n'
}

has_given_up() {
	[ "$(property ActiveState) $(property SubState)" = "failed failed" ]
}

# Fails with one line an attempt, and systemd gives up after the attempts that the unit allows.
case_broken_start() {
	local n
	expect_errors
	configure <<<$'[groups]\nstall_ms = soon'
	! start 2>/dev/null || fail "it started with a broken configuration"
	await 60 "giving up" has_given_up
	equal "result" "$(property Result)" exit-code
	n=$(logged "$CONFIG:2: stall_ms = soon" | wc -l)
	equal "lines that say why" "$n" 10
	n=$(journalctl -q -o cat -u moecommd SYSLOG_IDENTIFIER=moecommd -p err "--since=@$(cat "$SCRATCH/since")" | wc -l)
	equal "lines of the daemon, all of them errors" "$n" 10
	logged "Start request repeated too quickly"
	configure <<<''
	systemctl reset-failed moecommd
	start
}
