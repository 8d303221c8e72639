# SPDX-License-Identifier: Apache-2.0
# READY means that the first try succeeds.

case_first_try() {
	local i
	source settings
	for ((i = 1; i <= STARTS; i++)); do
		systemctl start first-user || fail "start $i of $STARTS: $(journalctl -o cat -n 5 -u first-user)"
		systemctl stop first-user moecommd
		# ten starts a minute are what the unit allows, on purpose
		systemctl reset-failed moecommd first-user 2>/dev/null || true
	done
	echo "$STARTS of $STARTS starts from stopped, each with a status and a verified op at the first try"
}

# A unit that only wants the daemon outlives it. (One that requires it is restarted together with it,
# also after a crash: that is what systemd promises, and why docs/operating.md advises against it.)
case_wanting_outlives() {
	local engine pid
	start
	systemd-run -q --unit=rank-0 --uid=alice -p Wants=moecommd.service -p After=moecommd.service \
		-- moecomm-worker --group engine --rank 0 --world-size 1 --rounds 0 --pause 20
	await 30 "a group" moecommctl groups engine
	engine=$(property MainPID rank-0)
	pid=$(property MainPID)
	kill -9 "$pid"
	await 30 "restart" is_restarted "$pid"
	equal "the engine after kill -9" "$(property MainPID rank-0)" "$engine"
	systemctl restart moecommd
	equal "the engine after a restart" "$(property MainPID rank-0)" "$engine"
	systemctl stop moecommd
	equal "the engine after a stop" "$(property MainPID rank-0)" "$engine"
}
