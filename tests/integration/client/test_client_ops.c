/* SPDX-License-Identifier: Apache-2.0 */
/* Joins and ops under the real daemon, with ranks as threads and as processes. */
#include "integration/client/harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "integration/client/leak.h"
#include "integration/client/ranks.h"

/* ---- right results at every world size ---- */

struct work {
	int rounds;
	unsigned seed;
};

static int body_rounds(struct rank *rank)
{
	const struct work *work = rank->data;
	moecomm_group *group = rank_join(rank);
	int r = 0;

	if (!group)
		return 1;
	for (int i = 0; i < work->rounds && r == 0; i++)
		r = check_round(group, rank->rank, rank->world_size, work->seed, i, -1);
	if (r > 0)
		fprintf(stderr, "rank %d: %s\n", rank->rank, moecomm_last_error());
	moecomm_group_leave(group);
	return r;
}

static void test_world_sizes(void **state)
{
	static const int sizes[] = {1, 2, 3, 4, 5, 8};
	struct leak before;

	(void)state;
	leak_take(&before);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct work work = {.rounds = 400 / sizes[i], .seed = (unsigned)sizes[i]};

		assert_int_equal(run_threads("threads", sizes[i], body_rounds, &work), 0);
		assert_int_equal(run_processes("processes", sizes[i], body_rounds, &work), 0);
	}
	leak_check(&before);
}

/* ---- two groups of the same shape at once ---- */

struct two {
	const char *name;
	struct work work;
	int n_failed;
};

static void *run_group(void *data)
{
	struct two *two = data;

	two->n_failed = run_threads(two->name, 2, body_rounds, &two->work);
	return NULL;
}

