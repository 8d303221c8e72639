/* SPDX-License-Identifier: Apache-2.0 */
/* Every argument check: what is refused, with which status, and that nothing was launched. */
#include "integration/client/harness.h"

#include <math.h>
#include <string.h>

#include "integration/client/fake_daemon.h"

#define CAPACITY_ROW 256

static struct fake_daemon *fake;
static moecomm_context *context;
static moecomm_group *group; /* the only rank */

static int setup(void **state)
{
	static const struct fake_script script = {0};
	struct moecomm_group_options o = test_options("args", 0, 1);

	(void)state;
	fake = fake_start(test_socket(), &script);
	context = test_connect(test_socket());
	return moecomm_group_join(context, &o, &group) == MOECOMM_OK ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	group = moecomm_group_leave(group);
	context = moecomm_disconnect(context);
	fake = fake_stop(fake);
	return 0;
}

static uint64_t calls(void)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	assert_status(moecomm_group_query(group, &info), MOECOMM_OK);
	assert_int_equal(info.state, MOECOMM_GROUP_READY);
	return info.calls;
}

/* ---- join options ---- */

struct join_case {
	const char *what;
	size_t offset, n;
	int64_t value;
	enum moecomm_status status;
};

#define FIELD(f)                                                                                   \
#f, offsetof(struct moecomm_group_options, f),                                             \
		sizeof(((struct moecomm_group_options *)0)->f)

static void test_join_options(void **state)
{
	static const struct join_case cases[] = {
		{FIELD(size), 0, MOECOMM_INVALID},
		{FIELD(size), 16, MOECOMM_INVALID},
		{FIELD(size), 1 << 20, MOECOMM_INVALID},
		{FIELD(name), 0, MOECOMM_INVALID},
		{FIELD(rank), -1, MOECOMM_INVALID},
		{FIELD(rank), 1, MOECOMM_INVALID},
		{FIELD(world_size), 0, MOECOMM_INVALID},
		{FIELD(world_size), 65, MOECOMM_INVALID},
		{FIELD(world_size), -1, MOECOMM_INVALID},
		{FIELD(backend), 3, MOECOMM_INVALID},
		{FIELD(backend), MOECOMM_BACKEND_CUDA, MOECOMM_UNSUPPORTED},
		{FIELD(device), -2, MOECOMM_INVALID},
		{FIELD(n_channels), -1, MOECOMM_INVALID},
		{FIELD(n_channels), 9, MOECOMM_INVALID},
		{FIELD(max_rows), -1, MOECOMM_INVALID},
		{FIELD(max_rows), 0, MOECOMM_INVALID},
		{FIELD(max_rows), INT64_MAX, MOECOMM_INVALID},
		{FIELD(dispatch_row_bytes), -1, MOECOMM_INVALID},
		{FIELD(dispatch_row_bytes), INT64_MAX, MOECOMM_TOO_LARGE},
		{FIELD(combine_row_bytes), -1, MOECOMM_INVALID},
		{FIELD(combine_row_bytes), INT64_MAX, MOECOMM_TOO_LARGE},
		{FIELD(path), MOECOMM_PATH_NCCL, MOECOMM_UNSUPPORTED},
		{FIELD(path), 3, MOECOMM_INVALID},
		{FIELD(shared_gpu), 2, MOECOMM_INVALID},
		{FIELD(op_timeout_ms), -1, MOECOMM_INVALID},
		{FIELD(warmup_timeout_ms), -1, MOECOMM_INVALID},
		{FIELD(warmup_calls), -1, MOECOMM_INVALID},
		{FIELD(join_timeout_ms), 86400001, MOECOMM_INVALID},
		{FIELD(probe_timeout_ms), -5, MOECOMM_INVALID},
		{FIELD(n_allow_uid), 1, MOECOMM_INVALID},
		{FIELD(n_allow_uid), 65, MOECOMM_INVALID},
		{FIELD(n_allow_gid), -1, MOECOMM_INVALID},
	};
	static const char *const names[] = {"", "a b", "a/b", "ä", NULL};
	char long_name[130];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct moecomm_group_options o = test_options("args-join", 0, 1);
		moecomm_group *made = NULL;
		enum moecomm_status status;

		memcpy((char *)&o + cases[i].offset, &cases[i].value, cases[i].n);
		status = moecomm_group_join(context, &o, &made);
		/* a build with the cuda module gets as far as looking for a device */
		if (status == MOECOMM_DEVICE && o.backend == MOECOMM_BACKEND_CUDA)
			status = MOECOMM_UNSUPPORTED;
		if (status != cases[i].status) {
			print_error("%s = %lld: %s (%s), wanted %s\n", cases[i].what,
				(long long)cases[i].value, moecomm_status_name(status),
				moecomm_last_error(), moecomm_status_name(cases[i].status));
			fail();
		}
		assert_null(made);
		assert_true(moecomm_last_error()[0]);
	}
	memset(long_name, 'n', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	for (int i = 0; i < 5; i++) {
		struct moecomm_group_options o =
			test_options(names[i] ? names[i] : long_name, 0, 1);
		moecomm_group *made = NULL;

		assert_status(moecomm_group_join(context, &o, &made), MOECOMM_INVALID);
	}
	assert_status(moecomm_group_join(NULL, NULL, NULL), MOECOMM_INVALID);
	assert_status(moecomm_group_join(context, NULL, &group), MOECOMM_INVALID);
}

