/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients and groups that start in the same moment: nobody sees another group's data, nobody waits
 * for a lock or leaves a file, and what a rank finds on its side of the machine decides nothing.
 */
#include "integration/client/harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "integration/client/mapped.h"
#include "integration/client/ranks.h"

/* ---- two groups of equal shape ---- */

#define STARTS 12
#define ROWS   16
#define WORDS  32 /* 64-bit words of a row */

static uint64_t word(int group, int start, int call, int rank, int i)
{
	return UINT64_C(0xa5) << 56 | (uint64_t)group << 48 | (uint64_t)start << 40 |
	       (uint64_t)call << 24 | (uint64_t)rank << 16 | (uint64_t)i;
}

/* Whether anything of the other group lies in the memory that this process has mapped of its own.
 */
static int has_word_of(int other)
{
	struct mapped arena[8];
	size_t n = mapped_find("moecomm-arena", arena, 8);

	for (size_t a = 0; a < n; a++)
		for (size_t at = 0; at + 8 <= arena[a].n_bytes; at += 8) {
			uint64_t found;

			memcpy(&found, arena[a].at + at, 8);
			if (found >> 48 == (UINT64_C(0xa5) << 8 | (uint64_t)other))
				return 1;
		}
	return n == 0;
}

/* Ranks 0 and 1 are group 0's, 2 and 3 group 1's. */
static int body_apart(struct rank *rank)
{
	static uint64_t in[ROWS * WORDS], out[2 * ROWS * WORDS];
	int which = rank->rank / 2;
	struct rank mine = {which ? "right" : "left", rank->rank % 2, 2, NULL, rank->context};

	for (int start = 0; start < STARTS; start++) {
		struct moecomm_tensor tensor = {in, out, WORDS * 8};
		struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
		moecomm_group *group;

		pthread_barrier_wait(rank->data);
		group = rank_join(&mine);
		EXPECT_TRUE(group);
		args.tensors = &tensor;
		args.n_tensors = 1;
		args.rows = ROWS;
		for (int call = 0; call < 40; call++) {
			for (int i = 0; i < ROWS * WORDS; i++)
				in[i] = word(which, start, call, mine.rank, i);
			EXPECT(moecomm_dispatch(group, &args, NULL), MOECOMM_OK);
			for (int r = 0; r < 2; r++)
				for (int i = 0; i < ROWS * WORDS; i++)
					EXPECT_TRUE(out[r * ROWS * WORDS + i] ==
						    word(which, start, call, r, i));
		}
		EXPECT_TRUE(!has_word_of(1 - which));
		moecomm_group_leave(group);
	}
	return 0;
}

static void test_apart(void **state)
{
	pthread_barrier_t *barrier = ranks_barrier(4);

	(void)state;
	assert_int_equal(run_processes("apart", 4, body_apart, barrier), 0);
	munmap(barrier, sizeof(*barrier));
}

/* ---- eight clients that start together ---- */

struct eight {
	pthread_barrier_t *barrier;
	const char *home;
};

static int count_files(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return dir ? n : -1;
}

/* Locks of files that a process holds. */
static int count_locks(pid_t pid)
{
	FILE *file = fopen("/proc/locks", "re");
	char line[256];
	int holder, n = 0;

	while (file && fgets(line, sizeof(line), file))
		n += sscanf(line, "%*s %*s %*s %*s %d", &holder) == 1 && holder == pid;
	if (file)
		fclose(file);
	return n;
}