static void test_two_groups(void **state)
{
	struct two two[2] = {{"one", {300, 1}, -1}, {"two", {300, 2}, -1}};
	pthread_t thread[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, run_group, &two[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(two[0].n_failed, 0);
	assert_int_equal(two[1].n_failed, 0);
}

static int body_other_job(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, 0, 1);
	moecomm_group *mine = NULL, *other = NULL;

	o.job = "first";
	EXPECT(moecomm_group_join(rank->context, &o, &mine), MOECOMM_OK);
	o.job = "second";
	EXPECT(moecomm_group_join(rank->context, &o, &other), MOECOMM_IN_USE);
	EXPECT_TRUE(strstr(moecomm_last_error(), "first"));
	/* the holder never notices */
	EXPECT(check_round(mine, 0, 1, 3, 1, 0), MOECOMM_OK);
	moecomm_group_leave(mine);
	EXPECT(moecomm_group_join(rank->context, &o, &other), MOECOMM_OK);
	moecomm_group_leave(other);
	return 0;
}

static void test_name_taken(void **state)
{
	(void)state;
	assert_int_equal(run_processes("taken", 1, body_other_job, NULL), 0);
}

/* ---- will it fit ---- */

static int fit_dispatch(struct rank *rank, moecomm_group *group, int64_t bytes, int n_tensors)
{
	static _Thread_local uint8_t in[8192], out[2 * 8192];
	int64_t capacity = moecomm_group_capacity(group, bytes * n_tensors);
	struct moecomm_tensor tensor[8];
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	for (int t = 0; t < n_tensors; t++)
		tensor[t] = (struct moecomm_tensor){
			in + t * (8192 / n_tensors), out + t * (2 * 8192 / n_tensors), bytes};
	args.tensors = tensor;
	args.n_tensors = n_tensors;
	/* every row count there is, and what lies beyond */
	for (args.rows = 0; args.rows <= capacity + 2; args.rows++) {
		EXPECT(moecomm_dispatch(group, &args, NULL),
			args.rows <= capacity ? MOECOMM_OK : MOECOMM_TOO_LARGE);
		EXPECT_TRUE((moecomm_group_path(group, args.rows, bytes * n_tensors) ==
				    MOECOMM_PATH_LAMPORT) == (args.rows <= capacity));
	}
	return 0;
}

static int fit_combine(struct rank *rank, moecomm_group *group, int64_t hidden)
{
	static _Thread_local float in[2 * 2048], out[2048];
	int64_t capacity = moecomm_group_capacity(group, hidden * 4);
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;

	args.dtype = MOECOMM_FP32;
	args.hidden = hidden;
	args.input = in;
	args.output = out;
	for (args.rows = 0; args.rows <= capacity + 2; args.rows++)
		EXPECT(moecomm_combine(group, &args, NULL),
			args.rows <= capacity ? MOECOMM_OK : MOECOMM_TOO_LARGE);
	return 0;
}

static int body_fit(struct rank *rank)
{
	static const int64_t sizes[] = {1, 15, 16, 17, 100, 255, 256, 257, 1000, 4000};
	static const int64_t hidden[] = {1, 3, 4, 16, 63, 64, 65, 250, 1000};
	moecomm_group *group = rank_join(rank);

	if (!group)
		return 1;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		if (fit_dispatch(rank, group, sizes[s], 1))
			return 1;
	for (int64_t bytes = 1; bytes <= 60; bytes += 7)
		if (fit_dispatch(rank, group, bytes, 8))
			return 1;
	for (size_t s = 0; s < sizeof(hidden) / sizeof(hidden[0]); s++)
		if (fit_combine(rank, group, hidden[s]))
			return 1;
	moecomm_group_leave(group);
	return 0;
}

static void test_fit(void **state)
{
	(void)state;
	assert_int_equal(run_threads("fit", 2, body_fit, NULL), 0);
}

/* ---- differing specs ---- */

struct differs {
	const char *field;
	void (*change)(struct moecomm_group_options *);
};
static void change_rows(struct moecomm_group_options *o)
{
	o->max_rows++;
}
static void change_dispatch(struct moecomm_group_options *o)
{
	o->dispatch_row_bytes += 16;
}
static void change_channels(struct moecomm_group_options *o)
{
	o->n_channels++;
}
static void change_path(struct moecomm_group_options *o)
{
	o->path = MOECOMM_PATH_LAMPORT;
}
static void change_world(struct moecomm_group_options *o)
{
	o->world_size++;
}
static void change_warmup(struct moecomm_group_options *o)
{
	o->warmup_calls = 99;
}

static int body_differs(struct rank *rank)
{
	const struct differs *differs = rank->data;
	struct moecomm_group_options o = test_options(rank->group, rank->rank, 2);
	moecomm_group *group = NULL;

	if (rank->rank == 1)
		differs->change(&o);
	EXPECT(moecomm_group_join(rank->context, &o, &group), MOECOMM_SPEC_MISMATCH);
	EXPECT_TRUE(strstr(moecomm_last_error(), differs->field));
	EXPECT_TRUE(strstr(moecomm_last_error(), "rank 0"));
	EXPECT_TRUE(strstr(moecomm_last_error(), "rank 1"));
	return 0;
}

static void test_differing_specs(void **state)
{
	static struct differs cases[] = {{"max_rows", change_rows},
		{"dispatch_row_bytes", change_dispatch}, {"n_channels", change_channels},
		{"path", change_path}, {"world_size", change_world},
		{"warmup_calls", change_warmup}};
	char name[32];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(name, sizeof(name), "differs-%zu", i);
		assert_int_equal(run_threads(name, 2, body_differs, &cases[i]), 0);
	}
}

/* ---- a late rank, a missing rank ---- */

static int body_late(struct rank *rank)
{
	moecomm_group *group = rank_join(rank);

	if (!group)
		return 1;
	if (rank->rank == 1)
		sleep(5);
	for (int i = 0; i < 50; i++)
		EXPECT(check_round(group, rank->rank, rank->world_size, 21, i, -1), MOECOMM_OK);
	moecomm_group_leave(group);
	return 0;
}

static void test_late_first_op(void **state)
{
	(void)state;
	assert_int_equal(run_processes("late", 3, body_late, NULL), 0);
}

static int body_missing(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, rank->rank, 3);
	moecomm_group *group = NULL;
	int64_t begin = now_ms();

	o.join_timeout_ms = 300;
	EXPECT(moecomm_group_join(rank->context, &o, &group), MOECOMM_JOIN_TIMEOUT);
	EXPECT_TRUE(now_ms() - begin >= 250 && now_ms() - begin < 3000);
	EXPECT_TRUE(strstr(moecomm_last_error(), "rank 2"));
	return 0;
}

static void test_missing_rank(void **state)
{
	(void)state;
	assert_int_equal(run_threads("missing", 2, body_missing, NULL), 0);
}

/* ---- several threads on one group ---- */

