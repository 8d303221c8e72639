# SPDX-License-Identifier: Apache-2.0
# A host that should have GPUs and has none is never taken for a healthy one.

is_saying_why() {
	[[ "$(property StatusText)" == "not ready: no NVIDIA driver"* ]]
}

has_failed() {
	[ "$(property ActiveState)" = failed ]
}

case_none_where_cuda_is_asked_for() {
	local status=0
	drop_in <<<$'[Service]\nTimeoutStartSec=5\nRestart=no'
	configure <<<$'[daemon]\nbackend = cuda'
	date +%s.%N >"$SCRATCH/since"
	systemctl start --no-block moecommd
	await 4 "the reason in the status" is_saying_why
	equal "state" "$(property ActiveState)" activating
	moecommctl health >/dev/null || status=$?
	equal "status of moecommctl health" "$status" 4
	await 60 "end of the attempt" has_failed
	equal "result" "$(property Result)" timeout
	logged "cuda backend is not ready: no NVIDIA driver"
}
