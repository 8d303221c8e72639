/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics over HTTP, for Prometheus: libmicrohttpd without threads, its epoll fd watched by
 * the loop. Off unless metrics_port is set; without the library, setting it is an error.
 */
#ifndef MC_DAEMON_METRICS_HTTP_H
#define MC_DAEMON_METRICS_HTTP_H

#include <stddef.h>

struct mc_daemon;
struct mc_metrics_http;

/* Listens where the configuration says. Returns 0, or -errno with a line in ret_error. */
int mc_metrics_http_open(struct mc_daemon *daemon, struct mc_metrics_http **ret_http,
	char *ret_error, size_t n_error);
/* NULL is allowed. Returns NULL; the memory goes when the loop has closed the handles. */
struct mc_metrics_http *mc_metrics_http_close(struct mc_metrics_http *http);

#endif
