/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bf16.h"

/* splitmix64: a good mix of 64 bits, so that a weight is a pure function of where it stands. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Uniform numbers of mean 0 and the given standard deviation. NULL: out of memory. */
static float *random_matrix(uint64_t seed, uint64_t what, size_t n, double deviation)
{
	float *ret = malloc(n * sizeof(*ret));
	uint64_t stream = mix(mix(seed) ^ what);

	for (size_t i = 0; ret && i < n; i++) {
		double unit = (double)(mix(stream + i) >> 11) * 0x1p-53; /* 0 … 1 */

		ret[i] = (float)((2 * unit - 1) * sqrt(3.0) * deviation);
	}
	return ret;
}

/* Names of the weights' streams; a layer's are apart from every other's. */
enum { W_EMBEDDING, W_CONTEXT, W_ROUTER, W_GAMMA, W_EXPERT };

static uint64_t name_of(int kind, int layer, int index)
{
	return (uint64_t)kind << 48 | (uint64_t)layer << 32 | (uint64_t)index;
}

static bool layer_make(struct model *model, int layer, const struct options *options)
{
	struct layer_weights *w = &model->layers[layer];
	size_t hidden = (size_t)model->hidden, inner = (size_t)model->inner;
	float *gamma;

	w->router = random_matrix(options->seed, name_of(W_ROUTER, layer, 0),
		(size_t)model->experts * hidden, 1 / sqrt(hidden));
	w->gamma = malloc(hidden * sizeof(*w->gamma));
	w->experts = calloc((size_t)model->experts, sizeof(*w->experts));
	gamma = random_matrix(options->seed, name_of(W_GAMMA, layer, 0), hidden, 0.1);
	if (!w->router || !w->gamma || !w->experts || !gamma) {
		free(gamma);
		return false;
	}
	for (size_t i = 0; i < hidden; i++)
		w->gamma[i] = bf16_from_float(1 + gamma[i]);
	free(gamma);

	for (int e = 0; e < model->experts; e++) {
		if (!options->check && model_owner(e, options->world_size) != options->rank)
			continue;
		w->experts[e].up = random_matrix(options->seed, name_of(W_EXPERT, layer, 2 * e),
			hidden * inner, 1 / sqrt(hidden));
		w->experts[e].down = random_matrix(options->seed,
			name_of(W_EXPERT, layer, 2 * e + 1), inner * hidden, 2 / sqrt(inner));
		if (!w->experts[e].up || !w->experts[e].down)
			return false;
	}
	return true;
}

struct model *model_new(const struct options *options)
{
	struct model *model = calloc(1, sizeof(*model));
	size_t hidden = (size_t)options->hidden;

	if (!model)
		return NULL;
	model->hidden = options->hidden;
	model->inner = 2 * options->hidden;
	model->experts = options->experts;
	model->topk = options->topk;
	model->n_layers = options->layers;
	model->embedding =
		random_matrix(options->seed, name_of(W_EMBEDDING, 0, 0), 256 * hidden, 1);
	model->context = random_matrix(options->seed, name_of(W_CONTEXT, 0, 0), 256 * hidden, 1);
	model->layers = calloc((size_t)options->layers, sizeof(*model->layers));
	if (!model->embedding || !model->context || !model->layers)
		return model_free(model);
	for (int layer = 0; layer < options->layers; layer++)
		if (!layer_make(model, layer, options))
			return model_free(model);
	return model;
}

struct model *model_free(struct model *model)
{
	if (!model)
		return NULL;
	for (int layer = 0; model->layers && layer < model->n_layers; layer++) {
		struct layer_weights *w = &model->layers[layer];

		for (int e = 0; w->experts && e < model->experts; e++) {
			free(w->experts[e].up);
			free(w->experts[e].down);
		}
		free(w->experts);
		free(w->gamma);
		free(w->router);
	}
	free(model->layers);
	free(model->context);
	free(model->embedding);
	free(model);
	return NULL;
}

void model_embed(const struct model *model, uint8_t before, uint8_t byte, uint16_t *ret_row)
{
	size_t hidden = (size_t)model->hidden;

	for (size_t d = 0; d < hidden; d++)
		ret_row[d] = bf16_from_float(model->embedding[byte * hidden + d] +
					     0.5f * model->context[before * hidden + d]);
}

void model_route(const struct model *model, int layer, const uint16_t *row, int32_t *ret_ids,
	double *ret_weights)
{
	size_t hidden = (size_t)model->hidden;
	int n = 0; /* how many of the best are known */
	double sum = 0;

	for (int e = 0; e < model->experts; e++) {
		const float *router = model->layers[layer].router + (size_t)e * hidden;
		double logit = 0;
		int at;

		for (size_t d = 0; d < hidden; d++)
			logit += (double)router[d] * bf16_to_float(row[d]);
		/* insert into the sorted list of the best; a tie stays behind the lower id */
		for (at = n; at > 0 && logit > ret_weights[at - 1]; at--)
			;
		if (at == model->topk)
			continue;
		if (n < model->topk)
			n++;
		memmove(ret_ids + at + 1, ret_ids + at, (size_t)(n - 1 - at) * sizeof(*ret_ids));
		memmove(ret_weights + at + 1, ret_weights + at,
			(size_t)(n - 1 - at) * sizeof(*ret_weights));
		ret_ids[at] = e;
		ret_weights[at] = logit;
	}
	for (int k = n - 1; k >= 0; k--) { /* the largest, at 0, is needed until the end */
		ret_weights[k] = exp(ret_weights[k] - ret_weights[0]);
		sum += ret_weights[k];
	}
	for (int k = 0; k < n; k++)
		ret_weights[k] /= sum;
}

void model_expert_add(const struct model *model, int layer, int expert, const uint16_t *row,
	float weight, float *scratch, float *sum)
{
	const struct expert *w = &model->layers[layer].experts[expert];
	size_t hidden = (size_t)model->hidden, inner = (size_t)model->inner;

	memset(scratch, 0, inner * sizeof(*scratch));
	for (size_t d = 0; d < hidden; d++) {
		float x = bf16_to_float(row[d]);

		for (size_t f = 0; f < inner; f++)
			scratch[f] += x * w->up[d * inner + f];
	}
	for (size_t f = 0; f < inner; f++) {
		float y = weight * (scratch[f] / (1 + expf(-scratch[f])));

		for (size_t d = 0; d < hidden; d++)
			sum[d] += y * w->down[f * hidden + d];
	}
}
