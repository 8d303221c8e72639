# SPDX-License-Identifier: Apache-2.0
# What a machine does by itself: both units are enabled, and nobody has touched anything.

case_order() {
	await 60 "multi-user.target" systemctl -q is-active multi-user.target
	equal "moecommd" "$(property ActiveState)" active
	equal "restarts of moecommd" "$(property NRestarts)" 0
	equal "the unit that needs it" "$(property Result first-user)" success
	equal "state of the unit that needs it" "$(property SubState first-user)" exited
	equal "restarts of the unit that needs it" "$(property NRestarts first-user)" 0
	journalctl --sync
	contains "its output" "$(journalctl -b -o cat -u first-user)" "verified: "
	equal "failed units" "$(systemctl list-units --failed --no-legend --plain | grep -c moecomm || true)" 0
}