/* A newer header's structure: accepted as long as the new part asks for nothing. */
static void test_sizes(void **state)
{
	struct {
		struct moecomm_combine_args args;
		uint64_t more[4];
	} newer = {.args = MOECOMM_COMBINE_ARGS_INIT};

	(void)state;
	newer.args.size = sizeof(newer);
	newer.args.hidden = 8;
	assert_status(moecomm_combine(group, &newer.args, NULL), MOECOMM_OK);
	newer.more[2] = 1;
	assert_status(moecomm_combine(group, &newer.args, NULL), MOECOMM_INVALID);
	assert_error_has("size");
}

/* ---- dispatch ---- */

static uint8_t in[64 * 1024], out[64 * 1024];

static struct moecomm_dispatch_args good_dispatch(struct moecomm_tensor tensor[8])
{
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	for (int i = 0; i < 8; i++)
		tensor[i] = (struct moecomm_tensor){in + i * 1024, out + i * 1024, 32};
	args.tensors = tensor;
	args.n_tensors = 8;
	args.rows = 4;
	return args;
}

static void test_dispatch(void **state)
{
	static const int64_t negative[1] = {-1}, big[1] = {1 << 20}, three[1] = {3};
	struct moecomm_tensor tensor[9];
	struct moecomm_dispatch_args args;
	int64_t capacity = moecomm_group_capacity(group, CAPACITY_ROW);
	uint64_t before = calls();

	(void)state;
#define REFUSED(change, status)                                                                    \
	do {                                                                                       \
		args = good_dispatch(tensor);                                                      \
		change;                                                                            \
		assert_status(moecomm_dispatch(group, &args, NULL), status);                       \
		assert_error_has("dispatch");                                                      \
	} while (0)
	REFUSED(args.size = 8, MOECOMM_INVALID);
	REFUSED(args.channel = -1, MOECOMM_INVALID);
	REFUSED(args.channel = 2, MOECOMM_INVALID);
	REFUSED(args.n_tensors = 0, MOECOMM_INVALID);
	REFUSED(args.n_tensors = 9, MOECOMM_INVALID);
	REFUSED(args.n_tensors = -1, MOECOMM_INVALID);
	REFUSED(args.tensors = NULL, MOECOMM_INVALID);
	REFUSED(tensor[3].row_bytes = 0, MOECOMM_INVALID);
	REFUSED(tensor[3].row_bytes = -1, MOECOMM_INVALID);
	REFUSED(tensor[3].row_bytes = INT64_MAX, MOECOMM_TOO_LARGE);
	REFUSED(tensor[0].row_bytes = tensor[1].row_bytes = tensor[2].row_bytes = INT64_MAX,
		MOECOMM_TOO_LARGE);
	REFUSED(tensor[7].input = NULL, MOECOMM_INVALID);
	REFUSED(tensor[7].output = NULL, MOECOMM_INVALID);
	REFUSED(args.rows = -1, MOECOMM_INVALID);
	REFUSED(args.rows = INT64_MAX, MOECOMM_TOO_LARGE);
	REFUSED(args.rows = INT64_C(1) << 31, MOECOMM_TOO_LARGE);
	REFUSED(args.rows = INT64_C(1) << 32, MOECOMM_TOO_LARGE);
	REFUSED(args.rows = capacity + 1, MOECOMM_TOO_LARGE);
	REFUSED(args.rows_per_rank = negative, MOECOMM_INVALID);
	REFUSED(args.rows_per_rank = big, MOECOMM_TOO_LARGE);
	REFUSED(args.ids_tensor = -2, MOECOMM_INVALID);
	REFUSED(args.ids_tensor = 8, MOECOMM_INVALID);
	REFUSED(args.ids_tensor = 0; tensor[0].row_bytes = 30, MOECOMM_INVALID);
#undef REFUSED
	assert_status(moecomm_dispatch(group, NULL, NULL), MOECOMM_INVALID);
	args = good_dispatch(tensor);
	assert_status(moecomm_dispatch(NULL, &args, NULL), MOECOMM_INVALID);
	args.rows = capacity + 1;
	assert_status(moecomm_dispatch(group, &args, NULL), MOECOMM_TOO_LARGE);
	{
		char number[32];

		snprintf(number, sizeof(number), "%lld", (long long)capacity);
		assert_error_has(number);
	}
	assert_int_equal(calls(), before); /* nothing was launched */

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	args = good_dispatch(tensor);
	args.rows = -77; /* ignored */
	args.rows_per_rank = three;
	assert_status(moecomm_dispatch(group, &args, NULL), MOECOMM_OK);
	assert_memory_equal(in, out, 96);
	/* no bytes, no pointers */
	args = good_dispatch(tensor);
	args.rows = 0;
	for (int i = 0; i < 8; i++)
		tensor[i].input = NULL, tensor[i].output = NULL;
	assert_status(moecomm_dispatch(group, &args, NULL), MOECOMM_OK);
	assert_int_equal(calls(), before + 2);
}

