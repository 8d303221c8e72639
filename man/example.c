/* SPDX-License-Identifier: Apache-2.0 */
/* The example of moecomm(3): one rank of two. */
#include <moecomm.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 2, ROWS = 4, HIDDEN = 8 };

static enum moecomm_status layer(moecomm_group *group)
{
	static float mine[ROWS][HIDDEN], all[RANKS * ROWS][HIDDEN];
	struct moecomm_tensor tensor = {mine, all, sizeof(mine[0])};
	struct moecomm_dispatch_args d = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_combine_args c = MOECOMM_COMBINE_ARGS_INIT;
	enum moecomm_status status;

	d.tensors = &tensor;
	d.n_tensors = 1;
	d.rows = ROWS;
	status = moecomm_dispatch(group, &d, NULL);
	if (status)
		return status;
	/* here the rank's own experts would work on all[] */
	c.dtype = MOECOMM_FP32;
	c.hidden = HIDDEN;
	c.rows = ROWS;
	c.input = all;
	c.output = mine;
	return moecomm_combine(group, &c, NULL);
}

int main(int argc, char **argv)
{
	struct moecomm_group_options o = MOECOMM_GROUP_OPTIONS_INIT;
	moecomm_context *context = NULL;
	moecomm_group *group = NULL;
	enum moecomm_status status;

	o.name = "example";
	o.rank = argc > 1 ? atoi(argv[1]) : 0;
	o.world_size = RANKS;
	o.max_rows = ROWS;
	o.dispatch_row_bytes = o.combine_row_bytes = HIDDEN * sizeof(float);
	status = moecomm_connect(NULL, &context);
	if (!status)
		status = moecomm_group_join(context, &o, &group);
	if (!status)
		status = layer(group);
	if (status)
		fprintf(stderr, "%s: %s\n", moecomm_status_name(status), moecomm_last_error());
	else
		printf("rank %d: ok\n", o.rank);
	moecomm_group_leave(group);
	moecomm_disconnect(context);
	return status != MOECOMM_OK;
}
