/* SPDX-License-Identifier: Apache-2.0 */
/* The build without libmicrohttpd: asking for a port is told at the start. */
#include <errno.h>
#include <stdio.h>
#include "daemon/metrics/http.h"

int mc_metrics_http_open(struct mc_daemon *daemon, struct mc_metrics_http **ret_http,
	char *ret_error, size_t n_error)
{
	(void)daemon;
	(void)ret_http;
	snprintf(ret_error, n_error,
		"metrics_port is set, but this moecommd was built without libmicrohttpd: set it to "
		"0 and use moecommctl metrics");
	return -ENOTSUP;
}

struct mc_metrics_http *mc_metrics_http_close(struct mc_metrics_http *http)
{
	(void)http;
	return NULL;
}
