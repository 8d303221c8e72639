/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the cuda backend in the real daemon, over the fake driver: memory, status, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/lamport.h"
#include "support/daemon_process.h"
#include "support/wire_client.h"

#define SOON_MS      5000
#define BACKEND_CUDA 2u
#define UUID_0       "GPU-00000000-0000-0000-0000-000000000000"
#define UUID_1       "GPU-00000000-0000-0000-0000-000000000001"

static struct mc_test_daemon daemon_process;
static char library_path[4096];

static void start(const char *fault, const char *config)
{
	static const char *env[4];
	struct mc_test_daemon_options options = {.backend = "cuda", .env = env, .config = config};

	snprintf(library_path, sizeof(library_path), "LD_LIBRARY_PATH=%s",
		getenv("MOECOMM_FAKE_CUDA"));
	env[0] = library_path;
	env[1] = fault;
	mc_test_daemon_start(&daemon_process, &options);
}

/* Rank r of 2 on fake GPU r. */
static void join(struct mc_wire_client *client, uint32_t rank)
{
	struct mc_wire_join wire = {.group = "ep0",
		.rank = rank,
		.world_size = 2,
		.backend = BACKEND_CUDA,
		.device_uuid = rank ? UUID_1 : UUID_0,
		.max_rows = 64,
		.combine_row_bytes = 7168 * 2};

	mc_wire_join(client, &wire);
}

static void open_two(struct mc_wire_client clients[2])
{
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_client_open(&clients[r], daemon_process.socket, r ? "one" : "zero");
}

static void close_two(struct mc_wire_client clients[2])
{
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_client_close(&clients[r]);
}

static void assert_on_gpu(int fd, uint32_t gpu)
{
	char link[64], target[256], wanted[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, target, sizeof(target) - 1);
	assert_true(n > 0);
	target[n] = 0;
	snprintf(wanted, sizeof(wanted), "fake-gpu-%u", gpu);
	assert_non_null(strstr(target, wanted));
}

static void assert_memory(const struct mc_wire_layout *layout, uint32_t rank)
{
	struct mc_control *control;

	/* rounded up to what a GPU allocates */
	assert_int_equal(layout->arena_bytes % (2u << 20), 0);
	assert_on_gpu(layout->control_fd, rank);
	control = mmap(NULL, MC_CONTROL_BYTES, PROT_READ, MAP_SHARED, layout->control_fd, 0);
	assert_true(control != MAP_FAILED);
	assert_int_equal(control->rank, rank);
	assert_int_equal(control->epoch, layout->epoch);
	assert_memory_equal(&control->sentinel, layout->sentinel, 16);
	munmap(control, MC_CONTROL_BYTES);
	for (uint32_t r = 0; r < 2; r++) {
		const uint8_t *arena = mmap(
			NULL, layout->arena_bytes, PROT_READ, MAP_SHARED, layout->arena_fd[r], 0);

		assert_on_gpu(layout->arena_fd[r], r);
		assert_true(arena != MAP_FAILED);
		for (uint64_t i = 0; i < layout->arena_bytes; i += 16)
			assert_memory_equal(arena + i, layout->sentinel, 16);
		munmap((void *)arena, layout->arena_bytes);
	}
}

/* What status says of the two GPUs. */
static void assert_gpus(struct mc_wire_client *client, uint64_t arena_bytes, size_t n_holders)
{
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status = mc_wire_status(client, NULL, false, false, &reply);

	assert_string_equal(status->backend, "cuda");
	assert_int_equal(status->n_gpus, 2);
	assert_string_equal(status->gpus[1]->uuid, UUID_1);
	assert_string_equal(status->gpus[1]->name, "Fake GPU 1");
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(status->gpus[i]->arena_bytes, arena_bytes);
		assert_int_equal(status->gpus[i]->n_holder_pid, n_holders);
		if (n_holders)
			assert_int_equal(status->gpus[i]->holder_pid[0], getpid());
	}
	mc_wire_reply_clear(&reply);
}

