/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops whose byte counts really pass 2^31 and 2^32, between two processes under moecommd, checked
 * byte by byte at every border: the first and last bytes of each rank's block and of the buffers,
 * and both sides of 2^31 and 2^32 bytes. Too large for the ordinary run; scripts/stress.sh runs it.
 *
 *   large_ops [--small]    with --small only what needs 10 GiB of memory instead of 20
 *
 * Buffers would need as much again as the arenas. What lies between the borders is therefore one
 * stretch of memory that is mapped again and again: ops read and write it like any other.
 */
#include "integration/client/harness.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "integration/client/ranks.h"
#include "support/daemon_process.h"

#define CHUNK   (UINT64_C(4) << 20)
#define TWO_31  (UINT64_C(1) << 31)
#define TWO_32  (UINT64_C(1) << 32)
#define SPAN    (UINT64_C(64) << 10) /* what is checked on either side of a border */
#define MEASURE 8

struct large {
	const char *name;
	int64_t max_rows, row_bytes; /* of the group */
	int64_t rows[2];             /* of the op */
	int combine;
};

/* A buffer whose chunks at borders are memory of their own. */
struct buffer {
	uint8_t *at;
	uint64_t n_bytes, n_mapped;
	uint64_t border[MEASURE];
	int n_borders;
};

static int fail_because(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return -1;
}

static int is_border(const struct buffer *b, uint64_t chunk)
{
	for (int i = 0; i < b->n_borders; i++)
		if ((b->border[i] >= SPAN ? b->border[i] - SPAN : 0) / CHUNK <= chunk &&
			(b->border[i] + SPAN) / CHUNK >= chunk)
			return 1;
	return 0;
}

