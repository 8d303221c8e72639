/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <utlist.h>
#include "daemon/backends/choose.h"
#include "daemon/backends/cuda/cuda.h"
#include "daemon/conn.h"
#include "daemon/groups/group.h"
#include "daemon/inject.h"
#include "daemon/log.h"
#include "daemon/metrics/http.h"
#include "daemon/server.h"
#include "proto/version.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
/* How often a backend that can't serve is asked again. */
#define READY_EVERY_MS 500

#define FAIL(code, ...) (snprintf(ret_error, n_error, __VA_ARGS__), (code))

void mc_daemon_update_status(struct mc_daemon *daemon)
{
	if (daemon->stopping || !daemon->server || !daemon->groups)
		return;
	if (daemon->not_ready)
		mc_service_status(&daemon->service, "not ready: %s", daemon->not_ready);
	else
		mc_service_status(&daemon->service,
			"serving %u groups (%u ready) and %u clients, backend %s",
			HASH_COUNT(daemon->groups->by_name), daemon->groups->n_ready,
			daemon->n_conns, daemon->backend->name);
}

static int read_boot_id(struct mc_daemon *daemon, char *ret_error, size_t n_error)
{
	FILE *file = fopen(BOOT_ID_FILE, "re");
	char *line;

	if (!file)
		return FAIL(-errno, "cannot read " BOOT_ID_FILE ": %s", strerror(errno));
	line = fgets(daemon->boot_id, sizeof(daemon->boot_id), file);
	fclose(file);
	if (!line)
		return FAIL(-EIO, "cannot read " BOOT_ID_FILE);
	daemon->boot_id[strcspn(daemon->boot_id, "\n")] = 0;
	return 0;
}

/* Each group costs fds (an arena and a control block a rank): the soft limit is for programs that
 * select(). */
static void raise_fd_limit(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			mc_log(LOG_WARNING, "cannot raise the limit of open files: %s",
				strerror(errno));
	}
}

static bool wants_cuda(const struct mc_daemon *daemon)
{
	return daemon->config.backend != MC_BACKEND_CHOICE_HOST;
}

static void on_ready_timer(uv_timer_t *timer);

/* Settles what AUTO means as soon as it is known, and tells when the daemon really serves. */
static void check_ready(struct mc_daemon *daemon)
{
	const char *was = daemon->not_ready, *reason = "";
	bool is_known = !wants_cuda(daemon) || mc_cuda_known();

	if (daemon->stopping)
		return;
	if (is_known && !daemon->service.is_ready)
		daemon->backend = mc_backend_choose(daemon->config.backend);
	/* with auto, whoever is greeted before could take a daemon of GPUs for one without; the
	 * look ends by its own deadline */
	if (is_known || daemon->config.backend != MC_BACKEND_CHOICE_AUTO)
		mc_server_accept(daemon->server);
	if (!is_known)
		daemon->not_ready = "looking for GPUs";
	else if (daemon->backend->ready(&reason))
		daemon->not_ready = NULL;
	else
		daemon->not_ready = reason;
	if (daemon->not_ready) {
		if (is_known && (!was || strcmp(daemon->logged_reason, daemon->not_ready))) {
			snprintf(daemon->logged_reason, sizeof(daemon->logged_reason), "%s",
				daemon->not_ready);
			mc_log(LOG_WARNING, "not ready: %s", daemon->not_ready);
		}
	} else if (!daemon->service.is_ready) {
		mc_log(LOG_INFO, "serving at %s with backend %s", daemon->config.socket,
			daemon->backend->name);
		mc_daemon_update_status(daemon);
		mc_service_ready(&daemon->service);
		/* settled for this run: looking on would only wake an idle daemon */
		if (daemon->backend == &mc_daemon_backend_host && daemon->cuda_started) {
			daemon->cuda_started = false;
			mc_cuda_stop();
		}
	} else if (was) {
		mc_log(LOG_INFO, "ready again: backend %s can serve", daemon->backend->name);
	}
	/* asked again only while it can't serve, so that an idle daemon sleeps */
	if (daemon->not_ready)
		uv_timer_start(&daemon->ready_timer, on_ready_timer, READY_EVERY_MS, 0);
	mc_daemon_update_status(daemon);
}

static void on_ready_timer(uv_timer_t *timer)
{
	check_ready(timer->data);
}

static void on_cuda_changed(void *data)
{
	check_ready(data);
}

/* ---- signals ---- */

static void on_terminate(uv_signal_t *signal, int number)
{
	mc_log(LOG_INFO, "stopping on signal %d", number);
	mc_daemon_stop(signal->data);
}