struct shared {
	moecomm_group *group[2];
	atomic_int ok, busy, other;
	atomic_bool done;
};

struct caller {
	struct shared *shared;
	int rank, channel, n;
	pthread_t thread;
};

static enum moecomm_status small_dispatch(moecomm_group *group, int channel)
{
	uint32_t in[4] = {1, 2, 3, 4}, out[8];
	struct moecomm_tensor tensor = {in, out, sizeof(in)};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	args.channel = channel;
	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 1;
	return moecomm_dispatch(group, &args, NULL);
}

/* Attempts until n ops of the rank have gone through, from all of its threads together. */
static void *attempt(void *data)
{
	struct caller *caller = data;
	struct shared *shared = caller->shared;

	for (int i = 0; i < caller->n; i++) {
		enum moecomm_status status =
			small_dispatch(shared->group[caller->rank], caller->channel);

		if (status == MOECOMM_OK)
			atomic_fetch_add(&shared->ok, 1);
		else if (status == MOECOMM_BUSY)
			atomic_fetch_add(&shared->busy, 1);
		else
			atomic_fetch_add(&shared->other, 1);
	}
	return NULL;
}

static void join_two(struct shared *shared, moecomm_context *context, const char *name);

/* The peer follows as long as there is something to follow. */
static void *follow(void *data)
{
	struct caller *caller = data;
	struct shared *shared = caller->shared;

	while (!atomic_load(&shared->done))
		if (small_dispatch(shared->group[caller->rank], caller->channel) != MOECOMM_OK)
			break;
	return NULL;
}

static void *join_one(void *data)
{
	struct rank *rank = data;

	rank->data = rank_join(rank);
	return NULL;
}

static void join_two(struct shared *shared, moecomm_context *context, const char *name)
{
	struct rank rank[2];
	pthread_t thread[2];

	for (int r = 0; r < 2; r++) {
		rank[r] = (struct rank){name, r, 2, NULL, context};
		pthread_create(&thread[r], NULL, join_one, &rank[r]);
	}
	for (int r = 0; r < 2; r++) {
		pthread_join(thread[r], NULL);
		shared->group[r] = rank[r].data;
		assert_non_null(shared->group[r]);
	}
}

static void test_busy(void **state)
{
	moecomm_context *context = test_connect(test_socket());
	struct shared shared = {.ok = 0};
	struct caller caller[3];

	(void)state;
	join_two(&shared, context, "busy");
	for (int i = 0; i < 2; i++) {
		caller[i] = (struct caller){.shared = &shared, .rank = 0, .n = 5000};
		pthread_create(&caller[i].thread, NULL, attempt, &caller[i]);
	}
	caller[2] = (struct caller){.shared = &shared, .rank = 1};
	pthread_create(&caller[2].thread, NULL, follow, &caller[2]);
	pthread_join(caller[0].thread, NULL);
	pthread_join(caller[1].thread, NULL);
	assert_int_equal(atomic_load(&shared.other), 0);
	assert_int_equal(atomic_load(&shared.ok) + atomic_load(&shared.busy), 10000);
	assert_true(atomic_load(&shared.ok) > 0);
	/* the follower waits in a call that nobody will join: leaving ends it */
	atomic_store(&shared.done, true);
	moecomm_group_abort(shared.group[0], "done");
	pthread_join(caller[2].thread, NULL);
	moecomm_disconnect(context);
}

static void test_two_channels(void **state)
{
	moecomm_context *context = test_connect(test_socket());
	struct shared shared = {.ok = 0};
	struct caller caller[4];

	(void)state;
	join_two(&shared, context, "channels");
	for (int i = 0; i < 4; i++) {
		caller[i] = (struct caller){
			.shared = &shared, .rank = i / 2, .channel = i % 2, .n = 2000};
		pthread_create(&caller[i].thread, NULL, attempt, &caller[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(caller[i].thread, NULL);
	assert_int_equal(atomic_load(&shared.ok), 8000);
	moecomm_disconnect(context);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_world_sizes),
		cmocka_unit_test(test_two_groups),
		cmocka_unit_test(test_name_taken),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_differing_specs),
		cmocka_unit_test(test_late_first_op),
		cmocka_unit_test(test_missing_rank),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_two_channels),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, ranks_daemon_start, ranks_daemon_finish);
}
