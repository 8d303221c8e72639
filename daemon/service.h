/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's side: READY, STATUS, STOPPING, RELOADING and watchdog pings.
 *
 * Sent without blocking, which sd_notify can't: a manager that does not read must not stop the
 * loop. READY and STATUS are tried again; a lost ping is followed by the next.
 */
#ifndef MC_DAEMON_SERVICE_H
#define MC_DAEMON_SERVICE_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

struct mc_service {
	int fd; /* -1: no manager */
	struct sockaddr_un address;
	socklen_t n_address;
	uv_timer_t watchdog;
	uv_timer_t
		pace; /* runs while a STATUS was sent lately, or something has to be sent again */
	bool is_open;
	bool is_ready;
	bool owes_ready, owes_status;
	char status[160];
};

/* Starts watchdog pings at half the interval that the manager asks for, if it asks. 0 or -errno. */
int mc_service_open(struct mc_service *service, uv_loop_t *loop);
void mc_service_close(struct mc_service *service);

/* Really serving. Sends READY once. */
void mc_service_ready(struct mc_service *service);
/* One line for `systemctl status`; sent when it differs from the last, twice a second at most. */
void mc_service_status(struct mc_service *service, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void mc_service_reloading(struct mc_service *service);
void mc_service_reloaded(struct mc_service *service);
void mc_service_stopping(struct mc_service *service);

#endif
