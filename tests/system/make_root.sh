#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the root that the tests boot: this machine's own release, from the mirror that apt uses, with
# systemd and the libraries that the installed programs are linked to. Kept until one of these changes.
#
#   make_root.sh TREE ROOT      TREE: where `cmake --install` has put everything
#
# Exit status: 0 ROOT is there; 77 it can't be made here, and the reason on stdout.
set -euo pipefail
tree=$1 root=$2

skip() {
	echo "$*"
	exit 77
}

# Packages whose files the programs need here: they were built against these very versions.
library_packages() {
	local libraries
	mapfile -t libraries < <(find "$tree" -type f \( -perm -u+x -o -name '*.so.*' \) -exec ldd {} + 2>/dev/null |
		sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u)
	# on merged roots ldd and dpkg may disagree about /usr
	{ dpkg -S "${libraries[@]}" "${libraries[@]/#/\/usr}" "${libraries[@]#/usr}" 2>/dev/null || true; } |
		sed 's/:.*//' | sort -u
}

for program in debootstrap apt-get dpkg ldd; do
	command -v "$program" >/dev/null || skip "there is no $program here"
done
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$suite" ] || skip "/etc/os-release names no release"
packages=$(echo systemd systemd-sysv dbus procps $(library_packages) | tr ' ' ,)

stamp="$suite $packages $(cksum <"$0")"
[ "$(cat "$root.stamp" 2>/dev/null)" != "$stamp" ] || [ ! -d "$root" ] || exit 0

targets=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages')
site=$(awk -v suite="$suite" '$2 == suite { print $1; exit }' <<<"$targets")
components=$(awk -v suite="$suite" '$2 == suite { print $3 }' <<<"$targets" | sort -u | paste -sd,)
[ -n "$site" ] || skip "apt knows no mirror of $suite; 'apt-get update' may help"
# debootstrap does not read apt's settings
eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
[ -z "${http_proxy:-}" ] || export http_proxy
[ -z "${https_proxy:-}" ] || export https_proxy

mkdir -p "$(dirname "$root")"
rm -rf "$root" "$root.stamp" "$root.new"
# In namespaces of its own, so that what it starts and mounts is gone when it is.
unshare --mount --pid --fork --kill-child --mount-proc timeout -k 10 600 debootstrap \
	--variant=minbase --components="$components" --include="$packages" "$suite" "$root.new" "$site" \
	>"$root.log" 2>&1 &
maker=$!
# SIGKILL, because unshare ignores others while its child runs
trap 'kill -KILL "$maker"; wait "$maker" || true; rm -rf "$root.new"; exit 143' INT TERM HUP
if ! wait "$maker"; then
	rm -rf "$root.new"
	skip "debootstrap failed: $(tail -n 1 "$root.log") ($root.log has more)"
fi
trap - INT TERM HUP
# What no test needs; the root is copied for every run.
rm -rf "$root.new"/var/cache/apt/*.bin "$root.new"/var/cache/apt/archives/*.deb \
	"$root.new"/var/lib/apt/lists/* "$root.new"/usr/share/{doc,locale,man,zoneinfo}
mv "$root.new" "$root"
echo "$stamp" >"$root.stamp"
