/* SPDX-License-Identifier: Apache-2.0 */
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bf16.h"

int64_t layer_dispatch_row_bytes(const struct options *options)
{
	return options->hidden * (int64_t)sizeof(uint16_t) +
	       options->topk * (int64_t)(sizeof(int32_t) + sizeof(float));
}

int64_t layer_combine_row_bytes(const struct options *options)
{
	return options->hidden * (int64_t)sizeof(uint16_t);
}

/* 1. Which experts this rank's tokens go to, and with what weights. */
static int route(struct layer_state *state, int layer, int64_t rows)
{
	size_t hidden = (size_t)state->model->hidden, topk = (size_t)state->model->topk;
	const uint16_t *row = state->hidden.host;
	int32_t *ids = state->ids.host;
	float *weights = state->weights.host;

	for (size_t t = 0; t < (size_t)rows; t++) {
		model_route(state->model, layer, row + t * hidden, ids + t * topk, state->chosen);
		for (size_t k = 0; k < topk; k++)
			weights[t * topk + k] = (float)state->chosen[k];
	}
	if (state->space->upload(state->space, &state->ids, (size_t)rows * topk * sizeof(*ids)) <
			0 ||
		state->space->upload(
			state->space, &state->weights, (size_t)rows * topk * sizeof(*weights)) < 0)
		return -1;
	return 0;
}

/* 2. Every rank gets every rank's tokens: three tensors in one op, bit for bit. */
static enum moecomm_status dispatch(
	struct layer_state *state, moecomm_group *group, const int64_t *rows)
{
	const struct options *o = state->options;
	struct moecomm_tensor tensors[] = {
		{state->hidden.device, state->all_hidden.device,
			o->hidden * (int64_t)sizeof(uint16_t)},
		{state->ids.device, state->all_ids.device, o->topk * (int64_t)sizeof(int32_t)},
		{state->weights.device, state->all_weights.device,
			o->topk * (int64_t)sizeof(float)},
	};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	args.tensors = tensors;
	args.n_tensors = 3;
	if (o->ragged)
		args.rows_per_rank =
			rows; /* rank r's rows stand behind those of the ranks below r */
	else
		args.rows = o->tokens; /* the same on every rank */
	return moecomm_dispatch(group, &args, state->space->stream);
}

/* 3. What this rank's experts add to each of all the tokens; nothing for most. */
static int run_experts(struct layer_state *state, int layer, int64_t all_rows)
{
	size_t hidden = (size_t)state->model->hidden, topk = (size_t)state->model->topk;
	const uint16_t *row = state->all_hidden.host;
	const int32_t *ids = state->all_ids.host;
	const float *weights = state->all_weights.host;
	uint16_t *partial = state->partial.host;

	for (size_t t = 0; t < (size_t)all_rows; t++) {
		memset(state->sum, 0, hidden * sizeof(*state->sum));
		for (size_t k = 0; k < topk; k++) {
			int expert = ids[t * topk + k];

			/* what arrives from other processes is checked before it indexes memory */
			if (expert < 0 || expert >= state->model->experts) {
				fprintf(stderr,
					"moecomm-worker: token %zu was sent to expert %d of %d\n",
					t, expert, state->model->experts);
				return -1;
			}
			if (model_owner(expert, state->options->world_size) == state->options->rank)
				model_expert_add(state->model, layer, expert, row + t * hidden,
					weights[t * topk + k], state->scratch, state->sum);
		}
		for (size_t d = 0; d < hidden; d++)
			partial[t * hidden + d] = bf16_from_float(state->sum[d]);
	}
	return state->space->upload(
		state->space, &state->partial, (size_t)all_rows * hidden * sizeof(*partial));
}

/* 4. The ranks' parts are added, rank by rank; each rank gets its own tokens back, residual added,
 * normed. */
static enum moecomm_status combine(
	struct layer_state *state, moecomm_group *group, int layer, const int64_t *rows)
{
	const struct options *o = state->options;
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;

	args.dtype = MOECOMM_BF16;
	args.hidden = o->hidden;
	args.input = state->partial.device;
	args.output = state->hidden.device;
	args.residual = state->residual.device;
	args.residual_output = state->residual.device; /* in place */
	args.gamma = (uint16_t *)state->gamma.device + (size_t)layer * (size_t)o->hidden;
	args.eps = MODEL_EPS;
	if (o->ragged)
		args.rows_per_rank = rows;
	else
		args.rows = o->tokens;
	return moecomm_combine_rmsnorm(group, &args, state->space->stream);
}

/*
 * Waits for an op and gives its outcome. On the host backend the call itself returned it; on cuda
 * an op is only enqueued, and how it ended shows in the group's state once the stream is done.
 */
static enum moecomm_status finish(struct layer_state *state, moecomm_group *group)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	enum moecomm_status status;

	if (!state->space->stream)
		return MOECOMM_OK;
	if (state->space->wait(state->space) < 0)
		return MOECOMM_DEVICE;
	status = moecomm_group_query(group, &info);
	return status ? status : info.status;
}

