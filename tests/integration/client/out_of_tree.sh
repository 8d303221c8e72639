#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# out_of_tree.sh BUILD SOURCE CC: installs the library to a prefix of its own, builds the example
# project against it with CMake and with make and pkg-config, and runs both under a daemon.
set -eu
build=$1 source=$2 cc=$3
bin=${MOECOMM_TEST_BIN:-$build/bin}
work=$(mktemp -d /tmp/moecomm-oot-XXXXXX)
daemon=
finish() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	[ -z "$daemon" ] || wait "$daemon" 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

cmake --install "$build" --component client --prefix "$work/first" >/dev/null
[ -f "$work/first/include/moecomm.h" ] || { echo "moecomm.h is not installed"; exit 1; }

# an installed tree can be moved
mv "$work/first" "$work/prefix"
export MOECOMM_SOCKET="$work/s"
"$bin/moecommd" --socket "$MOECOMM_SOCKET" --backend host 2>"$work/daemon.log" &
daemon=$!

cp -r "$source/examples/out-of-tree" "$work/example"
cmake -S "$work/example" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" \
	-DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/cmake" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/cmake/example" || { cat "$work/daemon.log"; exit 1; }

if command -v pkg-config >/dev/null; then
	pc=$(find "$work/prefix" -name moecomm.pc)
	PKG_CONFIG_PATH=$(dirname "$pc") make -s -C "$work/example" CC="$cc" || exit 1
	"$work/example/example" || { cat "$work/daemon.log"; exit 1; }
else
	echo "pkg-config is missing: only the CMake variant was tried"
fi
