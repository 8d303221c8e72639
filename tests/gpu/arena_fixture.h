/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon does for a group, for tests of kernels and of the client backend in one process:
 * arenas and control blocks as exported fds, filled and armed, and a board. Also a host twin of all
 * of it for the host ops. Anything that fails ends the program with a line that says what.
 */
#ifndef MC_TESTS_GPU_ARENA_FIXTURE_H
#define MC_TESTS_GPU_ARENA_FIXTURE_H

#include "client/backends/backend.h"
#include "kernels/cuda/cuda.h"
#include "kernels/host/host.h"
#include "kernels/layout.h"

struct mc_fixture {
	struct mc_layout layout;
	uint64_t epoch;
	struct mc_vector sentinel;
	size_t arena_bytes;
	size_t control_bytes;
	uint32_t ranks_per_device;
	int device[MC_MAX_WORLD_SIZE];
	int arena_fd[MC_MAX_WORLD_SIZE];
	int control_fd[MC_MAX_WORLD_SIZE];
	int board_fd;
	struct mc_board *board;            /* the fixture's own mapping */
	uint8_t *arena[MC_MAX_WORLD_SIZE]; /* device addresses, reachable from all devices */
	uint8_t *control[MC_MAX_WORLD_SIZE];
	struct mc_board *device_board;
	struct mc_host_rank host[MC_MAX_WORLD_SIZE]; /* the twin */
};

/* n_devices: rank r lives on device r * n_devices / world_size. with_twin: make the host twin. */
struct mc_fixture *mc_fixture_make(const struct mc_layout_spec *spec, int n_devices, uint64_t epoch,
	const struct mc_wait_line *wait, int with_twin);
struct mc_fixture *mc_fixture_free(struct mc_fixture *fixture);
/* As the library would hand it to a backend. */
void mc_fixture_epoch(
	const struct mc_fixture *fixture, uint32_t rank, struct mc_backend_epoch *ret_epoch);
/* As a backend would hand it to the kernels. */
void mc_fixture_view(const struct mc_fixture *fixture, uint32_t rank,
	const struct mc_cuda_device *device, struct mc_cuda_rank *ret_view);

/* Ends the program when a runtime or driver call failed. */
void mc_check(int error, const char *call, const char *file, int line);
#define CHECK(call) mc_check((int)(call), #call, __FILE__, __LINE__)

#endif
