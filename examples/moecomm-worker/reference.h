/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same model in one process and in double, for this rank's tokens: what --check compares with.
 *
 * Layer by layer: the reference takes the very bf16 values that entered the layer, runs router,
 * experts, sum, residual and norm in double without any rounding in between, and is compared with
 * what came out. So each layer's error is its own, an error in any layer shows in that layer, and
 * two experts of nearly equal score can't send the reference another way than the ranks went. The
 * first layer's input is the embedding, and each layer's input is the output that was just checked:
 * together they cover the whole model.
 */
#ifndef WORKER_REFERENCE_H
#define WORKER_REFERENCE_H

#include <stdint.h>
#include "model.h"

/*
 * Right results differ by bf16's rounding only: half an ulp of the output is at most 2^-9 = 2.0e-03
 * of a value, the ranks' parts are rounded once more. A lost or doubled expert, a stale or foreign
 * row, or a wrong weight is far above.
 */
#define REFERENCE_LIMIT 1e-2

struct reference;

/* rows: the most that a round has. NULL: out of memory. The model must have all experts. */
struct reference *reference_new(const struct model *model, int rows);
/* NULL is allowed. Returns NULL. */
struct reference *reference_free(struct reference *reference);

/* Keeps what enters a layer: hidden and residual, [rows, hidden] bf16. */
void reference_enter(struct reference *reference, const uint16_t *hidden, const uint16_t *residual,
	int64_t rows);

/*
 * Runs the layer and compares. Returns the larger of the two outputs' relative errors,
 * ‖out − ref‖ / ‖ref‖ over all rows; NaN when the output holds one. 0 rows: 0.
 */
double reference_leave(struct reference *reference, int layer, const uint16_t *hidden,
	const uint16_t *residual, int64_t rows);

#endif
