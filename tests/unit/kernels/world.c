/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN_LIMIT_MS 60000u

void world_make(struct world *world, uint32_t n, const struct world_options *options)
{
	struct mc_layout_spec spec = {
		.world_size = n,
		.n_channels = options->n_channels ? options->n_channels : 1,
		.max_rows = options->max_rows,
		.dispatch_row_bytes = options->dispatch_row_bytes,
		.combine_row_bytes = options->combine_row_bytes,
	};
	struct mc_wait_line wait = options->wait;
	uint64_t epoch = options->epoch ? options->epoch : 7;
	uint8_t *at;
	int fd;

	memset(world, 0, sizeof(*world));
	world->n = n;
	world->run_limit_ms = RUN_LIMIT_MS;
	world->sentinel = (struct mc_vector){{0x9e3779b9u, 0x7f4a7c15u, 0xf39cc060u, 0x5cedc834u}};
	assert_int_equal(mc_layout_make(&spec, &world->layout), 0);
	world->map_bytes = MC_BOARD_BYTES + n * (WORLD_CONTROL_BYTES + world->layout.arena_bytes) +
			   4096u + WORLD_RESULT_BYTES;
	fd = memfd_create("world", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)world->map_bytes), 0);
	world->map = mmap(NULL, world->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(world->map != MAP_FAILED);
	close(fd);
	at = world->map;
	if (wait.op_timeout_ms == 0)
		wait = (struct mc_wait_line){
			.op_timeout_ms = 20000, .warmup_timeout_ms = 20000, .warmup_calls = 16};
	world->board = (struct mc_board *)at;
	mc_host_board_init(world->board, n, epoch, &wait);
	at += MC_BOARD_BYTES;
	for (uint32_t r = 0; r < n; r++, at += WORLD_CONTROL_BYTES) {
		world->rank[r] = (struct mc_host_rank){
			.rank = r,
			.layout = world->layout,
			.control = (struct mc_control *)at,
			.board = world->board,
		};
		mc_host_control_init(world->rank[r].control, r, n, epoch, &world->sentinel);
		for (uint32_t i = 0; i < MC_CUDA_TURNS; i++)
			((struct mc_cuda_turn *)(at + MC_CUDA_TURNS_OFFSET))[i].call = 1;
	}
	for (uint32_t a = 0; a < n; a++, at += world->layout.arena_bytes) {
		mc_host_fill(at, world->layout.arena_bytes, &world->sentinel);
		for (uint32_t r = 0; r < n; r++)
			world->rank[r].arena[a] = at;
	}
	world->n_failed = (uint32_t *)at;
	world->n_met = world->n_failed + 1;
	world->results = at + 4096;
}

void world_free(struct world *world)
{
	munmap(world->map, world->map_bytes);
	memset(world, 0, sizeof(*world));
}

struct job {
	struct world *world;
	uint32_t rank;
	world_fn fn;
	void *data;
};

static void *run_job(void *data)
{
	struct job *job = data;

	job->fn(job->world, job->rank, job->data);
	return NULL;
}

static void run_threads(struct job *job, uint32_t n)
{
	pthread_t thread[MC_MAX_WORLD_SIZE];
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += (time_t)(job[0].world->run_limit_ms / 1000);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, run_job, &job[i]), 0);
	for (uint32_t i = 0; i < n; i++)
		if (pthread_timedjoin_np(thread[i], NULL, &limit) != 0) {
			fprintf(stderr, "rank %u hangs\n", job[i].rank);
			_exit(1); /* its thread can't be ended */
		}
}

static void run_processes(struct job *job, uint32_t n)
{
	pid_t pid[MC_MAX_WORLD_SIZE];
	uint64_t limit_ms = world_now_ms() + job[0].world->run_limit_ms;
	uint32_t n_left = n;

	fflush(NULL);
	for (uint32_t i = 0; i < n; i++) {
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (pid[i] == 0) {
			run_job(&job[i]);
			fflush(NULL);
			_exit(0);
		}
	}
	while (n_left > 0) {
		bool late = world_now_ms() > limit_ms;

		for (uint32_t i = 0; i < n; i++) {
			int status;

			if (pid[i] == 0)
				continue;
			if (late) {
				kill(pid[i], SIGKILL);
				WORLD_CHECK(job[i].world, !"the rank hangs");
			}
			if (waitpid(pid[i], &status, late ? 0 : WNOHANG) != pid[i])
				continue;
			WORLD_CHECK(job[i].world, WIFEXITED(status) && WEXITSTATUS(status) == 0);
			pid[i] = 0;
			n_left--;
		}
		if (n_left > 0)
			usleep(2000);
	}
}

void world_run_ranks(
	struct world *world, enum world_mode mode, uint64_t mask, world_fn fn, void *data)
{
	struct job job[MC_MAX_WORLD_SIZE];
	uint32_t n = 0;

	for (uint32_t r = 0; r < world->n; r++)
		if (mask >> r & 1)
			job[n++] = (struct job){world, r, fn, data};
	if (mode == WORLD_THREADS)
		run_threads(job, n);
	else
		run_processes(job, n);
	assert_int_equal(*world->n_failed, 0);
}

void world_run(struct world *world, enum world_mode mode, world_fn fn, void *data)
{
	world_run_ranks(world, mode, UINT64_MAX, fn, data);
}

void world_meet(struct world *world)
{
	const uint32_t before = __atomic_fetch_add(world->n_met, 1, __ATOMIC_ACQ_REL);
	const uint32_t all = (before / world->n + 1) * world->n;

	while (__atomic_load_n(world->n_met, __ATOMIC_ACQUIRE) < all)
		usleep(100);
}

bool world_check(struct world *world, bool ok, const char *what, const char *file, int line)
{
	if (!ok && __atomic_fetch_add(world->n_failed, 1, __ATOMIC_RELAXED) < 10)
		fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
	return ok;
}

uint64_t world_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t world_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

int world_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = -1; /* the directory's own */

	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}
