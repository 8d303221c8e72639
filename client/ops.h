/* SPDX-License-Identifier: Apache-2.0 */
/* What all ops share: rows, capacity, and the way in and out. Nothing here allocates. */
#ifndef MC_CLIENT_OPS_H
#define MC_CLIENT_OPS_H

#include "client/group.h"

/* Rows of every rank, checked, with their sum. */
struct mc_rows {
	uint32_t rows[MC_MAX_WORLD_SIZE];
	uint64_t total;
};

/*
 * Expands the uniform form and checks every rank's rows against what a call can carry of rows of
 * row_bytes: INVALID or TOO_LARGE. Every rank sees every rank's rows, so all refuse alike.
 */
enum moecomm_status mc_rows_check(const struct moecomm_group *group, const char *op, int64_t rows,
	const int64_t *rows_per_rank, uint64_t row_bytes, struct mc_rows *ret_rows);

/* Whether the group may be used, its op struct has the right size and the channel exists. */
enum moecomm_status mc_op_check(const struct moecomm_group *group, const char *op, const void *args,
	size_t size, size_t known, int channel);

/* Takes the channel: BUSY, or how the epoch ended. On OK mc_op_leave must follow. */
enum moecomm_status mc_op_enter(struct moecomm_group *group, const char *op, uint32_t channel);
void mc_op_leave(struct moecomm_group *group, uint32_t channel);

/* Ends an op that the backend has run: its outcome, explained; leaves the channel. */
enum moecomm_status mc_op_finish(struct moecomm_group *group, uint32_t channel, int outcome,
	const struct mc_fault *fault, const struct mc_backend_error *error);

#endif
