/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits through the whole product: every 16-bit pattern, the special values of fp32, the sentinel's
 * own value, a row alone and among others; and control blocks that something has damaged.
 */
#include "integration/client/harness.h"

#include <math.h>
#include <string.h>

#include "integration/client/mapped.h"
#include "integration/client/ranks.h"
#include "kernels/lamport.h"
#include "unit/kernels/reference.h"

#define PATTERNS 65536
#define WORLD    3
/* Time that a loaded machine may add to an op that must not wait. */
#define SOON_MS 5000

static moecomm_group *join_wide(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, rank->rank, rank->world_size);
	moecomm_group *group = NULL;

	o.max_rows = 256;
	o.dispatch_row_bytes = o.combine_row_bytes = 4096;
	o.join_timeout_ms = o.probe_timeout_ms = 20000;
	o.op_timeout_ms = o.warmup_timeout_ms = 20000;
	if (moecomm_group_join(rank->context, &o, &group))
		fprintf(stderr, "rank %d: %s\n", rank->rank, moecomm_last_error());
	return group;
}

/* ---- dispatch: whatever the words are, they arrive ---- */

static const uint32_t special[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff,
	0x00800000, 0x80800000, 0x33800000, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x4b800000,
	0xcb800000, 0x7f7fffff, 0xff7fffff, 0x7f000000, 0x7f800000, 0xff800000, 0x7f800001,
	0xff800001, 0x7fc00000, 0xffc00000, 0x7fffffff, 0xffffffff, 0x80008000, 0x7fff7fff,
	0xaaaaaaaa, 0x55555555};
#define N_SPECIAL (sizeof(special) / sizeof(special[0]))

static int body_dispatch(struct rank *rank)
{
	static uint16_t in[PATTERNS], out[WORLD * PATTERNS];
	static uint32_t words[PATTERNS / 4], all[WORLD * PATTERNS / 4];
	struct moecomm_tensor tensor[2] = {{in, out, 4096}, {words, all, 2048}};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	moecomm_group *group = join_wide(rank);

	EXPECT_TRUE(group);
	/* every rank in an order of its own, so that no rank's data passes for another's */
	for (uint32_t i = 0; i < PATTERNS; i++)
		in[i] = (uint16_t)(i * (2u * (uint32_t)rank->rank + 1u));
	for (uint32_t i = 0; i < PATTERNS / 4; i++)
		words[i] = i < PATTERNS / 8 ? 0x80000000u
					    : special[(i + (uint32_t)rank->rank) % N_SPECIAL];
	args.tensors = tensor;
	args.rows = 32;
	for (args.n_tensors = 1; args.n_tensors <= 2; args.n_tensors++) {
		/* one tensor fills the row; two share it */
		tensor[0].row_bytes = args.n_tensors == 1 ? 4096 : 2048;
		EXPECT(moecomm_dispatch(group, &args, NULL), MOECOMM_OK);
		for (uint32_t r = 0; r < WORLD; r++) {
			uint32_t n = PATTERNS / (uint32_t)args.n_tensors;

			for (uint32_t i = 0; i < n; i++)
				EXPECT_TRUE(out[r * n + i] == (uint16_t)(i * (2u * r + 1u)));
			for (uint32_t i = 0; i < PATTERNS / 4 && args.n_tensors == 2; i++)
				EXPECT_TRUE(all[r * PATTERNS / 4 + i] ==
					    (i < PATTERNS / 8 ? 0x80000000u
							      : special[(i + r) % N_SPECIAL]));
		}
	}
	moecomm_group_leave(group);
	return 0;
}

static void test_dispatch(void **state)
{
	(void)state;
	assert_int_equal(run_processes("bits", WORLD, body_dispatch, NULL), 0);
}

/* ---- combine: the fp32 sum in rank order, rounded once ---- */

static uint32_t part(int rank, enum moecomm_dtype dtype, uint32_t i)
{
	uint32_t mixed = i * 2654435761u + (uint32_t)rank * 40503u;

	if (dtype != MOECOMM_FP32)
		return rank == 0 ? i & 0xffff : mixed >> (8 * (rank & 1)) & 0xffff;
	/* all pairs of special values, and a third in between */
	return rank == 0   ? special[i % N_SPECIAL]
	       : rank == 1 ? special[i / N_SPECIAL % N_SPECIAL]
			   : special[mixed >> 16 & 15];
}

