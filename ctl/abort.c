/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl abort */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include "ctl/json.h"
#include "ctl/wire.h"
#include "proto/limits.h"

int mc_ctl_abort(const struct mc_ctl *ctl, int argc, char **argv)
{
	static const struct option options[] = {
		{"reason", required_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
	Moecomm__Wire__Abort request = MOECOMM__WIRE__ABORT__INIT;
	struct mc_ctl_wire *wire = NULL;
	int option, r;

	while ((option = getopt_long(argc, argv, "r:", options, NULL)) != -1) {
		if (option != 'r')
			return mc_ctl_usage("usage: abort GROUP [--reason TEXT]");
		request.reason = optarg;
	}
	if (argc - optind != 1)
		return mc_ctl_usage("abort needs one group");
	request.group = argv[optind];
	if (!*request.group || strlen(request.group) > MC_LIMIT_NAME_BYTES)
		return mc_ctl_usage("a group's name has 1 to %u bytes", MC_LIMIT_NAME_BYTES);
	if (request.reason && strlen(request.reason) > MC_LIMIT_DETAIL_BYTES)
		return mc_ctl_usage("a reason has at most %u bytes", MC_LIMIT_DETAIL_BYTES);
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_call(wire, MC_FRAME_ABORT, &request.base, MC_FRAME_DONE, NULL);
	mc_ctl_wire_close(wire);
	if (!r && ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_text(answer, "aborted", request.group);
		mc_json_print(answer);
	} else if (!r) {
		printf("aborted %s\n", request.group);
	}
	return r;
}
