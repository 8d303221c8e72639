/* SPDX-License-Identifier: Apache-2.0 */
/* MetricsRequest: the same text as over HTTP, for hosts where nothing listens on a port. */
#include <stdlib.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/handlers.h"
#include "daemon/metrics/render.h"

_Static_assert(MC_METRICS_BYTES + 64u <= MC_LIMIT_REPLY_BYTES, "the text fits a reply");

void mc_handle_metrics(struct mc_conn *conn, uint32_t serial)
{
	Moecomm__Wire__Metrics metrics = MOECOMM__WIRE__METRICS__INIT;
	size_t n;

	if (mc_metrics_render(conn->daemon, &metrics.text, &n)) {
		mc_conn_done(conn, serial, MC_STATUS_NO_MEMORY, "the daemon is out of memory");
		return;
	}
	mc_conn_send(conn, MC_FRAME_METRICS, serial, &metrics.base, NULL, 0);
	free(metrics.text);
}
