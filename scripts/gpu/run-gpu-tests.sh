#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs from an unpacked bundle on a GPU host: a daemon of its own, the GPU tests, verified workers at
# 2, 4 and 8 ranks (also on one GPU, time-sliced and under MPS), the benches. A step that fails is
# told and the rest goes on. Leaves no process behind.
#
#   ./run-gpu-tests.sh [RESULTS-DIRECTORY]        (default ./results)
#
# Environment: MOECOMM_BUDGET_S  seconds for everything (470)
#              MOECOMM_STEPS     only steps whose name matches this pattern, e.g. 'bench*'
#              MOECOMM_REPEATS   of each event of bench-failures (5)
#              MOECOMM_NCCL      path of libnccl.so.2, or off
# shellcheck disable=SC2317 # what the trap calls
set -u

root=$(cd "$(dirname "$0")" && pwd)
results=${1:-$PWD/results}
budget=${MOECOMM_BUDGET_S:-470}
only=${MOECOMM_STEPS:-*}
# bundle: everything beside this script; build tree: not
export PATH=$root/bin:$PATH
arm=$root/libexec/moecomm/moecomm-arm
# NVLink multicast can take a host's GPUs out of service
export NCCL_NVLS_ENABLE=0

mkdir -p "$results"
results=$(cd "$results" && pwd)
dir=$(mktemp -d /tmp/moecomm-gpu.XXXXXX)
logs=$dir/logs
mkdir -p "$logs"
start=$SECONDS
daemon=
mps=
n_failed=0
: >"$results/summary.txt"
: >"$results/tables.txt"

left() {
	echo $((budget - (SECONDS - start)))
}

say() {
	printf '%s\n' "$*" | tee -a "$results/summary.txt"
}

# note NAME RESULT SECONDS [WHY]
note() {
	say "$(printf '%-34s %-8s %5ss  %s' "$1" "$2" "$3" "${4:-}")"
}

# step NAME SECONDS COMMAND…: under a timeout; its output is in logs/NAME.log. 77: skipped.
step() {
	local name=$1 seconds=$2 rc began=$SECONDS
	shift 2
	# shellcheck disable=SC2254
	case $name in $only) ;; *) return 0 ;; esac
	if [ "$(left)" -lt 5 ]; then
		note "$name" SKIPPED 0 "the budget of $budget s is used up"
		n_failed=$((n_failed + 1))
		return 1
	fi
	[ "$seconds" -le "$(left)" ] || seconds=$(left)
	timeout --kill-after=5 "$seconds" "$@" >"$logs/$name.log" 2>&1 </dev/null
	rc=$?
	case $rc in
	0) note "$name" ok $((SECONDS - began)) ;;
	77) note "$name" skipped $((SECONDS - began)) "$(tail -n 1 "$logs/$name.log" | cut -c 1-100)" ;;
	124 | 137) note "$name" TIMEOUT $((SECONDS - began)) "after $seconds s" ;;
	*) note "$name" FAILED $((SECONDS - began)) "status $rc: $(grep -v '^$' "$logs/$name.log" | tail -n 1 | cut -c 1-140)" ;;
	esac
	if [ $rc != 0 ] && [ $rc != 77 ]; then
		n_failed=$((n_failed + 1))
		return 1
	fi
}

start_mps() {
	command -v nvidia-cuda-mps-control >/dev/null || return 1
	export CUDA_MPS_PIPE_DIRECTORY=$dir/mps-pipe CUDA_MPS_LOG_DIRECTORY=$dir/mps-log
	mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
	timeout 20 nvidia-cuda-mps-control -d >"$logs/mps.log" 2>&1 </dev/null || {
		unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
		return 1
	}
	mps=1
}

