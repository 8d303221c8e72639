/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl metrics */
#include <stdio.h>
#include "ctl/json.h"
#include "ctl/wire.h"
#include "proto/codec.h"

int mc_ctl_metrics(const struct mc_ctl *ctl, int argc, char **argv)
{
	Moecomm__Wire__MetricsRequest request = MOECOMM__WIRE__METRICS_REQUEST__INIT;
	struct mc_ctl_wire *wire = NULL;
	ProtobufCMessage *reply = NULL;
	int r = mc_ctl_no_arguments(argc, argv);

	if (r)
		return r;
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_call(
			wire, MC_FRAME_METRICS_REQUEST, &request.base, MC_FRAME_METRICS, &reply);
	if (!r && ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_text(answer, "exposition", ((Moecomm__Wire__Metrics *)reply)->text);
		mc_json_print(answer);
	} else if (!r) {
		fputs(((Moecomm__Wire__Metrics *)reply)->text, stdout);
	}
	mc_codec_free(reply);
	mc_ctl_wire_close(wire);
	return r;
}
