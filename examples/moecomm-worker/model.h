/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: weights drawn from a seed, so that every rank has the same ones without reading a
 * file. They are random, so what the model would predict means nothing; what it moves and adds is
 * real.
 *
 *   hidden = residual = embedding[byte] + ½ context[byte before]
 *   for each layer:
 *       ids, weights = top-k of router · hidden
 *       residual    += Σ weight · expert_id(hidden)      expert(x) = down · silu(up · x)
 *       hidden       = rmsnorm(residual) · gamma
 *
 * hidden, residual and gamma are bf16; the weights are float.
 */
#ifndef WORKER_MODEL_H
#define WORKER_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include "options.h"

#define MODEL_EPS 1e-5f

struct expert {
	float *up;   /* [hidden, inner] */
	float *down; /* [inner, hidden] */
};

struct layer_weights {
	float *router;          /* [experts, hidden] */
	uint16_t *gamma;        /* [hidden] bf16 */
	struct expert *experts; /* [experts]; NULLs where this rank has no use for one */
};

struct model {
	int hidden, inner, experts, topk, n_layers;
	float *embedding; /* [256, hidden] */
	float *context;   /* [256, hidden] */
	struct layer_weights *layers;
};

/* Which rank computes an expert. */
static inline int model_owner(int expert, int world_size)
{
	return expert % world_size;
}

/* With all experts when options->check (the reference needs them), else this rank's own. NULL: out
 * of memory. */
struct model *model_new(const struct options *options);
/* NULL is allowed. Returns NULL. */
struct model *model_free(struct model *model);

/* ret_row [hidden] bf16 */
void model_embed(const struct model *model, uint8_t before, uint8_t byte, uint16_t *ret_row);

/*
 * Top-k experts of a token, best first, and their weights (softmax over the k). In double, in a
 * fixed order, ties to the lower id: the choice is a pure function of the row's bits. ret_weights
 * sums to 1.
 */
void model_route(const struct model *model, int layer, const uint16_t *row, int32_t *ret_ids,
	double *ret_weights);

/* sum [hidden] += weight · expert(row). scratch: [inner] floats. */
void model_expert_add(const struct model *model, int layer, int expert, const uint16_t *row,
	float weight, float *scratch, float *sum);

#endif
