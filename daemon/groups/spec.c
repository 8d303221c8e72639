/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/groups/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "proto/status.h"

#define REFUSE(status, ...) (snprintf(ret_detail, n_detail, __VA_ARGS__), (int)(status))

bool mc_spec_name_valid(const char *name)
{
	size_t n = strlen(name);

	return n && n <= MC_LIMIT_NAME_BYTES &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") ==
		       n;
}

static uint32_t or_default(uint32_t value, uint32_t default_value)
{
	return value ? value : default_value;
}

static int check_choices(const struct mc_spec *spec, char *ret_detail, size_t n_detail)
{
	if (spec->backend != MC_WIRE_BACKEND_HOST && spec->backend != MC_WIRE_BACKEND_CUDA)
		return REFUSE(MC_STATUS_UNSUPPORTED,
			"backend %" PRIu32 " is not known: ask for host (1) or cuda (2)",
			spec->backend);
	if (spec->path == MC_WIRE_PATH_NCCL)
		return REFUSE(MC_STATUS_UNSUPPORTED,
			"the NCCL path is not in this release: join with path auto or lamport");
	if (spec->path > MC_WIRE_PATH_NCCL)
		return REFUSE(MC_STATUS_UNSUPPORTED, "path %" PRIu32 " is not known", spec->path);
	return 0;
}

static int check_deadlines(const struct mc_spec *spec, char *ret_detail, size_t n_detail)
{
	const struct {
		const char *name;
		uint32_t ms;
	} deadlines[] = {
		{"op_timeout_ms", spec->op_timeout_ms},
		{"warmup_timeout_ms", spec->warmup_timeout_ms},
		{"join_timeout_ms", spec->join_timeout_ms},
		{"probe_timeout_ms", spec->probe_timeout_ms},
	};

	for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]); i++)
		if (deadlines[i].ms > MC_LIMIT_TIMEOUT_MS)
			return REFUSE(MC_STATUS_INVALID, "%s is %" PRIu32 ": at most %u is allowed",
				deadlines[i].name, deadlines[i].ms, MC_LIMIT_TIMEOUT_MS);
	return 0;
}

int mc_spec_from_wire(const Moecomm__Wire__GroupSpec *wire, uint32_t auto_backend,
	struct mc_spec *ret_spec, struct mc_layout *ret_layout, char *ret_detail, size_t n_detail)
{
	struct mc_layout_spec layout_spec;
	struct mc_layout layout;
	struct mc_spec spec;
	int r;

	memset(&spec, 0, sizeof(spec));
	spec.world_size = wire->world_size;
	spec.n_channels = or_default(wire->n_channels, 1);
	spec.max_rows = wire->max_rows;
	spec.dispatch_row_bytes = wire->dispatch_row_bytes;
	spec.combine_row_bytes = wire->combine_row_bytes;
	spec.backend = wire->backend == MC_WIRE_BACKEND_AUTO ? auto_backend : wire->backend;
	spec.path = wire->path;
	spec.shared_gpu = wire->shared_gpu;
	if (wire->job && strlen(wire->job) > MC_LIMIT_NAME_BYTES)
		return REFUSE(MC_STATUS_INVALID, "the job's name is longer than %u bytes",
			MC_LIMIT_NAME_BYTES);
	snprintf(spec.job, sizeof(spec.job), "%s", wire->job ? wire->job : "");
	spec.op_timeout_ms = or_default(wire->op_timeout_ms, MC_DEFAULT_OP_TIMEOUT_MS);
	spec.warmup_timeout_ms = or_default(wire->warmup_timeout_ms, MC_DEFAULT_WARMUP_TIMEOUT_MS);
	spec.warmup_calls = or_default(wire->warmup_calls, MC_DEFAULT_WARMUP_CALLS);
	spec.join_timeout_ms = or_default(wire->join_timeout_ms, MC_DEFAULT_JOIN_TIMEOUT_MS);
	spec.probe_timeout_ms = or_default(wire->probe_timeout_ms, MC_DEFAULT_PROBE_TIMEOUT_MS);

