/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's environment: ours without what is meant for the daemon alone or hides GPUs. */
#ifndef MC_CUDA_HELPER_ENVIRONMENT_H
#define MC_CUDA_HELPER_ENVIRONMENT_H

/* NULL-terminated, for uv_spawn; NULL when out of memory. The strings are those of environ. */
char **mc_helper_environment_new(void);
/* NULL is allowed. */
void mc_helper_environment_free(char **environment);

#endif
