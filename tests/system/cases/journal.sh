# SPDX-License-Identifier: Apache-2.0
# What a group's failure leaves in the journal, and how to find it.

case_fields() {
	local epoch lines
	start
	start_ranks broken --rounds 0 --pause 20
	epoch=$(epoch_of_group broken)
	systemctl kill -s KILL rank-1
	for rank in 0 2 3; do
		await 10 "end of rank $rank" has_ended "$rank"
	done
	await 10 "a line about the group" selected MOECOMM_GROUP=broken "MOECOMM_EPOCH=$epoch" PRIORITY=4
	lines=$(selected MOECOMM_GROUP=broken "MOECOMM_EPOCH=$epoch" PRIORITY=4)
	contains "line" "$lines" "PEER_LOST"
	contains "line" "$lines" "rank 1"
	equal "lines of another group" "$(selected MOECOMM_GROUP=other)" ""
	contains "lines of the user" "$(selected "MOECOMM_UID=$(id -u alice)")" "group broken"
	contains "lines by identifier" "$(selected SYSLOG_IDENTIFIER=moecommd)" "PEER_LOST"
	contains "lines of the unit" "$(selected _SYSTEMD_UNIT=moecommd.service)" "PEER_LOST"
}

selected() { # FIELD=VALUE…
	journalctl -q --no-pager -o cat "--since=@$(cat "$SCRATCH/since")" "$@" | grep -v '^$'
}
