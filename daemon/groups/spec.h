/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a group agree on: from the wire, resolved, compared, back to the wire. */
#ifndef MC_DAEMON_GROUPS_SPEC_H
#define MC_DAEMON_GROUPS_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/layout.h"
#include "moecomm.pb-c.h"
#include "proto/limits.h"

/* Numbers of enum moecomm_backend and enum moecomm_path, which the daemon does not include. */
enum {
	MC_WIRE_BACKEND_AUTO = 0,
	MC_WIRE_BACKEND_HOST = 1,
	MC_WIRE_BACKEND_CUDA = 2,
	MC_WIRE_PATH_AUTO = 0,
	MC_WIRE_PATH_LAMPORT = 1,
	MC_WIRE_PATH_NCCL = 2,
};

/* What a joiner gets who leaves a deadline at 0; told in moecomm.h. */
#define MC_DEFAULT_OP_TIMEOUT_MS     10000u
#define MC_DEFAULT_WARMUP_TIMEOUT_MS 120000u
#define MC_DEFAULT_WARMUP_CALLS      16u
#define MC_DEFAULT_JOIN_TIMEOUT_MS   60000u
#define MC_DEFAULT_PROBE_TIMEOUT_MS  10000u

struct mc_spec {
	uint32_t world_size;
	uint32_t n_channels;
	uint64_t max_rows;
	uint64_t dispatch_row_bytes;
	uint64_t combine_row_bytes;
	uint32_t backend;
	uint32_t path;
	bool shared_gpu;
	char job[MC_LIMIT_NAME_BYTES + 1];
	uint32_t op_timeout_ms;
	uint32_t warmup_timeout_ms;
	uint32_t warmup_calls;
	uint32_t join_timeout_ms;
	uint32_t probe_timeout_ms;
};

/*
 * Checks and resolves a spec; auto_backend is what AUTO means here. Returns 0 and sets *ret_spec
 * and *ret_layout, or an enum mc_status with ret_detail: INVALID, TOO_LARGE or UNSUPPORTED.
 */
int mc_spec_from_wire(const Moecomm__Wire__GroupSpec *wire, uint32_t auto_backend,
	struct mc_spec *ret_spec, struct mc_layout *ret_layout, char *ret_detail, size_t n_detail);

/* Whether they differ; the first differing field and both values, as text. */
bool mc_spec_differs(const struct mc_spec *a, const struct mc_spec *b, const char **ret_field,
	char *ret_a, char *ret_b, size_t n_text);

/* Points into spec, which must live as long. */
void mc_spec_to_wire(const struct mc_spec *spec, Moecomm__Wire__GroupSpec *ret_wire);

/* 1 to 128 bytes of [A-Za-z0-9._:-]. */
bool mc_spec_name_valid(const char *name);

#endif