/* ---- combine ---- */

static struct moecomm_combine_args good_combine(int fused)
{
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;

	args.dtype = MOECOMM_FP32;
	args.hidden = 32;
	args.rows = 4;
	args.input = in;
	args.output = out;
	if (fused) {
		args.residual = in + 8192;
		args.residual_output = out + 8192;
		args.gamma = in + 16384;
		args.eps = 1e-6f;
	}
	return args;
}

static void test_combine(void **state)
{
	static const int64_t negative[1] = {-1};
	struct moecomm_combine_args args;
	uint64_t before = calls();

	(void)state;
	memset(in, 0, sizeof(in));
	for (int fused = 0; fused < 2; fused++) {
		enum moecomm_status (*op)(moecomm_group *, const struct moecomm_combine_args *,
			void *) = fused ? moecomm_combine_rmsnorm : moecomm_combine;

#define REFUSED(change, status)                                                                    \
	do {                                                                                       \
		args = good_combine(fused);                                                        \
		change;                                                                            \
		assert_status(op(group, &args, NULL), status);                                     \
		assert_error_has(fused ? "combine_rmsnorm" : "combine");                           \
	} while (0)
		REFUSED(args.size--, MOECOMM_INVALID);
		REFUSED(args.channel = 2, MOECOMM_INVALID);
		REFUSED(args.dtype = (enum moecomm_dtype)0, MOECOMM_INVALID);
		REFUSED(args.dtype = (enum moecomm_dtype)4, MOECOMM_INVALID);
		REFUSED(args.hidden = 0, MOECOMM_INVALID);
		REFUSED(args.hidden = -1, MOECOMM_INVALID);
		REFUSED(args.hidden = INT64_MAX, MOECOMM_TOO_LARGE);
		REFUSED(args.hidden = INT64_C(1) << 61, MOECOMM_TOO_LARGE);
		REFUSED(args.hidden = INT64_C(1) << 30, MOECOMM_TOO_LARGE); /* 2^32 bytes a row */
		REFUSED(args.rows = -1, MOECOMM_INVALID);
		REFUSED(args.rows = moecomm_group_capacity(group, 128) + 1, MOECOMM_TOO_LARGE);
		REFUSED(args.rows_per_rank = negative, MOECOMM_INVALID);
		REFUSED(args.input = NULL, MOECOMM_INVALID);
		REFUSED(args.output = NULL, MOECOMM_INVALID);
		if (fused) {
			REFUSED(args.residual = NULL, MOECOMM_INVALID);
			REFUSED(args.residual_output = NULL, MOECOMM_INVALID);
			REFUSED(args.gamma = NULL, MOECOMM_INVALID);
			/* without rows only pointers to rows may be NULL: a rank that leaves gamma
			 * out would be taken for one that calls the plain combine */
			REFUSED((args.rows = 0,
					args.gamma = args.residual = args.residual_output = NULL),
				MOECOMM_INVALID);
			REFUSED(args.eps = -1.0f, MOECOMM_INVALID);
			REFUSED(args.eps = INFINITY, MOECOMM_INVALID);
			REFUSED(args.eps = NAN, MOECOMM_INVALID);
		} else {
			REFUSED(args.residual = in, MOECOMM_INVALID);
			REFUSED(args.residual_output = out, MOECOMM_INVALID);
			REFUSED(args.gamma = in, MOECOMM_INVALID);
			REFUSED(args.eps = 1e-5f, MOECOMM_INVALID);
		}
#undef REFUSED
		assert_int_equal(calls(), before);
		args = good_combine(fused);
		assert_status(op(group, &args, NULL), MOECOMM_OK);
		before++;
		assert_status(op(group, NULL, NULL), MOECOMM_INVALID);
		assert_status(op(NULL, &args, NULL), MOECOMM_INVALID);
	}
}

