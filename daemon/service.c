/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

/* A ping from the loop itself: a loop that is blocked sends none and is restarted. */
static void on_watchdog(uv_timer_t *timer)
{
	(void)timer;
	sd_notify(0, "WATCHDOG=1");
}

int mc_service_open(struct mc_service *service, uv_loop_t *loop)
{
	uint64_t interval_us = 0, half_ms;
	int r;

	memset(service, 0, sizeof(*service));
	r = sd_watchdog_enabled(0, &interval_us);
	if (r <= 0)
		return r;
	half_ms = interval_us / 2000;
	if (!half_ms)
		half_ms = 1;
	r = uv_timer_init(loop, &service->watchdog);
	if (r)
		return r;
	service->watchdog_open = true;
	return uv_timer_start(&service->watchdog, on_watchdog, 0, half_ms);
}

void mc_service_close(struct mc_service *service)
{
	if (service->watchdog_open)
		uv_close((uv_handle_t *)&service->watchdog, NULL);
	service->watchdog_open = false;
}

void mc_service_ready(struct mc_service *service)
{
	if (service->is_ready)
		return;
	service->is_ready = true;
	sd_notify(0, "READY=1");
}

void mc_service_status(struct mc_service *service, const char *format, ...)
{
	char text[sizeof(service->status)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!strcmp(text, service->status))
		return;
	memcpy(service->status, text, sizeof(text));
	sd_notifyf(0, "STATUS=%s", text);
}

void mc_service_reloading(struct mc_service *service)
{
	struct timespec now;

	(void)service;
	clock_gettime(CLOCK_MONOTONIC, &now);
	/* the time stamp is what a manager that knows Type=notify-reload asks for */
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		(uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
}

void mc_service_reloaded(struct mc_service *service)
{
	if (service->is_ready)
		sd_notify(0, "READY=1");
}

void mc_service_stopping(struct mc_service *service)
{
	(void)service;
	sd_notify(0, "STOPPING=1");
}