/* Blocks of rank 0 and 1 with that many bytes; the second may be empty. */
static int buffer_make(struct buffer *b, uint64_t first, uint64_t second)
{
	int fd = memfd_create("large-ops", MFD_CLOEXEC);

	*b = (struct buffer){.n_bytes = first + second, .n_borders = 5};
	b->n_mapped = (b->n_bytes + CHUNK - 1) / CHUNK * CHUNK;
	b->border[1] = first;
	b->border[2] = b->n_bytes;
	b->border[3] = TWO_31;
	b->border[4] = TWO_32;
	if (fd < 0 || ftruncate(fd, (off_t)CHUNK))
		return fail_because("memfd");
	b->at = mmap(NULL, b->n_mapped, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (b->at == MAP_FAILED)
		return fail_because("mmap");
	for (uint64_t c = 0; c < b->n_mapped / CHUNK; c++)
		if (!is_border(b, c) && mmap(b->at + c * CHUNK, CHUNK, PROT_READ | PROT_WRITE,
						MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			return fail_because("mmap of a chunk");
	close(fd);
	return 0;
}

static void buffer_free(struct buffer *b)
{
	munmap(b->at, b->n_mapped);
}

/* The word at a byte offset of what a rank sends; small whole numbers, exact as fp32, for combine.
 */
static uint32_t word(const struct buffer *b, int rank, uint64_t offset, int combine)
{
	/* between borders the place within the chunk is all that the memory can know */
	uint64_t place = is_border(b, offset / CHUNK) ? offset : offset % CHUNK;
	uint64_t mixed = (place / 4 + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)rank << 33;
	uint32_t bits = (uint32_t)(mixed >> 29);
	float number = (float)(bits & 0xffff);

	if (combine)
		memcpy(&bits, &number, 4);
	return bits;
}

static void fill(struct buffer *b, int rank, int combine)
{
	int shared_done = 0;

	for (uint64_t c = 0; c < b->n_mapped / CHUNK; c++) {
		if (!is_border(b, c) && shared_done)
			continue;
		shared_done |= !is_border(b, c);
		for (uint64_t at = c * CHUNK; at < (c + 1) * CHUNK; at += 4) {
			uint32_t w = word(b, rank, at, combine);

			memcpy(b->at + at, &w, 4);
		}
	}
}

/* What ranks' inputs look like to everybody: the same borders, since all know the sizes. */
static int input_shape(const struct large *l, int rank, struct buffer *ret)
{
	uint64_t bytes[2] = {
		(uint64_t)(l->rows[0] * l->row_bytes), (uint64_t)(l->rows[1] * l->row_bytes)};

	return l->combine ? buffer_make(ret, bytes[0], bytes[1]) : buffer_make(ret, bytes[rank], 0);
}

static uint8_t byte_of(uint32_t bits, uint64_t offset)
{
	return (uint8_t)(bits >> (8 * (offset % 4)));
}

/* The expected byte at an offset of this rank's output. */
static uint8_t expected(const struct large *l, const struct buffer in[2], int rank, uint64_t offset)
{
	uint64_t first = (uint64_t)(l->rows[0] * l->row_bytes);
	uint32_t parts[2], bits;
	float a, b;

	if (!l->combine) {
		int from = offset >= first;
		uint64_t place = from ? offset - first : offset;

		return byte_of(word(&in[from], from, place / 4 * 4, 0), place);
	}
	for (int r = 0; r < 2; r++)
		parts[r] = word(&in[r], r, (rank ? first : 0) + offset / 4 * 4, 1);
	memcpy(&a, &parts[0], 4);
	memcpy(&b, &parts[1], 4);
	a += b;
	memcpy(&bits, &a, 4);
	return byte_of(bits, offset);
}

static int check(
	const struct large *l, const struct buffer in[2], const struct buffer *out, int rank)
{
	uint64_t n_checked = 0;

	for (int i = 0; i < out->n_borders; i++) {
		uint64_t begin = out->border[i] >= SPAN ? out->border[i] - SPAN : 0;

		for (uint64_t at = begin; at < out->border[i] + SPAN && at < out->n_bytes;
			at++, n_checked++)
			if (out->at[at] != expected(l, in, rank, at)) {
				fprintf(stderr,
					"%s: rank %d has %#x at byte %llu of %llu, wanted %#x\n",
					l->name, rank, out->at[at], (unsigned long long)at,
					(unsigned long long)out->n_bytes,
					expected(l, in, rank, at));
				return -1;
			}
	}
	printf("%s: rank %d: %llu bytes of output, %llu at borders are right\n", l->name, rank,
		(unsigned long long)out->n_bytes, (unsigned long long)n_checked);
	return 0;
}

static int call(const struct large *l, moecomm_group *group, const struct buffer *in,
	const struct buffer *out)
{
	struct moecomm_tensor tensor = {in->at, out->at, l->row_bytes};
	struct moecomm_dispatch_args dispatch = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_combine_args combine = MOECOMM_COMBINE_ARGS_INIT;

	dispatch.tensors = &tensor;
	dispatch.n_tensors = 1;
	combine.rows_per_rank = dispatch.rows_per_rank = l->rows;
	combine.dtype = MOECOMM_FP32;
	combine.hidden = l->row_bytes / 4;
	combine.input = in->at;
	combine.output = out->at;
	return l->combine ? moecomm_combine(group, &combine, NULL)
			  : moecomm_dispatch(group, &dispatch, NULL);
}

static int run_rank(const struct large *l, const char *socket, int rank)
{
	struct moecomm_group_options o = test_options("large", rank, 2);
	moecomm_context *context = test_connect(socket);
	uint64_t own = (uint64_t)(l->rows[rank] * l->row_bytes);
	moecomm_group *group = NULL;
	struct buffer in[2], out;
	int r;

	o.max_rows = l->max_rows;
	o.dispatch_row_bytes = l->combine ? 0 : l->row_bytes;
	o.combine_row_bytes = l->combine ? l->row_bytes : 0;
	o.n_channels = 1;
	o.join_timeout_ms = o.probe_timeout_ms = 300000;
	o.op_timeout_ms = o.warmup_timeout_ms = 300000;
	if (moecomm_group_join(context, &o, &group)) {
		fprintf(stderr, "rank %d: join: %s\n", rank, moecomm_last_error());
		return 1;
	}
	if (input_shape(l, 0, &in[0]) || input_shape(l, 1, &in[1]) ||
		(l->combine ? buffer_make(&out, own, 0)
			    : buffer_make(&out, in[0].n_bytes, in[1].n_bytes)))
		return 1;
	fill(&in[rank], rank, l->combine);
	/* twice: both segments of the ring */
	for (int n = 0; n < 2; n++) {
		r = call(l, group, &in[rank], &out);
		if (r) {
			fprintf(stderr, "rank %d: %s\n", rank, moecomm_last_error());
			return 1;
		}
		if (check(l, in, &out, rank))
			return 1;
	}
	buffer_free(&in[0]);
	buffer_free(&in[1]);
	buffer_free(&out);
	moecomm_group_leave(group);
	moecomm_disconnect(context);
	return 0;
}

static void run_case(void **state)
{
	static const struct mc_test_daemon_options options = {
		.config = "[groups]\narm_timeout_ms = 600000\n"};
	const struct large *l = *state;
	struct mc_test_daemon daemon;
	int failed = 0, status;
	pid_t pid[2];

	mc_test_daemon_start(&daemon, &options);
	fflush(NULL);
	for (int rank = 0; rank < 2; rank++) {
		pid[rank] = fork();
		assert_true(pid[rank] >= 0);
		if (pid[rank] == 0) {
			status = run_rank(l, daemon.socket, rank);
			fflush(NULL);
			_exit(status);
		}
	}
	for (int rank = 0; rank < 2; rank++) {
		assert_int_equal(waitpid(pid[rank], &status, 0), pid[rank]);
		failed += !WIFEXITED(status) || WEXITSTATUS(status);
	}
	/* giving back that much memory takes the kernel its time */
	kill(daemon.pid, SIGTERM);
	assert_int_equal(mc_test_daemon_wait_exit(&daemon, 60000), 0);
	mc_test_daemon_finish(&daemon);
	assert_int_equal(failed, 0);
}

static uint64_t available_gib(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib >> 20;
}

#define ROWS_31 (INT64_C(1) << 19) /* of 4 KiB: 2^31 bytes */

int main(int argc, char **argv)
{
	static struct large large[] = {
		/* each rank's block ends right at, before or behind 2^31, both blocks at 2^32 */
		{"dispatch of 2^31 bytes a rank", ROWS_31 + 1, 4096, {ROWS_31, ROWS_31}, 0},
		{"dispatch around 2^31", ROWS_31 + 1, 4096, {ROWS_31 - 1, ROWS_31 + 1}, 0},
		{"dispatch of capacity", ROWS_31 + 1, 4096, {ROWS_31 + 1, ROWS_31 + 1}, 0},
		{"dispatch of 2^31 - 1 rows of a byte", INT32_MAX, 1, {INT32_MAX, 12345}, 0},
		{"combine around 2^31", ROWS_31 + 1, 4096, {ROWS_31 + 1, ROWS_31 - 1}, 1},
		/* one rank's block alone passes 2^32 */
		{"dispatch around 2^32", 2 * ROWS_31 + 1, 4096, {2 * ROWS_31 + 1, 3}, 0},
		{"combine around 2^32", 2 * ROWS_31 + 1, 4096, {3, 2 * ROWS_31 + 1}, 1},
	};
	struct CMUnitTest tests[sizeof(large) / sizeof(large[0])] = {{0}};
	int small = argc > 1 && strcmp(argv[1], "--small") == 0;
	uint64_t gib = available_gib();
	size_t n = 0;

	if (argc > 2 || (argc == 2 && !small)) {
		fprintf(stderr, "usage: %s [--small]\n", argv[0]);
		return 2;
	}
	if (gib < 11) {
		printf("skipped: needs 11 GiB of free memory, there are %llu\n",
			(unsigned long long)gib);
		return 77;
	}
	if (!small && gib < 20) {
		printf("what needs 20 GiB is skipped: %llu GiB are free\n",
			(unsigned long long)gib);
		small = 1;
	}
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]) - (small ? 2 : 0); i++)
		tests[n++] = (struct CMUnitTest){
			.name = large[i].name, .test_func = run_case, .initial_state = &large[i]};
	return _cmocka_run_group_tests("large_ops", tests, n, NULL, NULL);
}