static int body_combine(struct rank *rank)
{
	static uint8_t in[WORLD * PATTERNS * 4], out[PATTERNS * 4];

	for (int dtype = MOECOMM_BF16; dtype <= MOECOMM_FP32; dtype++) {
		struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;
		size_t size = dtype == MOECOMM_FP32 ? 4 : 2;
		struct rank mine = *rank;
		moecomm_group *group;
		char name[32];

		snprintf(name, sizeof(name), "sums-%d", dtype);
		mine.group = name;
		group = join_wide(&mine);
		EXPECT_TRUE(group);
		args.dtype = (enum moecomm_dtype)dtype;
		args.hidden = 1024;
		args.rows = 64;
		args.input = in;
		args.output = out;
		for (uint32_t i = 0; i < WORLD * PATTERNS; i++) {
			uint32_t bits = part(rank->rank, args.dtype, i % PATTERNS);

			memcpy(in + i * size, &bits, size);
		}
		EXPECT(moecomm_combine(group, &args, NULL), MOECOMM_OK);
		for (uint32_t i = 0; i < PATTERNS; i++) {
			/* volatile: every addition is rounded to fp32 by itself */
			volatile float sum =
				(float)ref_value((enum mc_dtype)dtype, part(0, args.dtype, i));

			for (int r = 1; r < WORLD; r++)
				sum = sum + (float)ref_value(
						    (enum mc_dtype)dtype, part(r, args.dtype, i));
			if (!ref_is_rounded((enum mc_dtype)dtype,
				    ref_bits((enum mc_dtype)dtype, out, i), sum)) {
				fprintf(stderr, "dtype %d, element %u: %#x + %#x + %#x is %#x\n",
					dtype, i, part(0, args.dtype, i), part(1, args.dtype, i),
					part(2, args.dtype, i),
					ref_bits((enum mc_dtype)dtype, out, i));
				return 1;
			}
		}
		moecomm_group_leave(group);
	}
	return 0;
}

static void test_combine(void **state)
{
	(void)state;
	assert_int_equal(run_processes("sums", WORLD, body_combine, NULL), 0);
}

/* ---- a row alone, and the same row among 256 ---- */

#define ROWS   256
#define HIDDEN 96

static int body_batch(struct rank *rank)
{
	static uint16_t in[WORLD * ROWS * HIDDEN], many[ROWS * HIDDEN], residual[ROWS * HIDDEN],
		many_res[ROWS * HIDDEN], gamma[HIDDEN], own[WORLD * HIDDEN], one[HIDDEN],
		one_res[HIDDEN];
	moecomm_group *group = join_wide(rank);

	EXPECT_TRUE(group);
	/* finite numbers of either sign within a few octaves of 1 */
	for (uint32_t i = 0; i < WORLD * ROWS * HIDDEN; i++)
		in[i] = (uint16_t)((0x3e00 +
					   ((i * 2654435761u + (uint32_t)rank->rank * 97u) >> 22)) |
				   (i * 40503u & 0x8000));
	for (uint32_t i = 0; i < ROWS * HIDDEN; i++)
		residual[i] = (uint16_t)(0x3f00 + (i * 2654435761u >> 24));
	for (uint32_t i = 0; i < HIDDEN; i++)
		gamma[i] = (uint16_t)(0x3f00 + i);
	for (int fused = 0; fused < 2; fused++) {
		struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;

		args.dtype = MOECOMM_BF16;
		args.hidden = HIDDEN;
		args.gamma = fused ? gamma : NULL;
		args.eps = fused ? 1e-5f : 0;
		args.rows = ROWS;
		args.input = in;
		args.output = many;
		args.residual = fused ? residual : NULL;
		args.residual_output = fused ? many_res : NULL;
		EXPECT((fused ? moecomm_combine_rmsnorm : moecomm_combine)(group, &args, NULL),
			MOECOMM_OK);
		args.rows = 1;
		args.input = own;
		args.output = one;
		args.residual_output = fused ? one_res : NULL;
		for (uint32_t row = 0; row < ROWS; row += 51) {
			for (uint32_t r = 0; r < WORLD; r++)
				memcpy(own + r * HIDDEN, in + (r * ROWS + row) * HIDDEN,
					HIDDEN * 2);
			args.residual = fused ? residual + row * HIDDEN : NULL;
			EXPECT((fused ? moecomm_combine_rmsnorm : moecomm_combine)(
				       group, &args, NULL),
				MOECOMM_OK);
			EXPECT_TRUE(!memcmp(one, many + row * HIDDEN, HIDDEN * 2));
			EXPECT_TRUE(
				!fused || !memcmp(one_res, many_res + row * HIDDEN, HIDDEN * 2));
		}
	}
	moecomm_group_leave(group);
	return 0;
}

static void test_batch(void **state)
{
	(void)state;
	assert_int_equal(run_processes("batch", WORLD, body_batch, NULL), 0);
}

/* ---- the sentinel's own value ---- */

/* The end of an arena is never used by small ops: it holds what arming put there. */
static int find_sentinel(uint8_t ret_sentinel[16])
{
	struct mapped arena[1];

	if (mapped_find("moecomm-arena", arena, 1) != 1)
		return -1;
	memcpy(ret_sentinel, arena[0].at + arena[0].n_bytes - 16, 16);
	return 0;
}

