/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl version; of itself also without a daemon, so that is no failure here. */
#include <stdio.h>
#include "ctl/json.h"
#include "ctl/wire.h"
#include "proto/limits.h"
#include "proto/version.h"

static void print_json(const struct mc_ctl_wire *wire, const char *problem)
{
	struct json_object *answer = mc_json_new(), *daemon = NULL;

	mc_json_text(answer, "version", mc_version_string());
	mc_json_number(answer, "protocol_major", MC_PROTO_MAJOR);
	mc_json_number(answer, "protocol_minor", MC_PROTO_MINOR);
	if (wire) {
		const Moecomm__Wire__Welcome *welcome = mc_ctl_wire_welcome(wire);

		daemon = mc_json_object();
		mc_json_text(daemon, "version", welcome->version);
		mc_json_number(daemon, "protocol_major", welcome->major);
		mc_json_number(daemon, "protocol_minor", welcome->minor);
		mc_json_text(daemon, "backend", welcome->backend);
		mc_json_text(daemon, "socket", mc_ctl_wire_path(wire));
	}
	mc_json_add(answer, "daemon", daemon);
	mc_json_text(answer, "problem", wire ? NULL : problem);
	mc_json_print(answer);
}

int mc_ctl_version(const struct mc_ctl *ctl, int argc, char **argv)
{
	struct mc_ctl_wire *wire = NULL;
	char problem[2048] = "";
	int r = mc_ctl_no_arguments(argc, argv);

	if (r)
		return r;
	if (mc_ctl_wire_try(ctl, &wire, problem, sizeof(problem)) == MC_CTL_USAGE)
		return mc_ctl_usage("%s", problem);
	if (ctl->json) {
		print_json(wire, problem);
	} else {
		printf("moecommctl %s, protocol %u.%u\n", mc_version_string(), MC_PROTO_MAJOR,
			MC_PROTO_MINOR);
		if (wire) {
			const Moecomm__Wire__Welcome *welcome = mc_ctl_wire_welcome(wire);

			printf("moecommd   %s, protocol %u.%u, at %s\n",
				welcome->version ? welcome->version : "?", welcome->major,
				welcome->minor, mc_ctl_wire_path(wire));
		} else {
			printf("moecommd   %s\n", problem);
		}
	}
	mc_ctl_wire_close(wire);
	return MC_CTL_OK;
}
