/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/soak/daemons.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/soak/flood.h"
#include "fault/soak/groups.h"
#include "fault/soak/plan.h"
#include "fault/soak/soak.h"
#include "support/daemon_process.h"
#include "support/fd_store.h"

#define SETTLE_US     INT64_C(800000)
#define HOLD_LIMIT_US INT64_C(10000000)
/* What the allocator may keep: the full queue of a client that never reads (4 MiB) and its copies,
 * scratch memory, and what differs from run to run. */
#define RSS_SLACK_KIB 10240
#define SHUT_US       INT64_C(5000000)

/* The stand-in of the fd store is a thread, and the thread sanitizer loses count of threads when a
 * process that has some forks. */
#ifdef __SANITIZE_THREAD__
static const bool with_store = false;
#else
static const bool with_store = true;
#endif
static struct mc_fd_store store;
static struct mc_test_daemon process;
static struct plan plan;
static struct plan_daemon_event event;
static int64_t next_us, until_us, up_us;
static uint32_t serial;
static pid_t flooder;
static struct soak_holdings baseline;

static void plan_next(void)
{
	event = plan_next_daemon_event(&plan);
	next_us = soak_now_us() + event.wait_ms * INT64_C(1000);
}

void daemons_start(void)
{
	if (with_store) {
		mc_fd_store_open(&store, MC_TEST_STORE_FDS);
		mc_fd_store_start(&store, &process, NULL);
	} else {
		mc_test_daemon_start(&process, NULL);
	}
	snprintf(soak->socket, sizeof(soak->socket), "%s", process.socket);
	plan = plan_new(soak->seed, 50);
	up_us = soak_now_us();
	plan_next();
}

void daemons_take_baseline(void)
{
	soak_holdings_take(process.pid, &baseline);
}

static void check_alive(void)
{
	int status;

	if (process.pid > 0 && waitpid(process.pid, &status, WNOHANG) == process.pid) {
		soak_problem("the daemon ended on its own: wait status %#x", (unsigned)status);
		process.pid = 0;
		serial++;
		until_us = soak_now_us();
	}
}

static void take_down(void)
{
	int64_t begin_us = soak_now_us();

	serial++;
	if (event.kind != PLAN_DAEMON_TERM) {
		mc_test_daemon_kill(&process);
		if (with_store && event.kind == PLAN_DAEMON_FORGET)
			mc_fd_store_clear(&store);
	} else {
		mc_test_daemon_stop(&process);
		soak_account_add(
			plan_daemon_kind_name(event.kind), "has ended", soak_now_us() - begin_us);
	}
	groups_hold(false);
	until_us = soak_now_us() + event.hold_ms * INT64_C(1000);
}

static void bring_up(void)
{
	int64_t begin_us = soak_now_us();

	if (with_store)
		mc_fd_store_restart(&store, &process);
	else
		mc_test_daemon_restart(&process);
	up_us = soak_now_us();
	soak_account_add(plan_daemon_kind_name(event.kind), "serves again", up_us - begin_us);
	plan_next();
}

static void take_flooder(void)
{
	int status;

	if (flooder <= 0 || waitpid(flooder, &status, WNOHANG) != flooder)
		return;
	flooder = 0;
	soak_account_add(plan_daemon_kind_name(event.kind),
		WIFEXITED(status) && WEXITSTATUS(status) == FLOOD_CUT_OFF ? "cut off" : "endured",
		soak_now_us() - next_us);
	plan_next();
}

void daemons_step(bool quiet)
{
	int64_t now_us = soak_now_us();
	char text[1024];

	/* what it tells a service manager that nobody plays must not pile up */
	while (!with_store && mc_test_daemon_next_notify(&process, text, sizeof(text), 0))
		;
	check_alive();
	take_flooder();
	if (process.pid <= 0) {
		if (now_us >= until_us || quiet)
			bring_up();
		return;
	}
	if (soak->calm || quiet || flooder > 0 || now_us < next_us) {
		if (quiet)
			groups_hold(false);
		return;
	}
	if (event.kind > PLAN_DAEMON_FORGET) {
		next_us = now_us;
		flooder = flood_start(event.kind, event.hold_ms);
		return;
	}
	/* a death that the daemon has not told yet is for the next one to tell: not what is tried
	 */
	groups_hold(now_us < next_us + HOLD_LIMIT_US);
	if (!groups_hurt())
		take_down();
}

bool daemons_calm(void)
{
	return process.pid > 0 && flooder <= 0;
}

static bool back_at_baseline(struct soak_holdings *ret_now)
{
	soak_holdings_take(process.pid, ret_now);
	return ret_now->n_fds <= baseline.n_fds && ret_now->n_maps <= baseline.n_maps;
}

void daemons_finish(void)
{
	int64_t give_up_us = soak_now_us() + SHUT_US;
	struct soak_holdings now;

	/* it learns of the last disconnects in its own time */
	while (!back_at_baseline(&now) && soak_now_us() < give_up_us)
		usleep(10000);
	printf("daemon: %d fds, %d memfd mappings, %ld KiB at the start; %d, %d, %ld KiB at the "
	       "end; %u restarts\n",
		baseline.n_fds, baseline.n_maps, baseline.rss_kib, now.n_fds, now.n_maps,
		now.rss_kib, serial);
	if (now.n_fds > baseline.n_fds || now.n_maps > baseline.n_maps)
		soak_problem("the daemon has %d fds and %d memfd mappings left, not %d and %d",
			now.n_fds, now.n_maps, baseline.n_fds, baseline.n_maps);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (now.rss_kib > baseline.rss_kib + RSS_SLACK_KIB)
		soak_problem(
			"the daemon has grown from %ld to %ld KiB", baseline.rss_kib, now.rss_kib);
#endif
	atomic_store(&soak->resident_may_go, true);
	if (!atomic_load(&soak->n_problems))
		mc_test_daemon_finish(&process);
	else if (process.pid > 0)
		mc_test_daemon_kill(&process);
	if (with_store)
		mc_fd_store_close(&store);
}

uint32_t daemons_serial(void)
{
	return serial;
}

bool daemons_settled(void)
{
	return process.pid > 0 && soak_now_us() - up_us > SETTLE_US;
}

bool daemons_flooded(void)
{
	return flooder > 0;
}

pid_t daemons_abort(uint32_t group)
{
	char path[4096], name[16];
	int null_fd;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/moecommctl", getenv("MOECOMM_TEST_BIN"));
	snprintf(name, sizeof(name), "g%u", group);
	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	null_fd = open("/dev/null", O_WRONLY);
	if (null_fd >= 0)
		dup2(null_fd, STDOUT_FILENO);
	execl(path, "moecommctl", "--socket", soak->socket, "abort", name, (char *)NULL);
	_exit(127);
}

void daemons_print_log(void)
{
	char *log = mc_test_daemon_log(&process), *at = log + strlen(log);

	for (int n = 0; at > log && n < 60; at--)
		n += at[-1] == '\n';
	printf("the end of the daemon's log, %s:\n%s\n", process.log_path, at);
	free(log);
}