static void on_reload(uv_signal_t *signal, int number)
{
	struct mc_daemon *daemon = signal->data;
	struct mc_config config;
	char error[512], now[128], then[128];

	(void)number;
	mc_service_reloading(&daemon->service);
	if (mc_config_load(&daemon->overrides, &config, error, sizeof(error))) {
		mc_log(LOG_ERR, "the configuration was not reloaded: %s", error);
		mc_service_reloaded(&daemon->service);
		return;
	}
	for (size_t i = 0; i < mc_n_settings; i++) {
		const struct mc_setting *setting = &mc_settings[i];

		mc_setting_format(setting, &daemon->config, now, sizeof(now));
		mc_setting_format(setting, &config, then, sizeof(then));
		if (!strcmp(now, then))
			continue;
		if (!setting->reloads) {
			mc_log(LOG_WARNING,
				"%s stays %s: %s takes effect when the daemon is restarted",
				setting->name, now, then);
			continue;
		}
		mc_setting_parse(setting, then, &daemon->config, error, sizeof(error));
		mc_log(LOG_INFO, "%s is now %s", setting->name, then);
	}
	mc_log_set_level((int)daemon->config.log_level);
	mc_groups_retime_tick(daemon->groups);
	mc_log(LOG_INFO, "the configuration was reloaded");
	mc_service_reloaded(&daemon->service);
}

/* ---- life ---- */

int mc_daemon_init(struct mc_daemon *daemon, uv_loop_t *loop, const struct mc_config *config,
	const struct mc_config_overrides *overrides, char *ret_error, size_t n_error)
{
	int r;

	memset(daemon, 0, sizeof(*daemon));
	daemon->loop = loop;
	daemon->config = *config;
	daemon->overrides = *overrides;
	daemon->backend = &mc_daemon_backend_host;
	daemon->start_ms = mc_now_ms();
	if (getrandom(daemon->instance, sizeof(daemon->instance), 0) !=
		(ssize_t)sizeof(daemon->instance))
		return FAIL(-EIO, "cannot draw random bytes");
	r = read_boot_id(daemon, ret_error, n_error);
	if (r)
		return r;
	daemon->quota = mc_quota_new(&daemon->config);
	daemon->groups = mc_groups_new(daemon);
	if (!daemon->quota || !daemon->groups)
		return FAIL(-ENOMEM, "out of memory");
	uv_idle_init(loop, &daemon->reaper);
	uv_timer_init(loop, &daemon->ready_timer);
	uv_signal_init(loop, &daemon->sigterm);
	uv_signal_init(loop, &daemon->sigint);
	uv_signal_init(loop, &daemon->sighup);
	daemon->reaper.data = daemon->ready_timer.data = daemon;
	daemon->sigterm.data = daemon->sigint.data = daemon->sighup.data = daemon;
	daemon->handles_open = true;
	return 0;
}

int mc_daemon_serve(struct mc_daemon *daemon, char *ret_error, size_t n_error)
{
	struct mc_cuda_options cuda = {.helper_path = daemon->config.arm_helper,
		.changed = on_cuda_changed,
		.data = daemon};
	int r;

	raise_fd_limit();
	/* before READY can make a manager send one */
	signal(SIGPIPE, SIG_IGN);
	uv_signal_start(&daemon->sigterm, on_terminate, SIGTERM);
	uv_signal_start(&daemon->sigint, on_terminate, SIGINT);
	uv_signal_start(&daemon->sighup, on_reload, SIGHUP);
	r = mc_service_open(&daemon->service, daemon->loop);
	if (r)
		return FAIL(r, "cannot start the watchdog's timer: %s", strerror(-r));
	mc_inject_block_on_signal();
	/* before anybody can connect, and ask for what is not back yet */
	mc_state_open(daemon);
	r = mc_server_open(daemon, &daemon->server, ret_error, n_error);
	if (r)
		return r;
	if (daemon->config.metrics_port)
		r = mc_metrics_http_open(daemon, &daemon->metrics_http, ret_error, n_error);
	if (r)
		return r;
	if (wants_cuda(daemon)) {
		r = mc_cuda_start(daemon->loop, &cuda);
		if (r)
			return FAIL(r, "cannot start looking for GPUs: %s", strerror(-r));
		daemon->cuda_started = true;
	}
	check_ready(daemon);
	return 0;
}

void mc_daemon_stop(struct mc_daemon *daemon)
{
	struct mc_conn *conn, *next;

	if (daemon->stopping)
		return;
	if (daemon->state.handles_open)
		mc_state_save(&daemon->state);
	daemon->stopping = true;
	mc_service_stopping(&daemon->service);
	daemon->server = mc_server_close(daemon->server);
	daemon->metrics_http = mc_metrics_http_close(daemon->metrics_http);
	if (daemon->cuda_started)
		mc_cuda_stop();
	if (daemon->groups)
		mc_groups_shut(daemon->groups);
	DL_FOREACH_SAFE (daemon->conns, conn, next)
		mc_conn_close(conn);
	mc_state_close(daemon);
	mc_service_close(&daemon->service);
	if (daemon->handles_open) {
		uv_close((uv_handle_t *)&daemon->reaper, NULL);
		uv_close((uv_handle_t *)&daemon->ready_timer, NULL);
		uv_close((uv_handle_t *)&daemon->sigterm, NULL);
		uv_close((uv_handle_t *)&daemon->sigint, NULL);
		uv_close((uv_handle_t *)&daemon->sighup, NULL);
	}
	daemon->handles_open = false;
}

void mc_daemon_clear(struct mc_daemon *daemon)
{
	daemon->groups = mc_groups_free(daemon->groups);
	daemon->quota = mc_quota_free(daemon->quota);
}