static void forms_over_two_gpus(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	uint64_t epochs[3];

	(void)state;
	start(NULL, NULL);
	open_two(clients);
	assert_gpus(&clients[0], 0, 0);
	for (int round = 0; round < 3; round++) {
		join(&clients[0], 0);
		join(&clients[1], 1);
		for (uint32_t r = 0; r < 2; r++) {
			mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
			assert_memory(&layouts[r], r);
		}
		for (uint32_t r = 0; r < 2; r++)
			mc_wire_vote_yes(&clients[r], layouts[r].member_id);
		for (uint32_t r = 0; r < 2; r++)
			epochs[round] = mc_wire_expect_ready(&clients[r], SOON_MS);
		assert_gpus(&clients[0], layouts[0].arena_bytes, 1);
		for (uint32_t r = 0; r < 2; r++) {
			mc_wire_layout_clear(&layouts[r]);
			mc_wire_leave(&clients[r], layouts[r].member_id);
			mc_wire_expect_done(&clients[r], MC_STATUS_OK, NULL, SOON_MS);
		}
		assert_gpus(&clients[0], 0, 0);
	}
	assert_true(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
	close_two(clients);
	mc_test_daemon_finish(&daemon_process);
}

static void failure_reaches_all_ranks(void **state)
{
	struct mc_wire_client clients[2];

	(void)state;
	start("FAKE_CUDA_FAIL=cuMemCreate:4:2", NULL);
	mc_test_daemon_expect_error(&daemon_process, "arming epoch");
	open_two(clients);
	/* and leaves nothing in the way of the next try */
	for (int round = 0; round < 3; round++) {
		join(&clients[0], 0);
		join(&clients[1], 1);
		for (uint32_t r = 0; r < 2; r++)
			mc_wire_expect_done(&clients[r], MC_STATUS_NO_MEMORY,
				"arena of rank 1 on " UUID_1, SOON_MS);
		assert_gpus(&clients[0], 0, 0);
	}
	close_two(clients);
	mc_test_daemon_finish(&daemon_process);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void hung_driver_stops_nobody_else(void **state)
{
	struct mc_wire_client clients[2], other;
	struct mc_wire_join host = {.group = "other", .world_size = 1, .backend = 1};
	struct mc_wire_layout layout;
	uint64_t t0, t1;

	(void)state;
	start("FAKE_CUDA_HANG=cuMemCreate", "[groups]\narm_timeout_ms = 1500\n");
	mc_test_daemon_expect_error(&daemon_process, "arming epoch");
	open_two(clients);
	mc_wire_client_open(&other, daemon_process.socket, "other");
	t0 = now_ms();
	join(&clients[0], 0);
	join(&clients[1], 1);
	mc_wire_wait_state(&other, "ep0", MC_GROUP_ARMING, SOON_MS);
	t1 = now_ms();
	mc_wire_form(&other, &layout, &host);
	/* the hung one ends after 1500 */
	assert_in_range(now_ms() - t1, 0, 1300);
	mc_wire_layout_clear(&layout);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_done(
			&clients[r], MC_STATUS_DEVICE, "did not answer within 1500 ms", SOON_MS);
	assert_in_range(now_ms() - t0, 1400, 8000);
	close_two(clients);
	mc_wire_client_close(&other);
	mc_test_daemon_finish(&daemon_process);
}

static int child_of(pid_t pid)
{
	char path[64];
	FILE *file;
	int child = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &child) != 1)
		child = 0;
	fclose(file);
	return child;
}

static void member_that_goes_ends_the_arming(void **state)
{
	struct mc_wire_client clients[2];
	uint64_t end;

	(void)state;
	start("FAKE_CUDA_HANG=cuMemCreate", NULL);
	open_two(clients);
	join(&clients[0], 0);
	join(&clients[1], 1);
	mc_wire_wait_state(&clients[0], "ep0", MC_GROUP_ARMING, SOON_MS);
	assert_true(child_of(daemon_process.pid) > 0);
	mc_wire_client_close(&clients[1]);
	mc_wire_expect_done(&clients[0], MC_STATUS_PEER_LOST, NULL, SOON_MS);
	for (end = now_ms() + SOON_MS; child_of(daemon_process.pid) && now_ms() < end;)
		usleep(1000);
	assert_int_equal(child_of(daemon_process.pid), 0);
	mc_wire_client_close(&clients[0]);
	mc_test_daemon_finish(&daemon_process);
}

/* Who comes while auto is not settled waits for what it will be, and is told nothing else. */
static void auto_is_settled_before_anybody_is_greeted(void **state)
{
	static const char *env[4] = {library_path, "FAKE_CUDA_SLOW=cuInit:1:3000"};
	struct mc_test_daemon_options options = {
		.backend = "auto", .env = env, .do_not_wait = true};
	struct mc_wire_client client;
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status;
	uint64_t begin = now_ms();

	(void)state;
	snprintf(library_path, sizeof(library_path), "LD_LIBRARY_PATH=%s",
		getenv("MOECOMM_FAKE_CUDA"));
	mc_test_daemon_start(&daemon_process, &options);
	while (!mc_wire_can_connect(daemon_process.socket)) {
		assert_true(now_ms() - begin < SOON_MS);
		usleep(1000);
	}
	/* it can connect long before */
	assert_in_range(now_ms() - begin, 0, 2900);
	mc_wire_client_open(&client, daemon_process.socket, "early");
	assert_in_range(now_ms() - begin, 2950, SOON_MS);
	status = mc_wire_status(&client, NULL, false, false, &reply);
	assert_string_equal(status->backend, "cuda");
	mc_wire_reply_clear(&reply);
	mc_wire_client_close(&client);
	mc_test_daemon_wait_notify(&daemon_process, "READY=1", SOON_MS);
	mc_test_daemon_finish(&daemon_process);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms_over_two_gpus),
		cmocka_unit_test(failure_reaches_all_ranks),
		cmocka_unit_test(hung_driver_stops_nobody_else),
		cmocka_unit_test(member_that_goes_ends_the_arming),
		cmocka_unit_test(auto_is_settled_before_anybody_is_greeted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
