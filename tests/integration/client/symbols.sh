#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh LIBRARY: exports moecomm_* only, has its SONAME, and needs no CUDA.
set -eu
lib=$1
exported=$(nm -D --defined-only "$lib" | awk '$2 != "A" {print $3}' | sed 's/@.*//')
[ -n "$exported" ] || { echo "$lib exports nothing"; exit 1; }
foreign=$(echo "$exported" | grep -v '^moecomm_[a-z]' || true)
[ -z "$foreign" ] || { echo "$lib exports what is not its interface: $foreign"; exit 1; }
# every function of the header is there, and nothing else
header=$(dirname "$0")/../../../client/moecomm.h
declared=$(grep -oE '\*?moecomm_[a-z_]+\(' "$header" | tr -d '*(' | sort -u)
for name in $declared; do
	echo "$exported" | grep -qx "$name" || { echo "$name is declared, but not exported"; exit 1; }
done
for name in $exported; do
	echo "$declared" | grep -qx "$name" || { echo "$name is exported, but not declared"; exit 1; }
done
readelf -d "$lib" | grep -q 'SONAME.*\[libmoecomm-client\.so\.0\]' || { echo "wrong SONAME"; exit 1; }
if readelf -d "$lib" | grep NEEDED | grep -iqE 'cuda|nvidia|libuv|systemd'; then
	echo "$lib needs what a worker must not need"; readelf -d "$lib" | grep NEEDED; exit 1
fi
echo "$(echo "$exported" | wc -l) functions"