/* ---- the rest ---- */

static void test_mask(void **state)
{
	int32_t ids[6] = {1, 2, 3, 4, 5, 6}, count = 2, bad = 4;
	_Alignas(int32_t) uint8_t unaligned[8];

	(void)state;
	assert_status(moecomm_mask_expert_ids(NULL, ids, 3, 2, &count, NULL), MOECOMM_INVALID);
	assert_status(moecomm_mask_expert_ids(group, NULL, 3, 2, &count, NULL), MOECOMM_INVALID);
	assert_status(moecomm_mask_expert_ids(group, ids, -1, 2, &count, NULL), MOECOMM_INVALID);
	assert_status(moecomm_mask_expert_ids(group, ids, 3, 0, &count, NULL), MOECOMM_INVALID);
	assert_status(moecomm_mask_expert_ids(group, ids, 3, 2, NULL, NULL), MOECOMM_INVALID);
	assert_status(moecomm_mask_expert_ids(group, ids, INT64_MAX, INT64_MAX, &count, NULL),
		MOECOMM_TOO_LARGE);
	assert_status(moecomm_mask_expert_ids(group, ids, 3, 2, &bad, NULL), MOECOMM_INVALID);
	assert_int_equal(ids[5], 6);
	assert_status(moecomm_mask_expert_ids(group, ids, 3, 2, &count, NULL), MOECOMM_OK);
	assert_int_equal(ids[3], 4);
	assert_int_equal(ids[4], -1);
	assert_int_equal(ids[5], -1);
	/* the count may have any alignment */
	count = 1;
	memcpy(unaligned + 1, &count, sizeof(count));
	assert_status(
		moecomm_mask_expert_ids(group, ids, 3, 2, (const void *)(unaligned + 1), NULL),
		MOECOMM_OK);
	assert_int_equal(ids[1], 2);
	assert_int_equal(ids[2], -1);
	count = 0;
	assert_status(moecomm_mask_expert_ids(group, NULL, 0, 2, &count, NULL), MOECOMM_OK);
	/* a mistaken count of a local op is no reason to end the epoch */
	calls();
}

