# SPDX-License-Identifier: Apache-2.0
# The installed unit, user, group and directory.

case_verify() {
	local unit said
	unit=$(property FragmentPath)
	# the root has no man to look pages up with
	said=$(systemd-analyze verify --man=no "$unit" 2>&1) || fail "systemd-analyze verify: $said"
	equal "what systemd-analyze verify says" "$said" ""
}

case_user_and_directory() {
	contains "id of moecomm" "$(id moecomm)" "(moecomm)"
	equal "home and shell" "$(getent passwd moecomm | cut -d: -f6-)" "/:/usr/sbin/nologin"
	rm -rf /run/moecomm
	systemd-tmpfiles --create moecomm.conf
	equal "directory of tmpfiles.d" "$(stat -c '%U %G %a' /run/moecomm)" "moecomm moecomm 755"
	systemctl start moecommd
	equal "directory under systemd" "$(stat -c '%U %G %a' /run/moecomm)" "moecomm moecomm 755"
	equal "socket" "$(stat -c '%U %G %a' $SOCKET)" "moecomm moecomm 660"
	systemctl stop moecommd
	[ ! -e $SOCKET ] || fail "the socket is left after a stop"
}

case_least_privilege() {
	local pid status field limit
	systemctl start moecommd
	pid=$(property MainPID)
	status=$(cat "/proc/$pid/status")
	equal "user" "$(stat -c %U "/proc/$pid")" moecomm
	for field in CapInh CapPrm CapEff CapBnd CapAmb; do
		contains status "$status" "$field:"$'\t'0000000000000000
	done
	contains status "$status" "NoNewPrivs:"$'\t'1
	contains status "$status" "Seccomp:"$'\t'2
	# what LimitNOFILE= asks for, where the container is allowed that much
	limit=$(awk '/open files/ { print ($5 < 65536) ? $5 : 65536 }' /proc/1/limits)
	equal "limit of open files" "$(awk '/open files/ { print $4, $5 }' "/proc/$pid/limits")" "$limit $limit"
}

# Without waiting: what a start leaves is what one reads.
case_status_line() {
	local i
	for i in 1 2 3 4 5; do
		systemctl start moecommd
		contains "systemctl status" "$(systemctl --no-pager status moecommd)" \
			'Status: "serving 0 groups (0 ready) and 0 clients, backend host"'
		systemctl stop moecommd
	done
}

# The same figure is in docs/operating.md.
case_exposure() {
	systemd-analyze --no-pager security --threshold=22 moecommd >"$SCRATCH/exposure" ||
		fail "$(tail -n 1 "$SCRATCH/exposure")"
	tail -n 1 "$SCRATCH/exposure"
}

# The example drop-in, as it is installed, is one that systemd takes.
case_example_drop_in() {
	local example
	example=$(find /usr -path '*moecommd.service.d/limits.conf')
	configure <<<''
	cp "$CONFIG" /etc/moecomm/moecommd-large.conf
	drop_in <"$example"
	equal "what systemd-analyze verify says" "$(systemd-analyze verify --man=no moecommd.service 2>&1)" ""
	start
	equal "room in the store" "$(property FileDescriptorStoreMax)" 16384
	rm /etc/moecomm/moecommd-large.conf
}