stop_mps() {
	[ -n "$mps" ] || return 0
	echo quit | timeout 20 nvidia-cuda-mps-control >>"$logs/mps.log" 2>&1
	cp "$dir"/mps-log/*.log "$logs/" 2>/dev/null
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	mps=
}

stop_daemon() {
	[ -n "$daemon" ] || return 0
	kill "$daemon" 2>/dev/null
	for _ in $(seq 50); do
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	kill -9 "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	daemon=
}

finish() {
	trap - EXIT INT TERM
	stop_mps
	stop_daemon
	memory after >>"$logs/memory.log" 2>&1
	tar -C "$dir" -czf "$results/logs.tar.gz" logs
	rm -rf "$dir"
	say "$n_failed steps failed; $((SECONDS - start)) s; results in $results"
	[ "$n_failed" = 0 ]
	exit
}
trap finish EXIT
trap 'exit 130' INT TERM

memory() {
	echo "$1: $(timeout 20 nvidia-smi --query-gpu=index,memory.used --format=csv,noheader 2>&1 | tr '\n' ';')"
}

# One library for the bench: named, known to the loader, or PyTorch's own.
find_nccl() {
	local place
	[ -z "${MOECOMM_NCCL:-}" ] || { echo "$MOECOMM_NCCL" && return; }
	for place in $(ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2/ { print $NF }') \
		/usr/local/cuda/lib64/libnccl.so.2 \
		"$(timeout 20 python3 -c 'import importlib.util as u; s=u.find_spec("nvidia.nccl"); print(list(s.submodule_search_locations)[0] + "/lib/libnccl.so.2" if s else "")' 2>/dev/null)"; do
		[ ! -e "$place" ] || { echo "$place" && return; }
	done
	echo auto
}

# workers NAME W ROUNDS SECONDS [OPTION…]: all ranks of one checked run; the last line says 'verified'
cat >"$dir/workers.sh" <<'END'
#!/usr/bin/env bash
name=$1 world=$2 rounds=$3
shift 3
pids=()
for rank in $(seq 0 $((world - 1))); do
	moecomm-worker --group "$name" --rank "$rank" --world-size "$world" --rounds "$rounds" \
		--backend cuda --shared-gpu --check --ragged --wait 5000 --join-timeout 40000 "$@" \
		>"$OUT.$rank" 2>&1 &
	pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null' TERM
rc=0
for pid in "${pids[@]}"; do
	wait "$pid" || rc=$?
done
for rank in $(seq 0 $((world - 1))); do
	sed "s/^/rank $rank: /" "$OUT.$rank"
	if [ $rc = 0 ] && ! tail -n 1 "$OUT.$rank" | grep -q verified; then
		echo "rank $rank did not say 'verified'"
		rc=1
	fi
done
rm -f "$OUT".*
exit $rc
END
chmod +x "$dir/workers.sh"

workers() {
	local name=$1
	OUT=$dir/$name step "$name" "$4" "$dir/workers.sh" "$name" "$2" "$3" "${@:5}"
}

# bench KIND NAME SECONDS OPTION…: JSON and table
bench() {
	local kind=$1 name=$2 seconds=$3
	shift 3
	step "$name" "$seconds" moecomm-bench "$kind" --json "$results/$name.json" "$@" \
		--timeout 25
	if [ -s "$logs/$name.log" ]; then
		{ cat "$logs/$name.log" && echo; } >>"$results/tables.txt"
	fi
}

# gpu_tests PATTERN: those of the list that match and have not run yet
tests_run=:
gpu_tests() {
	local name seconds program arguments
	while IFS=$'\t' read -r name seconds program arguments; do
		# shellcheck disable=SC2254
		case $name in '') continue ;; $1) ;; *) continue ;; esac
		case $tests_run in *":$name:"*) continue ;; esac
		tests_run=$tests_run$name:
		# shellcheck disable=SC2086
		step "${name//\//-}" "$seconds" env ROOT="$root" MOECOMM_TEST_BIN="$root/bin" \
			MOECOMM_TEST_SOURCE="$root" "$root/tests/$program" ${arguments//\$ROOT/$root}
	done <"$root/tests/gpu-tests.list"
}

# as JSON, and as lines for the reader
cat >"$dir/failures.sh" <<'END'
#!/bin/bash
moecomm-bench failures --backend cuda --repeats "${MOECOMM_REPEATS:-5}" --ops 200 \
	--json >"$1" || exit
python3 - "$1" <<'PY' 2>/dev/null || cat "$1"
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
for row in next(v for v in report.values() if isinstance(v, list)):
    print("  ".join(str(v) for v in row.values()))
PY
END
chmod +x "$dir/failures.sh"

# ---- the machine ----
cat "$root/BUNDLE" >"$logs/bundle.log" 2>/dev/null
{ date -u && uname -a && timeout 20 nvidia-smi && timeout 20 nvidia-smi topo -m; } >"$logs/machine.log" 2>&1
memory before >"$logs/memory.log" 2>&1
# a container's driver is not always known to the loader
if "$arm" --probe 2>/dev/null | grep -q '^state: no driver'; then
	for place in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib64-nvidia /run/opengl-driver/lib; do
		[ ! -e "$place/libcuda.so.1" ] ||
			export LD_LIBRARY_PATH=$place${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	done
fi
step probe 60 "$arm" --probe
n_gpus=$(timeout 60 "$arm" --probe 2>/dev/null | grep -c '^gpu:')
say "$(timeout 60 "$arm" --probe 2>/dev/null | grep -E '^(state|detail|driver|gpu):' | tr '\n' ' ')"

# ---- a daemon for everything below ----
export MOECOMM_SOCKET=$dir/moecommd.sock
moecommd --backend cuda --socket "$MOECOMM_SOCKET" >"$logs/moecommd.log" 2>&1 </dev/null &
daemon=$!
cat >"$dir/ready.sh" <<'END'
#!/bin/sh
for _ in $(seq 200); do
	moecommctl --json status 2>/dev/null | grep -q '"ready": true' && exec moecommctl status
	sleep 0.1
done
moecommctl status
moecommctl status 2>&1 | grep -i -m 1 -E 'not ready|no daemon' # last: this is what the summary shows
exit 1
END
chmod +x "$dir/ready.sh"
step daemon-ready 40 "$dir/ready.sh"
memory daemon-ready >>"$logs/memory.log" 2>&1
cat >"$dir/host.sh" <<'END'
#!/bin/sh
# the host backend, from this bundle alone
moecommd --backend host --socket "$DIR/host.sock" &
daemon=$!
trap 'kill $daemon' EXIT
workers=
for rank in 0 1; do
	moecomm-worker --socket "$DIR/host.sock" --wait 5000 --group host --rank $rank --world-size 2 \
		--rounds 5 --check &
	workers="$workers $!"
done
for worker in $workers; do
	wait "$worker" || exit
done
END
chmod +x "$dir/host.sh"
DIR=$dir step host-worker 60 "$dir/host.sh"

if [ "$n_gpus" -gt 0 ]; then
	nccl=$(find_nccl)
	several=$((n_gpus > 1))

	# ---- verified workers, a process a rank; more ranks than GPUs are time-sliced ----
	for world in 2 4 8; do
		if [ "$world" -le "$n_gpus" ]; then rounds=50; else rounds=4; fi
		workers "worker-$world" "$world" "$rounds" 70 --layers 2
	done

	# ---- while a group is armed, the daemon itself holds arenas and nothing else of a GPU ----
	cat >"$dir/footprint.sh" <<'END'
#!/bin/bash
# no context, no driver library, no helper left; what the GPU's memory is used for, for the reader
for rank in 0 1; do
	moecomm-worker --group footprint --rank $rank --world-size 2 --rounds 0 --pause 50 --backend cuda \
		--shared-gpu --wait 5000 >/dev/null 2>&1 &
	workers+=($!)
done
trap 'kill "${workers[@]}" 2>/dev/null; wait' EXIT
for _ in $(seq 200); do
	moecommctl --json status | grep -q '"state": "ready"' && ready=1 && break
	sleep 0.1
done
moecommctl status
[ -n "$ready" ] || { echo "the group does not become ready" && exit 1; }
nvidia-smi --query-gpu=index,memory.used --format=csv
nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv | tee "$DIR/apps"
grep -E '^(VmRSS|Threads|FDSize)' "/proc/$DAEMON/status"
if grep -q "^$DAEMON," "$DIR/apps"; then
	echo "the daemon has a CUDA context" && exit 1
fi
if grep -q libcuda "/proc/$DAEMON/maps"; then
	echo "the daemon has mapped the driver" && exit 1
fi
if grep -q . "/proc/$DAEMON/task/$DAEMON/children" 2>/dev/null; then
	echo "a helper is left" && exit 1
fi
END
	chmod +x "$dir/footprint.sh"
	DIR=$dir DAEMON=$daemon step footprint 60 "$dir/footprint.sh"

	# ---- the figures ----
	if [ $several = 1 ]; then
		for kind in dispatch combine fused chain; do
			bench $kind "bench-$kind" 75 --world-size 2 --nccl "$nccl" --repeats 5
		done
		# the same after 100,000 calls of mixed sizes: figures must not depend on history
		bench dispatch bench-history 40 --world-size 2 --nccl off --sizes 1,64 --history 100000
		# few files leave some machines: this one's table is in tables.txt
		mv "$results/bench-history.json" "$logs/" 2>/dev/null
	fi

	# ---- deaths, deadlines, aborts, rejoins, restarts of a daemon of their own ----
	gpu_tests 'gpu/life*'
	step bench-failures 80 "$dir/failures.sh" "$results/bench-failures.json"
	{ cat "$logs/bench-failures.log" && echo; } >>"$results/tables.txt" 2>/dev/null

	# ---- tests of kernels and client, one process each ----
	gpu_tests '*'

	# ---- several ranks on one GPU that really run at once ----
	if start_mps; then
		for world in 2 4 8; do
			CUDA_VISIBLE_DEVICES=0 workers "worker-$world-mps" "$world" 30 60 --layers 2
		done
		if [ $several = 0 ]; then
			for kind in dispatch combine fused chain; do
				bench $kind "bench-$kind" 45 --world-size 2 --shared-gpu --nccl off \
					--sizes 1,4,16,64,256
			done
			bench dispatch bench-history 40 --world-size 2 --shared-gpu --nccl off \
				--sizes 1,64 --history 100000
			mv "$results/bench-history.json" "$logs/" 2>/dev/null
		fi
		stop_mps
	else
		note mps skipped 0 "no MPS here: $(head -n 1 "$logs/mps.log" 2>/dev/null || echo nvidia-cuda-mps-control is missing)"
		if [ $several = 0 ]; then
			bench dispatch bench-dispatch 60 --world-size 2 --shared-gpu --nccl off --sizes 1,16
			bench combine bench-combine 60 --world-size 2 --shared-gpu --nccl off --sizes 1,16
		fi
	fi

	# ---- memory checkers, short ----
	sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
	short=$(find "$root/tests" -name '*ops*' -perm -u+x -type f | sort | head -n 1)
	if [ -n "$sanitizer" ] && [ -n "$short" ]; then
		for tool in memcheck racecheck synccheck; do
			step "sanitizer-$tool" 90 env MOECOMM_TEST_SHORT=1 "$sanitizer" --tool $tool \
				--error-exitcode 9 "$short"
		done
	fi
fi
step status-at-end 20 moecommctl status
cp "$results/tables.txt" "$logs/" 2>/dev/null
exit 0
