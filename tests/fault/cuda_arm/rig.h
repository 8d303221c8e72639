/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the cuda backend share: the loop, the fake driver, one arming from end to end.
 */
#ifndef MC_TESTS_CUDA_ARM_RIG_H
#define MC_TESTS_CUDA_ARM_RIG_H

#include <stdbool.h>
#include <uv.h>
#include "daemon/backends/backend.h"
#include "daemon/backends/cuda/cuda.h"

struct rig {
	uv_loop_t loop;
	int n_fds_before;
};

struct rig_outcome {
	bool called;
	int status;
	char detail[1024];
	bool has_result;
	struct mc_arm_result result;
};

/* cmocka setup and teardown. Teardown fails when an fd is left open. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* The helper as built. */
const char *rig_helper(void);
/* Starts the backend with the fake driver and waits for its first look. */
void rig_start(struct rig *rig, const char *helper, uint32_t retry_ms);
void rig_stop(struct rig *rig);
/* Turns the loop until *flag or the deadline. */
bool rig_wait(struct rig *rig, const bool *flag, unsigned timeout_ms);
bool rig_wait_state(struct rig *rig, enum mc_gpu_state state, unsigned timeout_ms);

/* A request of world_size ranks, spread over fake GPUs 0 and 1. */
void rig_request(struct mc_arm_request *ret_request, uint32_t world_size, uint64_t arena_bytes);
/* Callback of arm(); data is a struct rig_outcome. */
void rig_done(void *data, int status, const char *detail, struct mc_arm_result *result);
/* Arms and waits for the outcome. */
void rig_arm(
	struct rig *rig, const struct mc_arm_request *request, struct rig_outcome *ret_outcome);
void rig_close(struct rig_outcome *outcome);

/* Pid of a child of this process, or 0. */
int rig_child(void);
int rig_count_fds(void);

#endif
