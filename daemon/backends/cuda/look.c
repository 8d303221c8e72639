/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for GPUs: by the helper, at start-up and, while there is none, now and then again. */
#include "daemon/backends/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/backends/cuda/helper.h"
#include "daemon/log.h"

#define DEFAULT_RETRY_MS 5000u
#define MAX_RETRY_MS     60000u
/* cuInit takes half a second on an idle host and several with many busy GPUs. */
#define DEFAULT_PROBE_TIMEOUT_MS 20000u

static struct {
	uv_loop_t *loop; /* NULL: not started */
	uv_timer_t timer;
	bool timer_open;
	struct mc_helper *helper; /* a look in progress */
	char helper_path[4096];
	uint32_t retry_ms;
	uint32_t next_retry_ms;
	uint32_t probe_timeout_ms;
	void (*changed)(void *data);
	void *data;
	bool known;
	enum mc_gpu_state state;
	char reason[MC_ARM_DETAIL_BYTES];
	uint32_t driver_version;
	uint32_t n_gpus;
	struct mc_arm_gpu gpu[MC_ARM_MAX_GPUS];
} look = {.state = MC_GPU_STATE_UNKNOWN, .reason = "the GPUs have not been looked for yet"};

static void on_timer(uv_timer_t *timer);

static void conclude(enum mc_gpu_state state, const char *reason, uint32_t driver_version,
	const struct mc_arm_gpu *gpus, uint32_t n_gpus)
{
	bool changed = !look.known || state != look.state || strcmp(reason, look.reason) != 0 ||
		       n_gpus != look.n_gpus ||
		       (n_gpus && memcmp(gpus, look.gpu, n_gpus * sizeof(*gpus)) != 0);

	look.known = true;
	look.state = state;
	look.driver_version = driver_version;
	look.n_gpus = n_gpus;
	if (n_gpus)
		memcpy(look.gpu, gpus, n_gpus * sizeof(*gpus));
	snprintf(look.reason, sizeof(look.reason), "%s", reason);
	if (changed && state == MC_GPU_STATE_OK)
		mc_log(LOG_INFO, "cuda backend is ready: %u GPU(s), CUDA driver %u.%u", n_gpus,
			driver_version / 1000, driver_version % 1000 / 10);
	else if (changed)
		mc_log(LOG_NOTICE, "cuda backend is not ready: %s", reason);
	if (state == MC_GPU_STATE_OK) {
		look.next_retry_ms = look.retry_ms;
	} else if (look.timer_open) {
		/* device nodes can appear later; each look costs a process, so ever more seldom */
		uv_timer_start(&look.timer, on_timer, look.next_retry_ms, 0);
		look.next_retry_ms =
			look.next_retry_ms * 2 < MAX_RETRY_MS
				? look.next_retry_ms * 2
				: (look.retry_ms > MAX_RETRY_MS ? look.retry_ms : MAX_RETRY_MS);
	}
	if (changed && look.changed)
		look.changed(look.data);
}

static void on_answer(void *data, int status, const char *detail, const void *reply, size_t n_reply,
	int *fds, unsigned n_fds)
{
	struct mc_arm_wire_probe probe;

	(void)data;
	(void)fds;
	(void)n_fds;
	look.helper = NULL;
	if (status) {
		conclude(MC_GPU_STATE_ERROR, detail, 0, NULL, 0);
		return;
	}
	if (n_reply != sizeof(probe)) {
		conclude(MC_GPU_STATE_NO_HELPER,
			"the arming helper is of another release than the daemon", 0, NULL, 0);
		return;
	}
	memcpy(&probe, reply, sizeof(probe));
	if (probe.magic != MC_ARM_MAGIC || probe.version != MC_ARM_VERSION ||
		probe.size != sizeof(probe) || probe.n_gpus > MC_ARM_MAX_GPUS ||
		probe.state > MC_GPU_STATE_ERROR) {
		conclude(MC_GPU_STATE_NO_HELPER,
			"the arming helper is of another release than the daemon", 0, NULL, 0);
		return;
	}
	probe.detail[sizeof(probe.detail) - 1] = 0;
	for (uint32_t i = 0; i < probe.n_gpus; i++) {
		probe.gpu[i].uuid[sizeof(probe.gpu[i].uuid) - 1] = 0;
		probe.gpu[i].name[sizeof(probe.gpu[i].name) - 1] = 0;
	}
	if (probe.state == MC_GPU_STATE_OK)
		conclude(MC_GPU_STATE_OK, "", probe.driver_version, probe.gpu, probe.n_gpus);
	else
		conclude(probe.state, probe.detail, probe.driver_version, NULL, 0);
}

static void start_look(void)
{
	struct mc_arm_wire_request request = {.magic = MC_ARM_MAGIC,
		.version = MC_ARM_VERSION,
		.size = sizeof(request),
		.kind = MC_ARM_KIND_PROBE};
	char path[4096], detail[MC_ARM_DETAIL_BYTES];

	if (look.helper || !look.timer_open)
		return;
	uv_timer_stop(&look.timer);
	if (mc_helper_find(look.helper_path, path, sizeof(path), detail, sizeof(detail)) ||
		mc_helper_start(look.loop, path, &request, look.probe_timeout_ms, on_answer, NULL,
			&look.helper, detail, sizeof(detail)))
		conclude(MC_GPU_STATE_NO_HELPER, detail, 0, NULL, 0);
}

static void on_timer(uv_timer_t *timer)
{
	(void)timer;
	start_look();
}

int mc_cuda_start(uv_loop_t *loop, const struct mc_cuda_options *options)
{
	int r;

	if (look.timer_open)
		return -EALREADY;
	r = uv_timer_init(loop, &look.timer);
	if (r)
		return r;
	look.loop = loop;
	look.timer_open = true;
	snprintf(look.helper_path, sizeof(look.helper_path), "%s",
		options->helper_path ? options->helper_path : "");
	look.retry_ms = options->retry_ms ? options->retry_ms : DEFAULT_RETRY_MS;
	look.next_retry_ms = look.retry_ms;
	look.probe_timeout_ms =
		options->probe_timeout_ms ? options->probe_timeout_ms : DEFAULT_PROBE_TIMEOUT_MS;
	look.changed = options->changed;
	look.data = options->data;
	look.known = false;
	look.state = MC_GPU_STATE_UNKNOWN;
	look.n_gpus = 0;
	snprintf(look.reason, sizeof(look.reason), "%s", "the GPUs have not been looked for yet");
	/* from the loop, so that `changed` never runs inside the caller's start-up */
	return uv_timer_start(&look.timer, on_timer, 0, 0);
}

void mc_cuda_stop(void)
{
	if (!look.timer_open)
		return;
	look.timer_open = false;
	look.changed = NULL;
	mc_helper_cancel(look.helper);
	look.helper = NULL;
	uv_close((uv_handle_t *)&look.timer, NULL);
}

bool mc_cuda_known(void)
{
	return look.known;
}

enum mc_gpu_state mc_cuda_state(void)
{
	return look.state;
}

const char *mc_cuda_reason(void)
{
	return look.reason;
}

uint32_t mc_cuda_gpus(const struct mc_arm_gpu **ret_gpus)
{
	*ret_gpus = look.gpu;
	return look.n_gpus;
}

uint32_t mc_cuda_driver_version(void)
{
	return look.driver_version;
}

void mc_cuda_look_again(void)
{
	if (look.timer_open && !look.helper)
		start_look();
}

const char *mc_cuda_helper_setting(void)
{
	return look.helper_path;
}
