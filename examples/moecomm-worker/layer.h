/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mixture-of-experts layer over all ranks: where moecomm is used. Read this file's .c first.
 */
#ifndef WORKER_LAYER_H
#define WORKER_LAYER_H

#include <stdint.h>
#include <moecomm.h>
#include "latency.h"
#include "model.h"
#include "options.h"
#include "tensor.h"

/* What a rank carries through the layers, and what it needs on the way. */
struct layer_state {
	const struct options *options;
	const struct model *model;
	struct tensor_space *space;

	/* this rank's tokens: [tokens, …] */
	struct tensor hidden;   /* bf16 [hidden] */
	struct tensor residual; /* bf16 [hidden] */
	struct tensor ids;      /* int32 [topk] */
	struct tensor weights;  /* float [topk] */

	/* every rank's tokens: [world_size × tokens, …] */
	struct tensor all_hidden;
	struct tensor all_ids;
	struct tensor all_weights;
	struct tensor partial; /* bf16 [hidden]: what this rank's experts add to each token */

	struct tensor gamma; /* bf16 [layers, hidden] */

	float *sum;     /* [hidden] */
	float *scratch; /* [inner] */
	double *chosen; /* [topk] */
	struct latency dispatch, combine;
};

/* Bytes of a dispatched row, over its three tensors, and of a combined one: what a group is joined
 * with. */
int64_t layer_dispatch_row_bytes(const struct options *options);
int64_t layer_combine_row_bytes(const struct options *options);

/* NULL after telling what failed. */
struct layer_state *layer_state_new(
	const struct options *options, const struct model *model, struct tensor_space *space);
/* NULL is allowed. Returns NULL. */
struct layer_state *layer_state_free(struct layer_state *state);

/*
 * Takes hidden and residual through one layer, in place. rows: [world_size], each rank's tokens in
 * this round. Returns MOECOMM_OK, or the status of what failed with *ret_what its name.
 */
enum moecomm_status layer_run(struct layer_state *state, moecomm_group *group, int layer,
	const int64_t *rows, const char **ret_what);

#endif
