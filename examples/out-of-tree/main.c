/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks, as threads of one process: each sends its rows to both, and adds up what comes back.
 */
#include <moecomm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS  2
#define ROWS   4
#define HIDDEN 8

static moecomm_context *context;

static void check(enum moecomm_status status, const char *what)
{
	if (status == MOECOMM_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, moecomm_status_name(status), moecomm_last_error());
	exit(1);
}

static void *run_rank(void *data)
{
	int rank = *(const int *)data;
	struct moecomm_group_options options = MOECOMM_GROUP_OPTIONS_INIT;
	struct moecomm_dispatch_args dispatch = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_combine_args combine = MOECOMM_COMBINE_ARGS_INIT;
	float mine[ROWS][HIDDEN], all[RANKS * ROWS][HIDDEN], sum[ROWS][HIDDEN];
	struct moecomm_tensor tensor = {mine, all, sizeof(mine[0])};
	moecomm_group *group;

	options.name = "out-of-tree";
	options.rank = rank;
	options.world_size = RANKS;
	options.max_rows = ROWS;
	options.dispatch_row_bytes = options.combine_row_bytes = sizeof(mine[0]);
	check(moecomm_group_join(context, &options, &group), "join");

	for (int row = 0; row < ROWS; row++)
		for (int i = 0; i < HIDDEN; i++)
			mine[row][i] = (float)(rank * 100 + row * 10 + i);
	dispatch.tensors = &tensor;
	dispatch.n_tensors = 1;
	dispatch.rows = ROWS;
	check(moecomm_dispatch(group, &dispatch, NULL), "dispatch");

	/* the "experts" of both ranks return what they got: each row comes back RANKS times */
	combine.dtype = MOECOMM_FP32;
	combine.hidden = HIDDEN;
	combine.input = all;
	combine.output = sum;
	combine.rows = ROWS;
	check(moecomm_combine(group, &combine, NULL), "combine");
	for (int row = 0; row < ROWS; row++)
		for (int i = 0; i < HIDDEN; i++)
			if (sum[row][i] != RANKS * mine[row][i]) {
				fprintf(stderr, "rank %d: wrong sum\n", rank);
				exit(1);
			}
	moecomm_group_leave(group);
	return NULL;
}

int main(void)
{
	struct moecomm_connect_options options = MOECOMM_CONNECT_OPTIONS_INIT;
	pthread_t thread[RANKS];
	int rank[RANKS];

	options.wait_ms = 10000;
	check(moecomm_connect(&options, &context), "connect");
	for (int r = 0; r < RANKS; r++) {
		rank[r] = r;
		if (pthread_create(&thread[r], NULL, run_rank, &rank[r]))
			return 1;
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(thread[r], NULL);
	moecomm_disconnect(context);
	printf("moecomm %s: right on %d ranks\n", moecomm_version(), RANKS);
	return 0;
}
