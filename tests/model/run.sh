#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Search one design of the ring model to the end.
#
#   run.sh EXPECT WORK_DIR [-DDEFINE …]
#
# EXPECT: holds    no violation in a complete search, and no statement of the model unreached
#         fails    a violation that a caller would see
#         reaches  the state of -DWITNESS=n is reached
# Exit status: 0 as expected, 1 not, 77 skipped because a tool is missing.
set -eu

if [ $# -lt 2 ]; then
	echo "usage: $0 holds|fails|reaches WORK_DIR [-DDEFINE ...]" >&2
	exit 2
fi
expect=$1
work=$2
shift 2

for tool in spin gcc; do
	if ! command -v $tool >/dev/null 2>&1; then
		echo "skipped: $tool is missing; install the packages spin and gcc to run the model"
		exit 77
	fi
done

model=$(cd "$(dirname "$0")" && pwd)/ring.pml

# Bounds of one search. Running into either is a failure of the test, never a pass.
depth=2000000
memory_mb=1800

wrong() {
	echo "FAILED ($expect): $1"
	exit 1
}

mkdir -p "$work"
cd "$work"
rm -f pan pan.? pan.log spin.log ring.pml.trail
spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; wrong "spin does not accept the model"; }
if grep -i -e error -e warning spin.log; then
	wrong "spin complains about the model"
fi
# A violation is found within milliseconds; there it is compiling that takes the time.
case $expect in
holds) optimise=-O2 ;;
*) optimise=-O0 ;;
esac
# SAFETY: no cycle search is asked for. COLLAPSE compresses without loss, unlike BITSTATE and HC.
gcc $optimise -w -DSAFETY -DCOLLAPSE -DVECTORSZ=512 -DMEMLIM=$memory_mb -o pan pan.c
status=0
./pan -m$depth -w22 >pan.log 2>&1 || status=$?
cat pan.log

grep -q '^Full statespace search' pan.log || wrong "this was no full search"
errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.log)
case $expect in
holds)
	[ "$errors" = 0 ] || wrong "a violation was found"
	[ $status -eq 0 ] || wrong "the search ended with status $status"
	if grep -q -i -e 'max search depth too small' -e 'not completed' -e 'out of memory' \
		-e 'reached -DMEMLIM' -e 'hash table.*full' pan.log; then
		wrong "the search is not complete"
	fi
	# the processes loop for ever, so only their ends may be unreached
	if sed -n '/^unreached in/,/states)$/p' pan.log | grep -v -e '^unreached in' -e '"-end-"' \
		-e 'states)$'; then
		wrong "these statements were never reached, so nothing was shown about them"
	fi
	;;
fails)
	[ "$errors" = 1 ] || wrong "the broken design was not found out"
	grep -q -e '^pan:1: assertion violated' -e '^pan:1: invalid end state' pan.log ||
		wrong "the error is another one than a wrong vector or an endless wait"
	;;
reaches)
	[ "$errors" = 1 ] || wrong "the state is never reached"
	grep -q '^pan:1: assertion violated ((\([0-9]*\)!=\1)||' pan.log ||
		wrong "the error is another one than the state looked for"
	;;
*)
	wrong "unknown expectation"
	;;
esac
echo "as expected: $expect"
