#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build into a small Debian root, boots it with its own systemd in a container, lets the
# cases run in there and tells how they ended. Nothing is left behind but the cached root.
#
#   run.sh --build DIR [--cache DIR] [--starts N] [--cases PATTERN] [--verbose]
#
#   --build DIR       a finished build whose prefix is /usr or /usr/local
#   --cache DIR       where the root is kept (default: DIR/system of the build)
#   --starts N        how often the order of units is tried (100)
#   --cases PATTERN   only cases whose FILE/NAME matches the glob
#   --verbose         print what every case wrote, not only the failed ones
#
# Exit status: 0 all passed, 1 something failed, 2 usage, 77 can't run here (the reason on stdout).
set -uo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
build='' cache='' starts=100 cases='*' verbose=no bound_s=900

usage() {
	echo "system: $1; usage: run.sh --build DIR [--cache DIR] [--starts N] [--cases PATTERN] [--verbose]" >&2
	exit 2
}
while [ $# -gt 0 ]; do
	case "$1" in
	--verbose) verbose=yes ;;
	--build | --cache | --starts | --cases)
		[ $# -gt 1 ] || usage "$1 needs a value"
		declare "${1#--}=$2"
		shift
		;;
	*) usage "unknown option '$1'" ;;
	esac
	shift
done
[ -f "$build/CMakeCache.txt" ] || usage "--build '$build' is no build directory"
[[ "$starts" =~ ^[1-9][0-9]*$ ]] || usage "--starts '$starts' is no number"
build=$(cd "$build" && pwd)
cache=${cache:-$build/system}

skip() {
	echo "skipped: $*"
	exit 77
}
[ "$(id -u)" = 0 ] || skip "booting a container needs root"
for program in systemd-nspawn debootstrap; do
	command -v "$program" >/dev/null || skip "there is no $program here: scripts/setup.sh system installs it"
done
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[^=]*=//p' "$build/CMakeCache.txt")
case "$prefix" in
/usr | /usr/local) ;;
*) skip "systemd looks for no units below the prefix $prefix" ;;
esac

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -w "$bound_s" 9 || skip "another run holds $cache/lock"
work=$(mktemp -d "$cache/run.XXXXXX")
machine=moecomm-system-$$
maker='' container='' printer=''

# The container's cgroups go below one of our own where no systemd of the host makes a scope for it:
# then all of them can be removed.
hierarchies=()
if [ ! -d /run/systemd/system ]; then
	for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
		[ ! -f "$hierarchy/cgroup.procs" ] || hierarchies+=("$hierarchy/$machine")
	done
fi

clean_up() {
	trap '' INT TERM HUP
	if [ -n "$maker" ]; then
		kill "$maker" 2>/dev/null
		wait "$maker" 2>/dev/null
	fi
	if [ -n "$container" ]; then
		# asks its systemd to power off, and kills it if that takes long
		kill "$container" 2>/dev/null
		wait "$container" 2>/dev/null
	fi
	[ -z "$printer" ] || kill "$printer" 2>/dev/null
	for hierarchy in "${hierarchies[@]}"; do
		find "$hierarchy" -depth -type d -exec rmdir {} + 2>/dev/null
	done
	rmdir "/run/systemd/nspawn/propagate/$machine" 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
	echo "system: $*"
	exit 1
}

DESTDIR=$work/tree cmake --install "$build" >"$work/install.log" 2>&1 || {
	tail -n 20 "$work/install.log"
	fail "the build can't be installed; is it finished?"
}
# beside us, so that a signal need not wait for its end
"$here/make_root.sh" "$work/tree" "$cache/root" >"$work/reason" 2>&1 9>&- &
maker=$!
wait "$maker"
status=$?
maker=''
case $status in
0) ;;
77) skip "$(cat "$work/reason")" ;;
*) fail "the root can't be made: $(cat "$work/reason")" ;;
esac

root=$work/root
cp -a "$cache/root" "$root" && cp -a "$work/tree/." "$root/" || fail "the root can't be copied"
mkdir -p "$root/system/out"
cp -r "$here/guest" "$here/cases" "$root/system/"
cp "$here"/guest/*.service "$root/etc/systemd/system/"
cp "$here/guest/users.conf" "$root/usr/lib/sysusers.d/moecomm-system.conf"
printf 'STARTS=%s\nCASES=%q\nVERBOSE=%s\n' "$starts" "$cases" "$verbose" >"$root/system/settings"
if ! { chroot "$root" ldconfig &&
	chroot "$root" systemctl enable moecommd first-user system-tests &&
	chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer; } >"$work/enable.log" 2>&1; then
	cat "$work/enable.log"
	fail "the units can't be enabled"
fi

options=(--quiet --directory="$root" --machine="$machine" --register=no --boot --private-network
	--link-journal=no --resolv-conf=off --timezone=off --console=pipe)
[ -d /run/systemd/system ] || options+=(--keep-unit)
: >"$root/system/out/log"
(
	for hierarchy in "${hierarchies[@]}"; do
		mkdir "$hierarchy" && echo "$BASHPID" >"$hierarchy/cgroup.procs"
	done
	exec timeout -k 20 "$bound_s" systemd-nspawn "${options[@]}" </dev/null >"$work/console" 2>&1 9>&-
) &
container=$!
tail -n +1 -s 0.2 -f --pid="$container" "$root/system/out/log" 9>&- &
printer=$!
wait "$container"
status=$?
container=''
wait "$printer"
printer=''

# The runner starts before and without moecommd, so that what keeps it away is not ours.
[ -f "$root/system/out/started" ] ||
	skip "no systemd could be booted here: $(tr -d '\r' <"$work/console" | grep . | tail -n 1)"
n_of() {
	grep -c "^$1 " "$root/system/out/results"
}
touch "$root/system/out/results"
passed=$(n_of ok) failed=$(n_of failed) skipped=$(n_of skipped)
if [ ! -f "$root/system/out/finished" ]; then
	failed=$((failed + 1))
	tail -n 20 "$work/console"
	echo "system: the run did not come to its end (status $status)"
fi
echo
echo "system: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
