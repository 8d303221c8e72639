/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/scratch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384u
/* What the scratch holds may embed shared structures (kernels/lamport.h) aligned to 128 bytes. */
#define ALIGNMENT 128u

struct mc_scratch_block {
	struct mc_scratch_block *next;
	size_t n_used, n_bytes;
	_Alignas(ALIGNMENT) uint8_t data[];
};

void *mc_scratch_alloc(struct mc_scratch *scratch, size_t n_bytes)
{
	struct mc_scratch_block *block = scratch->blocks;
	size_t n = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	void *at;

	if (!block || n > block->n_bytes - block->n_used) {
		size_t n_block = n > BLOCK_BYTES ? n : BLOCK_BYTES;

		n_block = (n_block + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		block = aligned_alloc(ALIGNMENT, sizeof(*block) + n_block);
		if (!block)
			return NULL;
		memset(block, 0, sizeof(*block) + n_block);
		block->n_bytes = n_block;
		block->next = scratch->blocks;
		scratch->blocks = block;
	}
	at = block->data + block->n_used;
	block->n_used += n;
	return at;
}

char *mc_scratch_text(struct mc_scratch *scratch, const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = mc_scratch_alloc(scratch, n);

	return copy ? memcpy(copy, text, n) : NULL;
}

void mc_scratch_clear(struct mc_scratch *scratch)
{
	struct mc_scratch_block *next;

	for (; scratch->blocks; scratch->blocks = next) {
		next = scratch->blocks->next;
		free(scratch->blocks);
	}
}