/* Under --check an op's output is filled with NaNs and -1s before, so that what it fails to write
 * shows. */
static int poison(struct layer_state *state, struct tensor *tensor)
{
	if (!state->options->check)
		return 0;
	memset(tensor->host, 0xff, tensor->n_bytes);
	return state->space->upload(state->space, tensor, tensor->n_bytes);
}

enum moecomm_status layer_run(struct layer_state *state, moecomm_group *group, int layer,
	const int64_t *rows, const char **ret_what)
{
	size_t hidden_bytes = (size_t)state->model->hidden * sizeof(uint16_t);
	size_t topk = (size_t)state->model->topk;
	struct tensor_space *space = state->space;
	int64_t mine = rows[state->options->rank], all = 0, start;
	enum moecomm_status status;

	for (int r = 0; r < state->options->world_size; r++)
		all += rows[r];

	*ret_what = "copying to the device";
	if (route(state, layer, mine) < 0 || poison(state, &state->all_hidden) < 0 ||
		poison(state, &state->all_ids) < 0 || poison(state, &state->all_weights) < 0 ||
		space->wait(space) < 0)
		return MOECOMM_DEVICE;

	*ret_what = "dispatch";
	start = latency_now_ns();
	status = dispatch(state, group, rows);
	if (!status)
		status = finish(state, group);
	if (status)
		return status;
	latency_add(&state->dispatch, latency_now_ns() - start);

	*ret_what = "running the experts";
	if (space->download(space, &state->all_hidden, (size_t)all * hidden_bytes) < 0 ||
		space->download(space, &state->all_ids, (size_t)all * topk * sizeof(int32_t)) < 0 ||
		space->download(space, &state->all_weights, (size_t)all * topk * sizeof(float)) <
			0 ||
		run_experts(state, layer, all) < 0 || poison(state, &state->hidden) < 0 ||
		space->wait(space) < 0)
		return MOECOMM_DEVICE;

	*ret_what = "combine_rmsnorm";
	start = latency_now_ns();
	status = combine(state, group, layer, rows);
	if (!status)
		status = finish(state, group);
	if (status)
		return status;
	latency_add(&state->combine, latency_now_ns() - start);

	*ret_what = "copying from the device";
	if (space->download(space, &state->hidden, (size_t)mine * hidden_bytes) < 0 ||
		space->download(space, &state->residual, (size_t)mine * hidden_bytes) < 0)
		return MOECOMM_DEVICE;
	return MOECOMM_OK;
}

struct layer_state *layer_state_new(
	const struct options *options, const struct model *model, struct tensor_space *space)
{
	struct layer_state *state = calloc(1, sizeof(*state));
	size_t mine = (size_t)options->tokens, all = mine * (size_t)options->world_size;
	size_t hidden = (size_t)options->hidden, topk = (size_t)options->topk;

	if (!state)
		return NULL;
	state->options = options;
	state->model = model;
	state->space = space;
	state->sum = malloc(hidden * sizeof(*state->sum));
	state->scratch = malloc((size_t)model->inner * sizeof(*state->scratch));
	state->chosen = malloc((topk + 1) * sizeof(*state->chosen));
	if (!state->sum || !state->scratch || !state->chosen ||
		space->alloc(space, mine * hidden * sizeof(uint16_t), &state->hidden) < 0 ||
		space->alloc(space, mine * hidden * sizeof(uint16_t), &state->residual) < 0 ||
		space->alloc(space, mine * topk * sizeof(int32_t), &state->ids) < 0 ||
		space->alloc(space, mine * topk * sizeof(float), &state->weights) < 0 ||
		space->alloc(space, all * hidden * sizeof(uint16_t), &state->all_hidden) < 0 ||
		space->alloc(space, all * topk * sizeof(int32_t), &state->all_ids) < 0 ||
		space->alloc(space, all * topk * sizeof(float), &state->all_weights) < 0 ||
		space->alloc(space, all * hidden * sizeof(uint16_t), &state->partial) < 0 ||
		space->alloc(space, (size_t)options->layers * hidden * sizeof(uint16_t),
			&state->gamma) < 0)
		return layer_state_free(state);
	for (size_t layer = 0; layer < (size_t)options->layers; layer++)
		memcpy((uint16_t *)state->gamma.host + layer * hidden, model->layers[layer].gamma,
			hidden * sizeof(uint16_t));
	if (space->upload(space, &state->gamma, state->gamma.n_bytes) < 0)
		return layer_state_free(state);
	return state;
}

struct layer_state *layer_state_free(struct layer_state *state)
{
	if (!state)
		return NULL;
	state->space->free(state->space, &state->hidden);
	state->space->free(state->space, &state->residual);
	state->space->free(state->space, &state->ids);
	state->space->free(state->space, &state->weights);
	state->space->free(state->space, &state->all_hidden);
	state->space->free(state->space, &state->all_ids);
	state->space->free(state->space, &state->all_weights);
	state->space->free(state->space, &state->partial);
	state->space->free(state->space, &state->gamma);
	free(state->chosen);
	free(state->scratch);
	free(state->sum);
	free(state);
	return NULL;
}
