/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/backend.h"

#include <unistd.h>
#include "daemon/backends/choose.h"
#include "daemon/backends/cuda/cuda.h"
#include "daemon/daemon.h"

const struct mc_daemon_backend *mc_backend_choose(uint32_t choice)
{
	const char *reason;

	if (choice == MC_BACKEND_CHOICE_CUDA)
		return &mc_daemon_backend_cuda;
	if (choice == MC_BACKEND_CHOICE_AUTO && mc_daemon_backend_cuda.ready(&reason))
		return &mc_daemon_backend_cuda;
	return &mc_daemon_backend_host;
}

const struct mc_daemon_backend *mc_backend_find(
	const struct mc_daemon *daemon, uint32_t number, const char **ret_reason)
{
	if (number == mc_daemon_backend_host.number)
		return &mc_daemon_backend_host;
	if (number == daemon->backend->number)
		return daemon->backend;
	/* early joiners of a cuda group wait for each other while the GPUs are looked for */
	if (number == mc_daemon_backend_cuda.number && daemon->cuda_started && !mc_cuda_known())
		return &mc_daemon_backend_cuda;
	*ret_reason =
		"this daemon serves the host backend only, by its configuration or because no GPU "
		"answered when it started: start it with --backend cuda, or join with backend host";
	return NULL;
}

static void close_fd(int *io_fd)
{
	if (*io_fd >= 0)
		close(*io_fd);
	*io_fd = -1;
}

void mc_arm_result_clear(struct mc_arm_result *result)
{
	close_fd(&result->board_fd);
	for (unsigned r = 0; r < MC_MAX_WORLD_SIZE; r++) {
		close_fd(&result->control_fd[r]);
		close_fd(&result->arena_fd[r]);
	}
}
