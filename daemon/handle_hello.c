/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/handlers.h"
#include "proto/codec.h"
#include "proto/version.h"

void mc_handle_hello(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Hello *hello)
{
	Moecomm__Wire__Welcome welcome = MOECOMM__WIRE__WELCOME__INIT;
	struct mc_daemon *daemon = conn->daemon;
	char detail[256];
	int status;

	if (conn->said_hello) {
		mc_conn_done(
			conn, serial, MC_STATUS_PROTOCOL, "this connection has said hello already");
		return;
	}
	status = mc_version_check("client", hello->major, hello->minor, detail, sizeof(detail));
	if (status) {
		mc_conn_done(conn, serial, (uint32_t)status, "%s", detail);
		mc_conn_close_when_sent(conn);
		return;
	}
	conn->said_hello = true;
	uv_timer_stop(&conn->timer);
	if (hello->label && *hello->label) {
		snprintf(conn->label, sizeof(conn->label), "%s", hello->label);
		mc_codec_text_fit(conn->label, MC_LIMIT_LABEL_BYTES);
	}
	welcome.major = MC_PROTO_MAJOR;
	welcome.minor = MC_PROTO_MINOR;
	welcome.has_features = 1;
	welcome.features = mc_version_features(MC_PROTO_FEATURES, hello->features);
	welcome.version = (char *)mc_version_string();
	welcome.instance.data = daemon->instance;
	welcome.instance.len = sizeof(daemon->instance);
	welcome.backend = (char *)daemon->backend->name;
	welcome.boot_id = daemon->boot_id;
	mc_conn_send(conn, MC_FRAME_WELCOME, serial, &welcome.base, NULL, 0);
}
