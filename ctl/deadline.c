/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl deadline */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ctl/json.h"
#include "ctl/wire.h"
#include "proto/limits.h"

static bool parse(const char *text, unsigned long max, uint32_t *ret_value)
{
	unsigned long value;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || value < 1 || value > max)
		return false;
	*ret_value = (uint32_t)value;
	return true;
}

int mc_ctl_deadline(const struct mc_ctl *ctl, int argc, char **argv)
{
	static const struct option options[] = {{"op-ms", required_argument, NULL, 'o'},
		{"warmup-ms", required_argument, NULL, 'w'},
		{"warmup-calls", required_argument, NULL, 'c'}, {NULL, 0, NULL, 0}};
	Moecomm__Wire__SetDeadlines request = MOECOMM__WIRE__SET_DEADLINES__INIT;
	struct mc_ctl_wire *wire = NULL;
	int option, r;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'o':
			request.has_op_timeout_ms = 1;
			if (!parse(optarg, MC_LIMIT_TIMEOUT_MS, &request.op_timeout_ms))
				return mc_ctl_usage("--op-ms takes 1 to %u", MC_LIMIT_TIMEOUT_MS);
			break;
		case 'w':
			request.has_warmup_timeout_ms = 1;
			if (!parse(optarg, MC_LIMIT_TIMEOUT_MS, &request.warmup_timeout_ms))
				return mc_ctl_usage(
					"--warmup-ms takes 1 to %u", MC_LIMIT_TIMEOUT_MS);
			break;
		case 'c':
			request.has_warmup_calls = 1;
			if (!parse(optarg, UINT32_MAX, &request.warmup_calls))
				return mc_ctl_usage("--warmup-calls takes 1 to %u", UINT32_MAX);
			break;
		default:
			return mc_ctl_usage("usage: deadline GROUP [--op-ms N] [--warmup-ms N] "
					    "[--warmup-calls N]");
		}
	}
	if (argc - optind != 1)
		return mc_ctl_usage("deadline needs one group");
	if (!request.has_op_timeout_ms && !request.has_warmup_timeout_ms &&
		!request.has_warmup_calls)
		return mc_ctl_usage("deadline needs --op-ms, --warmup-ms or --warmup-calls");
	request.group = argv[optind];
	if (!*request.group || strlen(request.group) > MC_LIMIT_NAME_BYTES)
		return mc_ctl_usage("a group's name has 1 to %u bytes", MC_LIMIT_NAME_BYTES);
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_call(
			wire, MC_FRAME_SET_DEADLINES, &request.base, MC_FRAME_DONE, NULL);
	mc_ctl_wire_close(wire);
	if (!r && ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_text(answer, "group", request.group);
		if (request.has_op_timeout_ms)
			mc_json_number(answer, "op_timeout_ms", request.op_timeout_ms);
		if (request.has_warmup_timeout_ms)
			mc_json_number(answer, "warmup_timeout_ms", request.warmup_timeout_ms);
		if (request.has_warmup_calls)
			mc_json_number(answer, "warmup_calls", request.warmup_calls);
		mc_json_print(answer);
	} else if (!r) {
		printf("the deadlines of %s are changed; 'moecommctl groups -v %s' shows them\n",
			request.group, request.group);
	}
	return r;
}