static int dispatch_16(moecomm_group *group, const void *in, enum moecomm_status *ret_status)
{
	static uint8_t out[WORLD * 4 * 16];
	struct moecomm_tensor tensor = {in, out, 16};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	int64_t begin = now_ms();

	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 4;
	*ret_status = moecomm_dispatch(group, &args, NULL);
	return now_ms() - begin < SOON_MS ? 0 : -1;
}

static int body_sentinel(struct rank *rank)
{
	uint8_t in[4][16] = {{1}, {2}, {3}, {4}}, sentinel[16], next[16];
	moecomm_group *group = join_wide(rank);
	enum moecomm_status status;

	EXPECT_TRUE(group);
	EXPECT_TRUE(dispatch_16(group, in, &status) == 0 && status == MOECOMM_OK);
	/* the failure of the next call must not meet a rank that is still in this one */
	pthread_barrier_wait(rank->data);
	EXPECT_TRUE(find_sentinel(sentinel) == 0);
	if (rank->rank == 1)
		memcpy(in[2], sentinel, 16);
	EXPECT_TRUE(dispatch_16(group, in, &status) == 0);
	EXPECT(status, MOECOMM_SENTINEL);
	EXPECT_TRUE(strstr(moecomm_last_error(), "sentinel"));
	/* and so it stays, until the next epoch, whose sentinel is another one */
	EXPECT_TRUE(dispatch_16(group, in, &status) == 0);
	EXPECT(status, MOECOMM_SENTINEL);
	EXPECT(moecomm_group_rejoin(group), MOECOMM_OK);
	EXPECT_TRUE(find_sentinel(next) == 0);
	EXPECT_TRUE(memcmp(next, sentinel, 16));
	EXPECT_TRUE(dispatch_16(group, in, &status) == 0);
	EXPECT(status, MOECOMM_OK);
	moecomm_group_leave(group);
	return 0;
}

static void test_sentinel(void **state)
{
	(void)state;
	assert_int_equal(run_processes("sentinel", WORLD, body_sentinel, ranks_barrier(WORLD)), 0);
}

/* ---- damaged control blocks ---- */

static const size_t damaged_at[] = {
	offsetof(struct mc_control, canary_head),
	offsetof(struct mc_control, epoch),
	offsetof(struct mc_control, sentinel) + 5,
	offsetof(struct mc_control, rank),
	offsetof(struct mc_control, world_size),
	offsetof(struct mc_control, check),
	offsetof(struct mc_control, channel[0].canary),
	offsetof(struct mc_control, channel[0].call),
	offsetof(struct mc_control, canary_tail) + 7,
};

static int body_damaged(struct rank *rank)
{
	uint8_t in[4][16] = {{1}, {2}, {3}, {4}};
	moecomm_group *group = join_wide(rank);
	enum moecomm_status status, wanted;
	struct mapped control[1];
	int failed = 0;

	EXPECT_TRUE(group);
	for (size_t i = 0; i < sizeof(damaged_at) / sizeof(damaged_at[0]); i++) {
		EXPECT_TRUE(dispatch_16(group, in, &status) == 0);
		EXPECT(status, MOECOMM_OK);
		pthread_barrier_wait(rank->data);
		if (rank->rank == 2) {
			EXPECT_TRUE(mapped_find("moecomm-control", control, 1) == 1);
			control[0].at[damaged_at[i]] ^= 0x40;
		}
		/* the rank itself reports it; the others end too, and hear of rank 2 */
		EXPECT_TRUE(dispatch_16(group, in, &status) == 0);
		/* a call number is its own witness: it no longer fits what the peers send */
		wanted = damaged_at[i] == offsetof(struct mc_control, channel[0].call)
				 ? MOECOMM_MISMATCH
				 : MOECOMM_CORRUPT;
		if (status != wanted ||
			(rank->rank != 2 && !strstr(moecomm_last_error(), "rank 2"))) {
			fprintf(stderr, "rank %d, damage at %zu: %s: %s\n", rank->rank,
				damaged_at[i], moecomm_status_name(status), moecomm_last_error());
			failed = 1;
		}
		EXPECT(moecomm_group_rejoin(group), MOECOMM_OK);
	}
	moecomm_group_leave(group);
	return failed;
}

static void test_damaged(void **state)
{
	(void)state;
	assert_int_equal(run_processes("damaged", WORLD, body_damaged, ranks_barrier(WORLD)), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dispatch),
		cmocka_unit_test(test_combine),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_sentinel),
		cmocka_unit_test(test_damaged),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, ranks_daemon_start, ranks_daemon_finish);
}
