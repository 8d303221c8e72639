#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing moecomm needs on Debian 12 or Ubuntu 24.04; says what, and does
# nothing when all is there. Uses sudo when it is not root.
#
#   scripts/setup.sh [build|test|system|fuzz|bundle]   (default: test, which includes build)
set -euo pipefail

packages=(gcc g++ libc6-dev cmake ninja-build pkg-config git ca-certificates
	libuv1-dev libprotobuf-c-dev protobuf-c-compiler libsystemd-dev libinih-dev
	libsmartcols-dev libjson-c-dev libmicrohttpd-dev uthash-dev libcmocka-dev scdoc)
case "${1:-test}" in
build) ;;
test) packages+=(make spin python3 procps groff-base) ;;
system) packages+=(systemd-container debootstrap) ;;
fuzz) packages+=(make spin python3 procps groff-base clang llvm) ;;
bundle) packages+=(python3 binutils) ;;
*)
	echo "setup: unknown set '$1': use build, test, system, fuzz or bundle" >&2
	exit 2
	;;
esac

missing=()
for package in "${packages[@]}"; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "setup: this script knows apt-get only; install by hand: ${missing[*]}" >&2
	exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || {
		echo "setup: not root and no sudo; install by hand: ${missing[*]}" >&2
		exit 1
	}
	as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update -q &&
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"; } \
	>"$log" 2>&1; then
	tail -n 20 "$log" >&2
	echo "setup: installation failed; the whole log is $log" >&2
	exit 1
fi
rm -f "$log"
