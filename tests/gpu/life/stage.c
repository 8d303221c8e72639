/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "gpu/life/stage.h"

struct stage stage = {.memory_slack_mib = 64};

double stage_ms(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e6;
}

void stage_expect_within(const char *what, double ms, double bound_ms)
{
	print_message("  %s: %.2f ms (bound %.0f)\n", what, ms, bound_ms);
	if (ms > bound_ms)
		fail_msg("%s: %.2f ms are more than %.0f", what, ms, bound_ms);
}

/* Runs moecommctl; returns its exit status and what it prints. */
int stage_ctl(const char *arguments, char **ret_out)
{
	char command[4096], *out = calloc(1, 65536);
	FILE *stream;
	int status;

	assert_non_null(out);
	snprintf(command, sizeof(command), "'%s/moecommctl' --socket '%s' %s 2>&1",
		getenv("MOECOMM_TEST_BIN"), stage.daemon.socket, arguments);
	stream = popen(command, "re");
	assert_non_null(stream);
	if (fread(out, 1, 65535, stream) == 0)
		out[0] = 0;
	status = pclose(stream);
	*ret_out = out;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

uint64_t stage_epoch(void)
{
	return atomic_load(&stage.life.view[0].epoch);
}

void stage_expect_blamed(int but, int rank, bool with_call)
{
	for (int r = 0; r < stage.life.world_size; r++) {
		if (r == but)
			continue;
		if (atomic_load(&stage.life.view[r].fault_rank) != rank ||
			(with_call && !atomic_load(&stage.life.view[r].fault_call)))
			fail_msg("rank %d blames rank %d at call %llu: %s", r,
				atomic_load(&stage.life.view[r].fault_rank),
				(unsigned long long)atomic_load(&stage.life.view[r].fault_call),
				stage.life.view[r].detail);
	}
}

void stage_kill_one(int victim)
{
	int64_t begun = life_now_ns();

	life_mark(&stage.life);
	life_kill(&stage.life, victim);
	life_expect_failed(&stage.life, victim, MOECOMM_PEER_LOST);
	stage_expect_blamed(victim, victim, false);
	stage_expect_within("SIGKILL to PEER_LOST on all survivors",
		stage_ms(begun, life_last_failed(&stage.life, victim)), STAGE_HEARD_MS);
}

void stage_replace(int victim, bool use_graph)
{
	life_start_one(&stage.life, victim, use_graph);
	for (int r = 0; r < stage.life.world_size; r++)
		if (r != victim)
			life_command(&stage.life, r, LIFE_REJOIN);
}

/* ---- the stage ---- */

int stage_open(void **state)
{
	(void)state;
	stage.memory_before = life_ask_self("--memory");
	mc_fd_store_open(&stage.store, 1000);
	mc_fd_store_start(
		&stage.store, &stage.daemon, &(struct mc_test_daemon_options){.backend = "cuda"});
	stage.life.socket = stage.daemon.socket;
	stage.n_daemon_fds = mc_test_count_fds(stage.daemon.pid);
	return 0;
}

int stage_close(void **state)
{
	(void)state;
	mc_test_daemon_finish(&stage.daemon);
	mc_fd_store_close(&stage.store);
	free(stage.memory_before);
	return 0;
}

/* After a case that failed, too. */
int stage_clear_ranks(void **state)
{
	char *log;

	(void)state;
	if (stage.life.view) {
		if (!stage.daemon.pid)
			mc_fd_store_restart(&stage.store, &stage.daemon);
		log = mc_test_daemon_log(&stage.daemon);
		print_message("log of moecommd:\n%s\n", log);
		free(log);
	}
	life_clear(&stage.life);
	return 0;
}