static void test_capacity_and_path(void **state)
{
	(void)state;
	assert_int_equal(moecomm_group_capacity(group, 0), 0);
	assert_int_equal(moecomm_group_capacity(group, -1), 0);
	assert_int_equal(moecomm_group_capacity(group, INT64_MAX), 0);
	assert_true(moecomm_group_capacity(group, 256) >= 16);
	assert_true(moecomm_group_capacity(group, 1) >= moecomm_group_capacity(group, 2));
	for (int64_t bytes = 1; bytes < 600; bytes += 37) {
		int64_t capacity = moecomm_group_capacity(group, bytes);

		assert_int_equal(moecomm_group_path(group, capacity, bytes), MOECOMM_PATH_LAMPORT);
		assert_int_equal(moecomm_group_path(group, capacity + 1, bytes), MOECOMM_PATH_AUTO);
	}
	assert_int_equal(moecomm_group_path(group, -1, 4), MOECOMM_PATH_AUTO);
}

static void test_query(void **state)
{
	struct moecomm_group_info info;

	(void)state;
	memset(&info, 0xee, sizeof(info));
	info.size = 2;
	assert_status(moecomm_group_query(group, &info), MOECOMM_INVALID);
	info.size = sizeof(info);
	assert_status(moecomm_group_query(group, NULL), MOECOMM_INVALID);
	assert_status(moecomm_group_query(NULL, &info), MOECOMM_INVALID);
	assert_status(moecomm_group_query(group, &info), MOECOMM_OK);
	assert_int_equal(info.size, sizeof(info));
	assert_int_equal(info.status, MOECOMM_OK);
	assert_int_equal(info.fault_rank, -1);
	assert_string_equal(info.detail, "");
	assert_int_equal(info.rank, 0);
	assert_int_equal(info.world_size, 1);
	assert_int_equal(info.backend, MOECOMM_BACKEND_HOST);
	assert_int_equal(info.path, MOECOMM_PATH_LAMPORT);
	assert_int_equal(info.daemon_connected, 1);
	assert_true(info.arena_bytes > 0);
	/* an older program's shorter structure: not a byte more */
	memset(&info, 0xee, sizeof(info));
	info.size = offsetof(struct moecomm_group_info, detail);
	assert_status(moecomm_group_query(group, &info), MOECOMM_OK);
	assert_int_equal(
		((unsigned char *)&info)[offsetof(struct moecomm_group_info, detail)], 0xee);
}

static void test_deadlines(void **state)
{
	(void)state;
	assert_status(moecomm_group_set_deadlines(group, -1, 0, 0), MOECOMM_INVALID);
	assert_status(moecomm_group_set_deadlines(group, 0, 86400001, 0), MOECOMM_INVALID);
	assert_status(moecomm_group_set_deadlines(group, 0, 0, -1), MOECOMM_INVALID);
	assert_status(moecomm_group_set_deadlines(NULL, 0, 0, 0), MOECOMM_INVALID);
	assert_status(moecomm_group_set_deadlines(group, 100, 200, 3), MOECOMM_OK);
}

static void test_null(void **state)
{
	(void)state;
	assert_null(moecomm_disconnect(NULL));
	assert_null(moecomm_group_leave(NULL));
	assert_status(moecomm_group_abort(NULL, "x"), MOECOMM_INVALID);
	assert_status(moecomm_group_rejoin(NULL), MOECOMM_INVALID);
	assert_int_equal(moecomm_group_capacity(NULL, 4), 0);
	assert_int_equal(moecomm_group_path(NULL, 1, 4), MOECOMM_PATH_AUTO);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(moecomm_status_name(MOECOMM_OK), "OK");
	assert_string_equal(moecomm_status_name(MOECOMM_SHUTDOWN), "SHUTDOWN");
	assert_string_equal(moecomm_status_name((enum moecomm_status)9999), "UNKNOWN");
	for (int i = -1; i < 40; i++)
		assert_true(moecomm_status_text((enum moecomm_status)i)[0]);
	assert_string_equal(moecomm_version(), "0.1.0");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join_options),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_dispatch),
		cmocka_unit_test(test_combine),
		cmocka_unit_test(test_mask),
		cmocka_unit_test(test_capacity_and_path),
		cmocka_unit_test(test_query),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_null),
		cmocka_unit_test(test_names),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
