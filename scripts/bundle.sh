#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a bundle for GPU hosts that have none of our build dependencies: a relocatable tree with the
# run-time libraries beside it, and an archive of it. Runs wherever glibc is at least the build
# machine's (build on Debian 12 for Ubuntu 24.04 and later).
#
#   scripts/bundle.sh [--architectures LIST|all] [--build DIR] [--output DIR]
#
# LIST is as in CMAKE_CUDA_ARCHITECTURES (default 90-real); all: what a release is built for.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
architectures=90-real
build=
output=$source/dist
max_mib=40

while [ $# -gt 0 ]; do
	case $1 in
	--architectures) architectures=$2 ;;
	--build) build=$2 ;;
	--output) output=$2 ;;
	*)
		sed -n '7,9s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
	esac
	shift 2
done

bash "$source/scripts/setup.sh" bundle
version=$(sed -n 's/^project(moecomm VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
name=moecomm-$version-$(uname -m)
build=${build:-$source/build-bundle}
stage=$output/$name
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2054 # the commas are the linker's
options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DMOECOMM_CUDA=ON -DMOECOMM_FAULT_INJECTION=OFF
	-DBUILD_TESTING=ON "-DMOECOMM_TEST_ROOMS=support;gpu" -DCMAKE_INSTALL_PREFIX=/opt/moecomm -DCMAKE_INSTALL_LIBDIR=lib
	# the build tree's own layout is the bundle's: test programs are copied from it as they are
	-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
	# DT_RPATH, not DT_RUNPATH: a library's own libraries are to be found beside it too
	-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
	-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags
	-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--disable-new-dtags)
if [ "$architectures" != all ]; then
	options+=("-DMOECOMM_CUDA_ARCHITECTURES=$architectures")
elif nvcc --help 2>/dev/null | grep -q -e --compress-mode; then
	# for five architectures the kernels would be most of the bundle
	options+=(-DCMAKE_CUDA_FLAGS=--compress-mode=size)
fi
cmake -S "$source" -B "$build" -G Ninja "${options[@]}"
cmake --build "$build"

# DESTDIR, because units and the like have absolute places of their own, which a bundle leaves out
DESTDIR=$work/root cmake --install "$build" --strip >/dev/null
rm -rf "$stage"
mkdir -p "$output"
mv "$work/root/opt/moecomm" "$stage"
rm -rf "$stage/include" "$stage/lib/cmake" "$stage/lib/pkgconfig" "$stage"/lib/*.a

# ---- tests that need a GPU: ctest knows which, with which arguments and how long they may take ----
mkdir -p "$stage/tests"
(cd "$build" && ctest -L '^gpu$' --show-only=json-v1) >"$work/tests.json"
python3 - "$work/tests.json" "$build" "$stage/tests" <<'END'
import json, os, shutil, sys

listing, build, stage = sys.argv[1:]
with open(os.path.join(stage, "gpu-tests.list"), "w", encoding="utf-8") as out:
    for test in json.load(open(listing, encoding="utf-8"))["tests"]:
        command = test.get("command")
        if not command:
            continue
        seconds = next((p["value"] for p in test["properties"] if p["name"] == "TIMEOUT"), 60)
        program = os.path.basename(command[0])
        shutil.copy2(command[0], os.path.join(stage, program))
        arguments = [a.replace(build, "$ROOT") for a in command[1:]]
        out.write("\t".join([test["name"], str(int(float(seconds))), program, *arguments]) + "\n")
END
find "$stage/tests" -type f -perm -u+x -exec strip --strip-unneeded {} +

# ---- run-time libraries ----
# Those of the system that every Linux has stay the system's: the C library and the compiler's.
is_systems() {
	case $(basename "$1") in
	ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libresolv.so* | \
		libgcc_s.so* | libstdc++.so* | libcuda.so*) return 0 ;;
	esac
	return 1
}
elf_files() {
	find "$stage" -type f \( -perm -u+x -o -name '*.so*' \) -exec sh -c \
		'for f; do head -c 4 "$f" | grep -q ELF && echo "$f"; done' sh {} + || true
}
mkdir -p "$stage/lib"
elf_files | while read -r file; do
	LD_LIBRARY_PATH=$stage/lib ldd "$file" | awk '$3 ~ /^\// { print $3 }'
done | sort -u | while read -r library; do
	case $library in "$stage"/*) continue ;; esac
	is_systems "$library" || cp -L "$library" "$stage/lib/"
done
strip --strip-unneeded "$stage"/lib/*.so*

cp "$source/scripts/gpu/run-gpu-tests.sh" "$stage/"
cp "$source/docs/gpu-hosts.md" "$stage/README.md"
cp "$source/LICENSE" "$stage/"
{
	echo "version $version"
	echo "commit $(git -C "$source" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)"
	echo "architectures $architectures"
	echo "cuda $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
	echo "glibc $(ldd --version | sed -n '1s/.* //p')"
} >"$stage/BUNDLE"

# ---- proof: with none of the system's own libraries in the way, everything resolves in the bundle ----
bad=0
while read -r file; do
	while read -r library place; do
		if [ "$place" = not ]; then
			echo "bundle: $file needs $library, which is not in the bundle" >&2
			bad=1
		elif [[ $place != "$stage"/* ]] && ! is_systems "$library"; then
			echo "bundle: $file takes $library from $place" >&2
			bad=1
		fi
	done < <(env -i PATH="$PATH" ldd "$file" | awk '/=>/ { print $1, $3 }')
done < <(elf_files | grep -v "^$stage/lib/lib")
[ $bad = 0 ]

tar -C "$output" -I 'gzip -9' -cf "$output/$name.tar.gz" "$name"
mib=$(($(stat -c %s "$output/$name.tar.gz") >> 20))
tree=$(du -sm "$stage" | cut -f1)
echo "$output/$name.tar.gz: $mib MiB, unpacked $tree MiB"
if [ "$tree" -ge $max_mib ]; then
	echo "bundle: $tree MiB unpacked is more than the $max_mib MiB that a bundle may have:" \
		"build for fewer architectures" >&2
	exit 1
fi
