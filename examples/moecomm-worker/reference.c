/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bf16.h"

struct reference {
	const struct model *model;
	uint16_t *hidden;   /* [rows, hidden], as it entered */
	uint16_t *residual; /* [rows, hidden], as it entered */
	double *x;          /* [hidden]: the new residual of one row */
	double *inner;      /* [inner] */
	double *weights;    /* [topk] */
	int32_t *ids;       /* [topk] */
};

struct reference *reference_new(const struct model *model, int rows)
{
	struct reference *ref = calloc(1, sizeof(*ref));
	size_t hidden = (size_t)model->hidden, topk = (size_t)model->topk;

	if (!ref)
		return NULL;
	ref->model = model;
	ref->hidden = malloc((size_t)rows * hidden * sizeof(*ref->hidden));
	ref->residual = malloc((size_t)rows * hidden * sizeof(*ref->residual));
	ref->x = malloc(hidden * sizeof(*ref->x));
	ref->inner = malloc((size_t)model->inner * sizeof(*ref->inner));
	ref->weights = malloc((topk + 1) * sizeof(*ref->weights));
	ref->ids = malloc((topk + 1) * sizeof(*ref->ids));
	if (!ref->hidden || !ref->residual || !ref->x || !ref->inner || !ref->weights || !ref->ids)
		return reference_free(ref);
	return ref;
}

struct reference *reference_free(struct reference *ref)
{
	if (!ref)
		return NULL;
	free(ref->ids);
	free(ref->weights);
	free(ref->inner);
	free(ref->x);
	free(ref->residual);
	free(ref->hidden);
	free(ref);
	return NULL;
}

void reference_enter(
	struct reference *ref, const uint16_t *hidden, const uint16_t *residual, int64_t rows)
{
	size_t n_bytes = (size_t)rows * (size_t)ref->model->hidden * sizeof(*hidden);

	memcpy(ref->hidden, hidden, n_bytes);
	memcpy(ref->residual, residual, n_bytes);
}

/* ref->x += weight · expert(row) */
static void expert_add(
	struct reference *ref, int layer, int expert, const uint16_t *row, double weight)
{
	const struct expert *w = &ref->model->layers[layer].experts[expert];
	size_t hidden = (size_t)ref->model->hidden, inner = (size_t)ref->model->inner;

	memset(ref->inner, 0, inner * sizeof(*ref->inner));
	for (size_t d = 0; d < hidden; d++) {
		double x = bf16_to_float(row[d]);

		for (size_t f = 0; f < inner; f++)
			ref->inner[f] += x * w->up[d * inner + f];
	}
	for (size_t f = 0; f < inner; f++) {
		double y = weight * ref->inner[f] / (1 + exp(-ref->inner[f]));

		for (size_t d = 0; d < hidden; d++)
			ref->x[d] += y * w->down[f * hidden + d];
	}
}

struct distance {
	double difference, norm; /* sums of squares */
};

static void distance_add(struct distance *distance, uint16_t value, double reference)
{
	double difference = bf16_to_float(value) - reference;

	distance->difference += difference * difference;
	distance->norm += reference * reference;
}

static double distance_relative(const struct distance *distance)
{
	return distance->norm > 0 ? sqrt(distance->difference / distance->norm)
				  : sqrt(distance->difference);
}

double reference_leave(struct reference *ref, int layer, const uint16_t *hidden,
	const uint16_t *residual, int64_t rows)
{
	const struct model *model = ref->model;
	const uint16_t *gamma = model->layers[layer].gamma;
	size_t n = (size_t)model->hidden;
	struct distance normed = {0}, added = {0};
	double a, b;

	for (size_t t = 0; t < (size_t)rows; t++) {
		double squares = 0, scale;

		for (size_t d = 0; d < n; d++)
			ref->x[d] = bf16_to_float(ref->residual[t * n + d]);
		model_route(model, layer, ref->hidden + t * n, ref->ids, ref->weights);
		for (int k = 0; k < model->topk; k++)
			expert_add(ref, layer, ref->ids[k], ref->hidden + t * n, ref->weights[k]);
		for (size_t d = 0; d < n; d++)
			squares += ref->x[d] * ref->x[d];
		scale = 1 / sqrt(squares / (double)n + (double)MODEL_EPS);
		for (size_t d = 0; d < n; d++) {
			distance_add(&added, residual[t * n + d], ref->x[d]);
			distance_add(&normed, hidden[t * n + d],
				ref->x[d] * scale * bf16_to_float(gamma[d]));
		}
	}
	a = distance_relative(&added);
	b = distance_relative(&normed);
	return a >= b || isnan(a) ? a : b;
}
