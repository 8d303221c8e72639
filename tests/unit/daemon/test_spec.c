/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "daemon/groups/spec.h"
#include "proto/status.h"

static Moecomm__Wire__GroupSpec sane(void)
{
	Moecomm__Wire__GroupSpec wire = MOECOMM__WIRE__GROUP_SPEC__INIT;

	wire.world_size = 4;
	wire.n_channels = 1;
	wire.max_rows = 128;
	wire.has_dispatch_row_bytes = 1;
	wire.dispatch_row_bytes = 4096;
	return wire;
}

static int resolve(const Moecomm__Wire__GroupSpec *wire, struct mc_spec *ret_spec, char *detail)
{
	struct mc_layout layout;

	return mc_spec_from_wire(wire, MC_WIRE_BACKEND_HOST, ret_spec, &layout, detail, 512);
}

static void defaults_are_resolved(void **state)
{
	Moecomm__Wire__GroupSpec wire = sane();
	struct mc_spec spec;
	char detail[512];

	(void)state;
	assert_int_equal(resolve(&wire, &spec, detail), 0);
	assert_int_equal(spec.backend, MC_WIRE_BACKEND_HOST);
	assert_int_equal(spec.n_channels, 1);
	assert_int_equal(spec.op_timeout_ms, 10000);
	assert_int_equal(spec.warmup_timeout_ms, 120000);
	assert_int_equal(spec.warmup_calls, 16);
	assert_int_equal(spec.join_timeout_ms, 60000);
	assert_int_equal(spec.probe_timeout_ms, 10000);
	assert_string_equal(spec.job, "");
}

static void each_differing_field_is_named(void **state)
{
	Moecomm__Wire__GroupSpec wire = sane();
	struct mc_spec a, b;
	const char *field = "";
	char detail[512], left[160], right[160];
	struct {
		uint32_t *number;
		const char *name;
	} numbers[] = {
		{&b.world_size, "world_size"},
		{&b.n_channels, "n_channels"},
		{&b.backend, "backend"},
		{&b.path, "path"},
		{&b.op_timeout_ms, "op_timeout_ms"},
		{&b.warmup_timeout_ms, "warmup_timeout_ms"},
		{&b.warmup_calls, "warmup_calls"},
		{&b.join_timeout_ms, "join_timeout_ms"},
		{&b.probe_timeout_ms, "probe_timeout_ms"},
	};

	(void)state;
	assert_int_equal(resolve(&wire, &a, detail), 0);
	b = a;
	assert_false(mc_spec_differs(&a, &b, &field, left, right, sizeof(left)));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		*numbers[i].number += 3;
		assert_true(mc_spec_differs(&a, &b, &field, left, right, sizeof(left)));
		assert_string_equal(field, numbers[i].name);
		assert_string_not_equal(left, right);
		b = a;
	}
	b.dispatch_row_bytes = UINT64_C(1) << 40;
	assert_true(mc_spec_differs(&a, &b, &field, left, right, sizeof(left)));
	assert_string_equal(field, "dispatch_row_bytes");
	assert_string_equal(left, "4096");
	assert_string_equal(right, "1099511627776");
	b = a;
	strcpy(b.job, "other");
	assert_true(mc_spec_differs(&a, &b, &field, left, right, sizeof(left)));
	assert_string_equal(field, "job");
	assert_string_equal(right, "'other'");
}

static void a_spec_survives_the_wire(void **state)
{
	Moecomm__Wire__GroupSpec wire = sane();
	struct mc_spec a, b;
	const char *field = "";
	char detail[512], left[160], right[160];

	(void)state;
	wire.job = "train";
	wire.shared_gpu = 1;
	wire.combine_row_bytes = 77;
	wire.warmup_calls = 5;
	assert_int_equal(resolve(&wire, &a, detail), 0);
	mc_spec_to_wire(&a, &wire);
	assert_int_equal(resolve(&wire, &b, detail), 0);
	if (mc_spec_differs(&a, &b, &field, left, right, sizeof(left)))
		fail_msg("%s: %s became %s", field, left, right);
}

static void what_can_not_be_is_refused(void **state)
{
	Moecomm__Wire__GroupSpec wire;
	struct mc_spec spec;
	char detail[512];

	(void)state;
	wire = sane(), wire.world_size = 0;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	wire = sane(), wire.world_size = 65;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	wire = sane(), wire.n_channels = 9;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	wire = sane(), wire.max_rows = 0;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	wire = sane(), wire.dispatch_row_bytes = 0;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	wire = sane(), wire.max_rows = UINT64_MAX;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	wire = sane(), wire.dispatch_row_bytes = UINT64_MAX;
	assert_int_not_equal(resolve(&wire, &spec, detail), 0);
	wire = sane(), wire.path = 2;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_UNSUPPORTED);
	wire = sane(), wire.backend = 3;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_UNSUPPORTED);
	wire = sane(), wire.probe_timeout_ms = MC_LIMIT_TIMEOUT_MS + 1;
	assert_int_equal(resolve(&wire, &spec, detail), MC_STATUS_INVALID);
	assert_non_null(strstr(detail, "probe_timeout_ms"));
}

static void names(void **state)
{
	char longest[MC_LIMIT_NAME_BYTES + 2];

	(void)state;
	assert_true(mc_spec_name_valid("ep0"));
	assert_true(mc_spec_name_valid("A.b_c:d-9"));
	assert_false(mc_spec_name_valid(""));
	assert_false(mc_spec_name_valid("a b"));
	assert_false(mc_spec_name_valid("a/b"));
	assert_false(mc_spec_name_valid("\xc3\xa4"));
	memset(longest, 'x', sizeof(longest));
	longest[MC_LIMIT_NAME_BYTES + 1] = 0;
	assert_false(mc_spec_name_valid(longest));
	longest[MC_LIMIT_NAME_BYTES] = 0;
	assert_true(mc_spec_name_valid(longest));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_resolved),
		cmocka_unit_test(each_differing_field_is_named),
		cmocka_unit_test(a_spec_survives_the_wire),
		cmocka_unit_test(what_can_not_be_is_refused),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
