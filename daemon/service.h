/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager's side: READY, STATUS, STOPPING, RELOADING and watchdog pings. */
#ifndef MC_DAEMON_SERVICE_H
#define MC_DAEMON_SERVICE_H

#include <stdbool.h>
#include <uv.h>

struct mc_service {
	uv_timer_t watchdog;
	bool watchdog_open;
	bool is_ready;
	char status[160]; /* last one sent */
};

/* Starts watchdog pings at half the interval that the manager asks for, if it asks. 0 or -errno. */
int mc_service_open(struct mc_service *service, uv_loop_t *loop);
void mc_service_close(struct mc_service *service);

/* Really serving. Sends READY once. */
void mc_service_ready(struct mc_service *service);
/* One line for `systemctl status`; sent when it differs from the last. */
void mc_service_status(struct mc_service *service, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void mc_service_reloading(struct mc_service *service);
void mc_service_reloaded(struct mc_service *service);
void mc_service_stopping(struct mc_service *service);

#endif
