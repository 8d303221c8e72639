# SPDX-License-Identifier: Apache-2.0
# What the cases have in common. All of it runs as root in the booted container.

CONFIG=/etc/moecomm/moecommd.conf
SOCKET=/run/moecomm/moecommd.sock
SCRATCH=/run/system-tests
# A case that takes longer hangs; machines under load are slow, so this is far beyond what is needed.
CASE_S=${CASE_S:-180}

fail() {
	echo "failed: $*"
	exit 1
}

skip() {
	echo "$*"
	exit 77
}

equal() { # WHAT IS WANTED
	[ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

contains() { # WHAT TEXT PART
	[[ "$2" == *"$3"* ]] || fail "$1 has no '$3': $2"
}

# Repeats a command until it succeeds.
await() { # SECONDS WHAT COMMAND…
	local seconds=$1 what=$2 end=$((SECONDS + $1))
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -le $end ] || fail "$what did not happen within $seconds s"
		sleep 0.05
	done
}

# The case makes the daemon log errors.
expect_errors() {
	touch "$SCRATCH/errors_expected"
}

# ---- the daemon's unit ----

property() { # NAME [UNIT]
	systemctl show --value -p "$1" "${2:-moecommd}"
}

# Adds to the unit, from stdin, for this case only.
drop_in() {
	local dir=/run/systemd/system/moecommd.service.d
	mkdir -p "$dir"
	cat >"$dir/test-$(ls "$dir" | wc -l).conf"
	systemctl daemon-reload
}

# Sets the configuration, from stdin, for this case only.
configure() {
	mkdir -p "${CONFIG%/*}"
	cat >"$CONFIG"
}

n_stored() {
	property NFileDescriptorStore
}

# In one question: between two, an active daemon may have gone.
is_restarted() { # PID BEFORE
	local state
	state=$(systemctl show -p ActiveState -p MainPID moecommd | sort | paste -sd' ')
	[[ "$state" == "ActiveState=active MainPID="* && "$state" != *"MainPID=$1" ]]
}

# The daemon's lines, and systemd's about it, since it was last started from scratch.
logged() { # TEXT
	journalctl --sync # journald may not have read all that was sent
	journalctl -q --no-pager -b -o cat -u moecommd "--since=@$(cat "$SCRATCH/since")" | grep -F -- "$1"
}

start() {
	date +%s.%N >"$SCRATCH/since"
	systemctl start moecommd
}

as() { # USER COMMAND…
	runuser -u "$1" -- "${@:2}"
}

# ---- workers ----

# Four ranks of an ordinary member; what each writes is in its file.
start_ranks() { # GROUP OPTION…
	local group=$1 rank
	shift
	for rank in 0 1 2 3; do
		systemd-run -q --unit="rank-$rank" --uid=alice -p RemainAfterExit=yes \
			-p StandardOutput="append:$SCRATCH/rank-$rank" -p StandardError=inherit \
			-- moecomm-worker --group "$group" --rank "$rank" --world-size 4 --backend host \
			--check --ragged --hidden 32 --tokens 4 --layers 2 --progress "$@"
	done
	for rank in 0 1 2 3; do
		await 60 "round of rank $rank" has_begun "$rank"
		grep -q round "$SCRATCH/rank-$rank" || fail "rank $rank: $(cat "$SCRATCH/rank-$rank")"
	done
}

has_begun() { # RANK: or has ended before
	grep -q round "$SCRATCH/rank-$1" || has_ended "$1"
}

n_rounds() { # RANK: as far as it has told
	sed -n 's/.* round *\([0-9]*\) .*/\1/p' "$SCRATCH/rank-$1" | tail -n 1
}

has_gone_on() { # ROUNDS BEFORE
	[ "$(n_rounds 0)" -gt "$1" ]
}

epoch_of_rank() { # RANK
	sed -n 's/.* epoch \([0-9]*\),.*/\1/p' "$SCRATCH/rank-$1" | tail -n 1
}

epoch_of_group() { # GROUP
	moecommctl --json groups "$1" | tr -d ' \n' | sed -n 's/.*"epoch":\([0-9]*\).*/\1/p'
}

has_ended() { # RANK
	[ "$(property SubState "rank-$1")" != running ]
}

# All ranks end well, with every layer verified, in the epoch that they began in.
expect_verified() {
	local rank
	for rank in 0 1 2 3; do
		await 120 "end of rank $rank" has_ended "$rank"
		equal "exit status of rank $rank ($(tail -n 2 "$SCRATCH/rank-$rank"))" \
			"$(property ExecMainStatus "rank-$rank")" 0
		contains "output of rank $rank" "$(cat "$SCRATCH/rank-$rank")" "verified: "
		equal "epochs of rank $rank" "$(grep -c 'joined group' "$SCRATCH/rank-$rank")" 1
	done
}

expect_resumed() { # GROUP EPOCH PID_BEFORE
	await 30 "restart" is_restarted "$3"
	equal "epoch of $1 after the restart" "$(epoch_of_group "$1")" "$2"
	contains "groups" "$(moecommctl groups "$1")" "ready"
}
