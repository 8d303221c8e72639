/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one reply: allocated piece by piece, freed at once. */
#ifndef MC_DAEMON_SCRATCH_H
#define MC_DAEMON_SCRATCH_H

#include <stddef.h>

struct mc_scratch_block;
struct mc_scratch {
	struct mc_scratch_block *blocks;
};

/* Zeroed memory, or NULL when out of memory. */
void *mc_scratch_alloc(struct mc_scratch *scratch, size_t n_bytes);
char *mc_scratch_text(struct mc_scratch *scratch, const char *text);
void mc_scratch_clear(struct mc_scratch *scratch);

#endif
