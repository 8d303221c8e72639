/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl release */
#include <stdio.h>
#include <string.h>
#include "ctl/json.h"
#include "ctl/wire.h"
#include "proto/limits.h"

int mc_ctl_release(const struct mc_ctl *ctl, int argc, char **argv)
{
	Moecomm__Wire__Release request = MOECOMM__WIRE__RELEASE__INIT;
	struct mc_ctl_wire *wire = NULL;
	int r;

	if (argc != 2)
		return mc_ctl_usage("release needs one GPU's UUID (nvidia-smi -L lists them)");
	request.device_uuid = argv[1];
	if (!*argv[1] || strlen(argv[1]) > MC_LIMIT_UUID_BYTES)
		return mc_ctl_usage("a UUID has 1 to %u bytes", MC_LIMIT_UUID_BYTES);
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_call(wire, MC_FRAME_RELEASE, &request.base, MC_FRAME_DONE, NULL);
	mc_ctl_wire_close(wire);
	if (!r && ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_text(answer, "released", request.device_uuid);
		mc_json_print(answer);
	} else if (!r) {
		printf("released %s: the daemon holds nothing of it, and neither does a member\n",
			request.device_uuid);
	}
	return r;
}
