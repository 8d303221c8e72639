/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thousand queries a second, groups made and destroyed, and random bytes at the socket, while a
 * group works: nothing crashes, no query is lost, and the ops go on as before.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "fault/health/ranks.h"
#include "support/wire_client.h"

#define N_QUERIES 5000
#define N_GROUPS  50

static struct mc_test_daemon daemon_;

/* Runs a body in a child: a failed assertion there is a failed exit here. */
static pid_t run(void (*body)(void))
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		body();
	_exit(0);
}

static void query(void)
{
	struct mc_wire_client client;
	uint64_t begin_ms = mc_test_now_ms(), took_ms;

	mc_wire_client_open(&client, daemon_.socket, "query");
	for (uint64_t i = 0; i < N_QUERIES; i++) {
		struct mc_wire_reply reply;
		uint64_t due_ms = begin_ms + i;

		mc_wire_status(&client, NULL, true, true, &reply);
		mc_wire_reply_clear(&reply);
		if (mc_test_now_ms() < due_ms)
			mc_test_sleep_ms((int)(due_ms - mc_test_now_ms()));
	}
	took_ms = mc_test_now_ms() - begin_ms;
	print_message("%d queries in %llu ms\n", N_QUERIES, (unsigned long long)took_ms);
	fflush(NULL);
	mc_wire_client_close(&client);
}

static void make_groups(void)
{
	for (int i = 0; i < N_GROUPS; i++) {
		struct mc_wire_client clients[2];
		struct mc_wire_layout layouts[2];
		char name[32];
		struct mc_wire_join join = {.group = name, .world_size = 2};

		snprintf(name, sizeof(name), "flood%d", i % 5);
		for (int r = 0; r < 2; r++)
			mc_wire_client_open(&clients[r], daemon_.socket, "maker");
		mc_wire_form(clients, layouts, &join);
		for (int r = 0; r < 2; r++) {
			/* by turns in order and by dropping the connection */
			if (i % 2) {
				mc_wire_leave(&clients[r], layouts[r].member_id);
				mc_wire_expect_done(&clients[r], MC_STATUS_OK, NULL, SOON_MS);
			}
			mc_wire_layout_clear(&layouts[r]);
		}
		for (int r = 0; r < 2; r++)
			mc_wire_client_close(&clients[r]);
		/* the name is free once the daemon has seen both go */
		mc_wire_client_open(&clients[0], daemon_.socket, "maker");
		mc_wire_wait_state(&clients[0], name, 0, SOON_MS);
		mc_wire_client_close(&clients[0]);
	}
}

static void send_noise(void)
{
	unsigned char bytes[4096];
	int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

	assert_true(random >= 0);
	for (int i = 0; i < 400; i++) {
		int fd = mc_wire_socket(daemon_.socket);
		ssize_t n = read(random, bytes, sizeof(bytes));

		assert_int_equal(n, sizeof(bytes));
		mc_wire_send_bytes(fd, bytes, (size_t)(1 + bytes[0] * 16));
		close(fd);
		mc_test_sleep_ms(10);
	}
	close(random);
}

static int exit_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void a_flood_of_queries_disturbs_nobody(void **state)
{
	uint64_t quiet_ns, loud_ns, rss_before, rss_after;
	uint32_t first, after;
	struct ranks ranks;
	size_t n_fds;
	pid_t pids[3];

	(void)state;
	ranks_start(&ranks, daemon_.socket, "calm", 2, NULL, 200);
	n_fds = mc_test_count_fds(daemon_.pid);
	quiet_ns = ranks_median_ns(&ranks, 0, 0);
	rss_before = mc_test_process_number(daemon_.pid, "VmRSS");
	first = ranks.report[0].n_calls;
	pids[0] = run(query);
	pids[1] = run(make_groups);
	pids[2] = run(send_noise);
	for (int i = 0; i < 3; i++)
		assert_int_equal(exit_of(pids[i]), 0);
	after = ranks.report[0].n_calls;
	loud_ns = ranks_median_ns(&ranks, 0, first);
	rss_after = mc_test_process_number(daemon_.pid, "VmRSS");
	print_message("median of an op: %.1f us before, %.1f us during; %u calls during; daemon "
		      "%llu -> %llu KiB\n",
		(double)quiet_ns / 1e3, (double)loud_ns / 1e3, after - first,
		(unsigned long long)rss_before, (unsigned long long)rss_after);
	assert_int_equal(ranks.report[0].status, 0);
	assert_int_equal(ranks.report[1].status, 0);
	assert_true(after - first > 100);
	/* ops never talk to the daemon; what is left is sharing two cores with three busy clients
	 */
	assert_true(loud_ns < 20 * quiet_ns + 20000000u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep freed memory */
	assert_true(rss_after < rss_before + 16384);
#endif
	mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
	ranks_end(&ranks);
}

static int set_up(void **state)
{
	(void)state;
	mc_test_daemon_start(&daemon_, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_flood_of_queries_disturbs_nobody, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
