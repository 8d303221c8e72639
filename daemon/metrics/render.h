/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's metrics as one text. */
#ifndef MC_DAEMON_METRICS_RENDER_H
#define MC_DAEMON_METRICS_RENDER_H

#include <stddef.h>

struct mc_daemon;

/*
 * Prometheus text exposition of everything, at most MC_METRICS_BYTES: groups that would not fit
 * have no series of their own and are counted as left out. Returns 0, or -ENOMEM; free() the text.
 */
#define MC_METRICS_BYTES (1000u << 10)
int mc_metrics_render(struct mc_daemon *daemon, char **ret_text, size_t *ret_bytes);

#endif
