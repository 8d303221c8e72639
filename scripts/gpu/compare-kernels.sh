#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One idea at a time: builds mc-kernel-lab of several commits, to be run side by side on a GPU host
# that has no build tools, in turns, so that a machine's moods fall on all of them alike.
#
#   scripts/gpu/compare-kernels.sh [--output DIR] [--architectures LIST] COMMIT…
#   DIR/compare.sh [REPEATS] [mc-kernel-lab's options]   on the GPU host, e.g.
#                  3 --devices 2 --op dispatch --tokens 1,4,16
#
# DIR defaults to dist/kernels. compare.sh prints a line an op, size and form with each commit's
# median over the repeats in µs, and keeps every line that the programs wrote in DIR/lines.txt.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
output=$source/dist/kernels
architectures=90-real
while [ $# -gt 0 ]; do
	case $1 in
	--output) output=$2 && shift 2 ;;
	--architectures) architectures=$2 && shift 2 ;;
	-*) sed -n '6,8s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
	*) break ;;
	esac
done
[ $# -gt 0 ] || {
	echo "compare-kernels: name the commits to compare" >&2
	exit 2
}

work=$(mktemp -d)
trap 'git -C "$source" worktree prune; rm -rf "$work"' EXIT
rm -rf "$output"
mkdir -p "$output"
n=0
for commit in "$@"; do
	id=$(git -C "$source" rev-parse --short "$commit^{commit}")
	n=$((n + 1))
	git -C "$source" worktree add -q --detach "$work/tree" "$id"
	cmake -S "$work/tree" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMOECOMM_CUDA=ON \
		"-DMOECOMM_CUDA_ARCHITECTURES=$architectures" -DBUILD_TESTING=OFF >/dev/null
	cmake --build "$work/build" --target mc-kernel-lab >"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		exit 1
	}
	lab=$(find "$work/build" -name mc-kernel-lab -type f)
	strip -o "$output/$(printf '%02d' $n)-$id" "$lab"
	echo "$id $(git -C "$source" log -1 --format=%s "$id")" | tee -a "$output/commits.txt"
	git -C "$source" worktree remove --force "$work/tree"
	rm -rf "$work/build"
done

cat >"$output/compare.sh" <<'EOF'
#!/usr/bin/env bash
# compare.sh [REPEATS] [mc-kernel-lab's options]; made by scripts/gpu/compare-kernels.sh
set -u
cd "$(dirname "$0")"
repeats=3
[[ ${1:-} =~ ^[0-9]+$ ]] && repeats=$1 && shift
: >lines.txt
status=0
for ((i = 0; i < repeats; i++)); do
	for lab in [0-9][0-9]-*; do
		timeout 120 "./$lab" --label "${lab#*-}" "$@" >>lines.txt 2>&1 || {
			echo "$lab failed with $?; its last lines:" >&2
			tail -n 3 lines.txt >&2
			status=1
		}
	done
done
cat commits.txt
awk -v order="$(printf '%s ' [0-9][0-9]-* | sed 's/[0-9][0-9]-//g')" '
	function median(s, a, n, i, j, t) {
		n = split(s, a, " ")
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && a[j - 1] + 0 > a[j] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
		return n ? sprintf("%9.2f", a[int((n + 1) / 2)]) : "        -"
	}
	/ tokens / && / chain / {
		label = $1; op = $2; tokens = $3
		for (i = 4; i <= NF; i++)
			if ($i == "one" || $i == "chain") {
				key = sprintf("%-8s %5d %-5s", op, tokens, $i)
				if (!(key in seen)) { seen[key] = 1; keys[++n_keys] = key }
				v[key, label] = v[key, label] " " $(i + 1)
			}
	}
	END {
		n = split(order, labels, " ")
		printf "%-20s", ""
		for (i = 1; i <= n; i++) printf "%10s", labels[i]
		print ""
		for (k = 1; k <= n_keys; k++) {
			printf "%-20s", keys[k]
			for (i = 1; i <= n; i++) printf " %s", median(v[keys[k], labels[i]])
			print ""
		}
	}' lines.txt
exit $status
EOF
chmod +x "$output/compare.sh"
echo "compare-kernels: $output ($(du -sm "$output" | cut -f1) MiB); run compare.sh there on the GPU host"
