/* SPDX-License-Identifier: Apache-2.0 */
/* The public header alone, first, as C99 and as C++11, with every initialiser used. */
#include "client/moecomm.h"

int use_header(void);
int use_header(void)
{
	struct moecomm_connect_options connect = MOECOMM_CONNECT_OPTIONS_INIT;
	struct moecomm_group_options group = MOECOMM_GROUP_OPTIONS_INIT;
	struct moecomm_dispatch_args dispatch = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_combine_args combine = MOECOMM_COMBINE_ARGS_INIT;

	return connect.size == sizeof(connect) && group.size == sizeof(group) &&
	       group.world_size == 1 && group.device == -1 && dispatch.size == sizeof(dispatch) &&
	       dispatch.ids_tensor == -1 && combine.size == sizeof(combine) &&
	       combine.dtype == MOECOMM_BF16;
}
