# SPDX-License-Identifier: Apache-2.0
# What the unit forbids is nothing that the daemon does.

get() { # PORT: the answer's body
	exec 5<>"/dev/tcp/127.0.0.1/$1"
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&5
	cat <&5
	exec 5>&-
}

# A call that the filter stops kills here, instead of failing with an error that somebody may swallow.
case_whole_life() {
	local pid metrics
	drop_in <<<$'[Service]\nSystemCallErrorNumber=kill\nLimitCORE=0'
	configure <<<$'[daemon]\nlog_level = debug\n[metrics]\nmetrics_port = 9464'
	start
	pid=$(property MainPID)
	# a group that lives and ends well, with everything that one can ask meanwhile
	start_ranks whole --rounds 800 --pause 10 --rejoin
	for command in status "groups -v" clients metrics dump version "explain whole" health \
		"deadline whole --op-ms 20000" "top --once"; do
		as alice moecommctl $command >/dev/null || fail "moecommctl $command: status $?"
	done
	moecommctl release GPU-aaaaaaaa-0000-1111-2222-333333333333 >/dev/null || [ $? = 1 ]
	metrics=$(get 9464)
	contains metrics "$metrics" "200 OK"
	contains metrics "$metrics" 'group="whole"'
	# a lost rank, its replacement, an abort, a reload
	systemctl kill -s KILL rank-1
	await 10 "end of rank 1" has_ended 1
	systemctl stop rank-1 2>/dev/null || true
	systemctl reset-failed
	systemd-run -q --unit=rank-1 --uid=alice -p RemainAfterExit=yes \
		-p StandardOutput="append:$SCRATCH/rank-1" -p StandardError=inherit \
		-- moecomm-worker --group whole --rank 1 --world-size 4 --backend host --check --ragged \
		--hidden 32 --tokens 4 --layers 2 --rounds 800 --pause 10 --rejoin
	await 30 "the next epoch" grep -q "rejoined group whole" "$SCRATCH/rank-0"
	as alice moecommctl abort whole --reason test
	systemctl reload moecommd
	for rank in 0 1 2 3; do
		await 60 "end of rank $rank" has_ended "$rank"
		equal "exit status of rank $rank" "$(property ExecMainStatus "rank-$rank")" 0
	done
	equal "the daemon" "$(property MainPID) $(property ActiveState)" "$pid active"
	# the helper that looks for GPUs is below the same filter; it got as far as asking for the driver
	logged "no NVIDIA driver"
	systemctl stop moecommd
	equal "result" "$(property Result)" success
	! logged "not permitted" || fail "something was refused"
}