	r = check_choices(&spec, ret_detail, n_detail);
	if (r)
		return r;
	r = check_deadlines(&spec, ret_detail, n_detail);
	if (r)
		return r;
	layout_spec.world_size = spec.world_size;
	layout_spec.n_channels = spec.n_channels;
	layout_spec.max_rows = spec.max_rows;
	layout_spec.dispatch_row_bytes = spec.dispatch_row_bytes;
	layout_spec.combine_row_bytes = spec.combine_row_bytes;
	r = mc_layout_make(&layout_spec, &layout);
	if (r)
		return REFUSE(r == MC_LAYOUT_E_TOO_LARGE ? MC_STATUS_TOO_LARGE : MC_STATUS_INVALID,
			"%s (world_size %" PRIu32 ", n_channels %" PRIu32 ", max_rows %" PRIu64
			", dispatch_row_bytes %" PRIu64 ", combine_row_bytes %" PRIu64 ")",
			mc_layout_error_text(r), spec.world_size, spec.n_channels, spec.max_rows,
			spec.dispatch_row_bytes, spec.combine_row_bytes);
	*ret_spec = spec;
	*ret_layout = layout;
	return 0;
}

bool mc_spec_differs(const struct mc_spec *a, const struct mc_spec *b, const char **ret_field,
	char *ret_a, char *ret_b, size_t n_text)
{
	const struct {
		const char *name;
		uint64_t a, b;
	} numbers[] = {
		{"world_size", a->world_size, b->world_size},
		{"n_channels", a->n_channels, b->n_channels},
		{"max_rows", a->max_rows, b->max_rows},
		{"dispatch_row_bytes", a->dispatch_row_bytes, b->dispatch_row_bytes},
		{"combine_row_bytes", a->combine_row_bytes, b->combine_row_bytes},
		{"backend", a->backend, b->backend},
		{"path", a->path, b->path},
		{"shared_gpu", a->shared_gpu, b->shared_gpu},
		{"op_timeout_ms", a->op_timeout_ms, b->op_timeout_ms},
		{"warmup_timeout_ms", a->warmup_timeout_ms, b->warmup_timeout_ms},
		{"warmup_calls", a->warmup_calls, b->warmup_calls},
		{"join_timeout_ms", a->join_timeout_ms, b->join_timeout_ms},
		{"probe_timeout_ms", a->probe_timeout_ms, b->probe_timeout_ms},
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (numbers[i].a == numbers[i].b)
			continue;
		*ret_field = numbers[i].name;
		snprintf(ret_a, n_text, "%" PRIu64, numbers[i].a);
		snprintf(ret_b, n_text, "%" PRIu64, numbers[i].b);
		return true;
	}
	if (strcmp(a->job, b->job)) {
		*ret_field = "job";
		snprintf(ret_a, n_text, "'%s'", a->job);
		snprintf(ret_b, n_text, "'%s'", b->job);
		return true;
	}
	return false;
}

void mc_spec_to_wire(const struct mc_spec *spec, Moecomm__Wire__GroupSpec *ret_wire)
{
	moecomm__wire__group_spec__init(ret_wire);
	ret_wire->world_size = spec->world_size;
	ret_wire->n_channels = spec->n_channels;
	ret_wire->max_rows = spec->max_rows;
	ret_wire->has_dispatch_row_bytes = 1;
	ret_wire->dispatch_row_bytes = spec->dispatch_row_bytes;
	ret_wire->has_combine_row_bytes = 1;
	ret_wire->combine_row_bytes = spec->combine_row_bytes;
	ret_wire->backend = spec->backend;
	ret_wire->has_path = 1;
	ret_wire->path = spec->path;
	ret_wire->has_shared_gpu = 1;
	ret_wire->shared_gpu = spec->shared_gpu;
	if (*spec->job)
		ret_wire->job = (char *)spec->job;
	ret_wire->has_op_timeout_ms = 1;
	ret_wire->op_timeout_ms = spec->op_timeout_ms;
	ret_wire->has_warmup_timeout_ms = 1;
	ret_wire->warmup_timeout_ms = spec->warmup_timeout_ms;
	ret_wire->has_warmup_calls = 1;
	ret_wire->warmup_calls = spec->warmup_calls;
	ret_wire->has_join_timeout_ms = 1;
	ret_wire->join_timeout_ms = spec->join_timeout_ms;
	ret_wire->has_probe_timeout_ms = 1;
	ret_wire->probe_timeout_ms = spec->probe_timeout_ms;
}
