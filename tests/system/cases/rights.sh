# SPDX-License-Identifier: Apache-2.0
# Who gets in, and what the others are told.

worker=(moecomm-worker --group g --rank 0 --world-size 1 --rounds 1 --layers 1 --check)

# Ends at once with DENIED and the text, in the client and in moecommctl.
expect_denied() { # TEXT
	local said status=0 begin=$SECONDS
	said=$(as mallory moecommctl status 2>&1) || status=$?
	equal "status of moecommctl ($said)" "$status" 3
	contains "what moecommctl says" "$said" "$1"
	status=0
	said=$(as mallory "${worker[@]}" --wait 60000 2>&1) || status=$?
	equal "status of the worker ($said)" "$status" 3
	contains "what the worker says" "$said" DENIED
	contains "what the worker says" "$said" "$1"
	[ $((SECONDS - begin)) -lt 20 ] || fail "being told took $((SECONDS - begin)) s"
	echo "$said"
}

case_member() {
	systemctl start moecommd
	contains "status" "$(as alice moecommctl status)" "host"
	contains "worker" "$(as alice "${worker[@]}")" "verified: "
}

case_stranger_at_the_socket() {
	systemctl start moecommd
	expect_denied "$SOCKET"
	expect_denied "0660"
	expect_denied "group moecomm"
	equal "restarts of the daemon" "$(property NRestarts)" 0
	equal "the daemon" "$(property ActiveState)" active
}

case_stranger_at_the_directory() {
	drop_in <<<$'[Service]\nRuntimeDirectoryMode=0750'
	systemctl start moecommd
	contains "status" "$(as alice moecommctl status)" "host"
	expect_denied "/run/moecomm "
	expect_denied "0750"
	expect_denied "group moecomm"
}

# Without capabilities the daemon can give its socket only to a group that it is in.
case_socket_of_another_group() {
	local said
	expect_errors
	configure <<<$'[daemon]\nsocket_group = others'
	! start 2>/dev/null || fail "a group that the daemon is not in was accepted"
	said=$(logged "to group others") || fail "the log does not say why"
	contains "the log" "$said" "SupplementaryGroups=others"
	systemctl stop moecommd
	systemctl reset-failed moecommd
	drop_in <<<$'[Service]\nSupplementaryGroups=others'
	start
	equal "socket" "$(stat -c '%U %G %a' $SOCKET)" "moecomm others 660"
}