static int body_eight(struct rank *rank)
{
	const struct eight *eight = rank->data;
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	struct rank mine = *rank;
	moecomm_group *group;
	int64_t begin;

	/* everywhere a library might think of to keep something */
	EXPECT_TRUE(!setenv("HOME", eight->home, 1) && !setenv("TMPDIR", eight->home, 1));
	EXPECT_TRUE(!setenv("XDG_CACHE_HOME", eight->home, 1) &&
		    !setenv("XDG_RUNTIME_DIR", eight->home, 1) &&
		    !setenv("XDG_STATE_HOME", eight->home, 1));
	EXPECT_TRUE(chdir(eight->home) == 0);
	o.socket_path = test_socket();
	pthread_barrier_wait(eight->barrier);
	begin = now_ms();
	EXPECT(moecomm_connect(&o, &mine.context), MOECOMM_OK);
	group = rank_join(&mine);
	EXPECT_TRUE(group);
	EXPECT_TRUE(now_ms() - begin < 15000);
	for (int i = 0; i < 10; i++)
		EXPECT(check_round(group, rank->rank, rank->world_size, 61, i, -1), MOECOMM_OK);
	EXPECT_TRUE(count_files(eight->home) == 0);
	EXPECT_TRUE(count_locks(getpid()) == 0);
	/* two of them end without saying goodbye */
	pthread_barrier_wait(eight->barrier);
	if (rank->rank < 2)
		_exit(0);
	moecomm_group_leave(group);
	moecomm_disconnect(mine.context);
	return 0;
}

static void test_eight(void **state)
{
	char home[] = "/tmp/moecomm-eight-XXXXXX";
	struct eight eight = {ranks_barrier(8), home};

	(void)state;
	assert_non_null(mkdtemp(home));
	/* the second start meets whatever the first one left */
	for (int start = 0; start < 2; start++)
		assert_int_equal(run_processes("eight", 8, body_eight, &eight), 0);
	assert_int_equal(count_files(home), 0);
	assert_int_equal(rmdir(home), 0);
	munmap(eight.barrier, sizeof(*eight.barrier));
}

/* ---- different local facts ---- */

static void differ(int rank)
{
	cpu_set_t one;

	/* another number of processors, priority, locale, environment, stack and name */
	CPU_ZERO(&one);
	CPU_SET(rank % 2 && sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 1 : 0, &one);
	if (rank)
		sched_setaffinity(0, sizeof(one), &one);
	if (rank == 1) {
		setpriority(PRIO_PROCESS, 0, 5);
		setenv("CUDA_VISIBLE_DEVICES", "", 1);
		setenv("NCCL_PROTO", "Simple", 1);
		setenv("NCCL_ALGO", "Ring", 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		setlocale(LC_ALL, "");
	}
	if (rank == 2) {
		setenv("OMP_NUM_THREADS", "3", 1);
		setenv("MOECOMM_DEBUG", "1", 1);
		setenv("MALLOC_ARENA_MAX", "1", 1);
		usleep(20000);
	}
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

static int body_facts(struct rank *rank)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_tensor tensor;
	uint64_t chosen[4] = {0}, all[3 * 4];
	moecomm_group *group;

	differ(rank->rank);
	group = rank_join(rank);
	EXPECT_TRUE(group);
	EXPECT(moecomm_group_query(group, &info), MOECOMM_OK);
	/* whatever one can ask about what an op will do */
	for (int64_t bytes = 1; bytes <= 8192; bytes += bytes < 300 ? 1 : 61) {
		chosen[0] = mix(chosen[0], (uint64_t)moecomm_group_capacity(group, bytes));
		for (int64_t rows = 0; rows <= 40; rows++)
			chosen[1] =
				mix(chosen[1], (uint64_t)moecomm_group_path(group, rows, bytes));
	}
	chosen[2] = info.arena_bytes;
	chosen[3] = (uint64_t)info.path << 32 | (uint64_t)info.backend;
	tensor = (struct moecomm_tensor){chosen, all, sizeof(chosen)};
	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 1;
	EXPECT(moecomm_dispatch(group, &args, NULL), MOECOMM_OK);
	for (int r = 0; r < 3; r++)
		EXPECT_TRUE(!memcmp(all + r * 4, chosen, sizeof(chosen)));
	for (int i = 0; i < 100; i++)
		EXPECT(check_round(group, rank->rank, 3, 71, i, -1), MOECOMM_OK);
	moecomm_group_leave(group);
	return 0;
}

static void test_facts(void **state)
{
	(void)state;
	assert_int_equal(run_processes("facts", 3, body_facts, NULL), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_eight),
		cmocka_unit_test(test_facts),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, ranks_daemon_start, ranks_daemon_finish);
}
