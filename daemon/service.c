/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define PACE_MS 500

/* Returns 0 (also without a manager), or -errno; -EAGAIN when the manager does not read now. */
static int notify(struct mc_service *service, const char *text)
{
	ssize_t n;

	if (service->fd < 0)
		return 0;
	n = sendto(service->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
		(const struct sockaddr *)&service->address, service->n_address);
	return n < 0 ? -errno : 0;
}

static int open_socket(struct mc_service *service)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n;

	service->fd = -1;
	if (!path || (*path != '/' && *path != '@'))
		return 0;
	n = strlen(path);
	if (n >= sizeof(service->address.sun_path))
		return -ENAMETOOLONG;
	service->address.sun_family = AF_UNIX;
	memcpy(service->address.sun_path, path, n + 1);
	service->n_address =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*path == '/'));
	if (*path == '@')
		service->address.sun_path[0] = 0; /* abstract: its name is as long as it says */
	service->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return service->fd < 0 ? -errno : 0;
}

/* A ping from the loop itself: a loop that is blocked sends none and is restarted. */
static void on_watchdog(uv_timer_t *timer)
{
	notify(timer->data, "WATCHDOG=1");
}

static void settle(struct mc_service *service);

static void on_pace(uv_timer_t *timer)
{
	struct mc_service *service = timer->data;

	if (service->owes_ready || service->owes_status)
		settle(service);
}

/* Sends what is owed, as one message, so that whoever waited for READY reads the status of now;
 * what can't be sent now is tried again at the next pace. */
static void settle(struct mc_service *service)
{
	char text[sizeof(service->status) + 32];
	int n = 0;

	if (service->owes_status)
		n = snprintf(text, sizeof(text), "STATUS=%s\n", service->status);
	if (service->owes_ready)
		snprintf(text + n, sizeof(text) - (size_t)n, "READY=1");
	if ((service->owes_status || service->owes_ready) && notify(service, text) != -EAGAIN)
		service->owes_status = service->owes_ready = false;
	uv_timer_start(&service->pace, on_pace, PACE_MS, 0);
}

int mc_service_open(struct mc_service *service, uv_loop_t *loop)
{
	uint64_t interval_us = 0, half_ms;
	int r;

	memset(service, 0, sizeof(*service));
	r = open_socket(service);
	if (r)
		return r;
	uv_timer_init(loop, &service->watchdog);
	uv_timer_init(loop, &service->pace);
	service->watchdog.data = service->pace.data = service;
	service->is_open = true;
	r = sd_watchdog_enabled(0, &interval_us);
	if (r <= 0)
		return r;
	half_ms = interval_us / 2000;
	if (!half_ms)
		half_ms = 1;
	return uv_timer_start(&service->watchdog, on_watchdog, 0, half_ms);
}

void mc_service_close(struct mc_service *service)
{
	if (!service->is_open)
		return;
	service->is_open = false;
	uv_close((uv_handle_t *)&service->watchdog, NULL);
	uv_close((uv_handle_t *)&service->pace, NULL);
	if (service->fd >= 0)
		close(service->fd);
	service->fd = -1;
}

void mc_service_ready(struct mc_service *service)
{
	if (service->is_ready)
		return;
	service->is_ready = true;
	service->owes_ready = true;
	settle(service);
}

void mc_service_status(struct mc_service *service, const char *format, ...)
{
	char text[sizeof(service->status)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!service->is_open || service->fd < 0 || !strcmp(text, service->status))
		return;
	memcpy(service->status, text, sizeof(text));
	service->owes_status = true;
	/* groups come and go by the hundred in a second: the last state is what matters */
	if (!uv_is_active((uv_handle_t *)&service->pace))
		settle(service);
}

void mc_service_reloading(struct mc_service *service)
{
	struct timespec now;
	char text[80];

	clock_gettime(CLOCK_MONOTONIC, &now);
	/* the time stamp is what a manager that knows Type=notify-reload asks for */
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		(uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
	notify(service, text);
}

void mc_service_reloaded(struct mc_service *service)
{
	if (!service->is_ready)
		return;
	service->owes_ready = true;
	settle(service);
}

void mc_service_stopping(struct mc_service *service)
{
	if (service->is_open)
		notify(service, "STOPPING=1");
}
