/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of mixed dispatch and combine between processes (or threads, for the thread sanitizer):
 * changing shapes, empty ranks, random delays, and payloads that tell round, rank and place, so
 * that a stale, lost or misplaced value is seen. With several groups, all run at once.
 *
 *   ring_stress [--ranks N] [--rounds N] [--groups N] [--seed N] [--threads] [--no-delays]
 */
#include "world.h"

#include <getopt.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ROWS   16u
#define MAX_WORDS  12u /* 64-bit words of a dispatched row */
#define MAX_HIDDEN 48u

struct stress {
	uint32_t n_ranks, n_groups;
	uint64_t n_rounds, seed;
	enum world_mode mode;
	bool delays;
};

/* What all ranks of a group know of a round. */
struct round {
	uint64_t n;
	uint32_t kind; /* 0, 1: dispatch, exact or counted; 2: combine; 3: combine with RMSNorm */
	uint32_t width, hidden;
	uint32_t rows[MC_MAX_WORLD_SIZE];
	int32_t valid[MC_MAX_WORLD_SIZE];
};

static struct round round_make(const struct world *world, uint64_t seed, uint64_t n)
{
	uint64_t state = seed ^ n << 8;
	uint64_t draw = world_random(&state);
	struct round round = {.n = n};
	bool uniform = draw >> 8 & 1;

	round.kind = draw & 3;
	round.width = 1 + (uint32_t)(draw >> 16 & 0xff) % MAX_WORDS;
	round.hidden = 1 + (uint32_t)(draw >> 24 & 0xff) % MAX_HIDDEN;
	for (uint32_t r = 0; r < world->n; r++) {
		draw = world_random(&state);
		/* a quarter of the ragged ranks have no rows */
		round.rows[r] = uniform && r > 0 ? round.rows[0]
				: draw & 3       ? 1 + (uint32_t)(draw >> 8 & 0xff) % MAX_ROWS
						 : 0;
		round.valid[r] = (int32_t)((draw >> 32) % (round.rows[r] + 1u));
	}
	return round;
}

static uint64_t payload(uint64_t n, uint32_t rank, uint32_t i)
{
	return n << 24 | (uint64_t)rank << 16 | i;
}

static bool do_dispatch(struct world *world, uint32_t rank, const struct round *round)
{
	uint64_t in[MAX_ROWS * MAX_WORDS], out[MC_MAX_WORLD_SIZE * MAX_ROWS * MAX_WORDS], *at = out;
	struct mc_dispatch op = {.n_tensors = 1, .ids_tensor = -1};
	struct mc_fault fault;
	bool counted = round->kind == 1;

	memcpy(op.rows, round->rows, sizeof(op.rows));
	op.tensor[0] = (struct mc_tensor){in, out, round->width * 8u};
	op.count = counted ? &round->valid[rank] : NULL;
	for (uint32_t i = 0; i < round->rows[rank] * round->width; i++)
		in[i] = payload(round->n, rank, i);
	memset(out, 0xee, sizeof(out[0]) * world->n * MAX_ROWS * MAX_WORDS);
	if (!WORLD_CHECK(world, world_dispatch(world, rank, 0, &op, &fault) == MC_FAULT_NONE))
		return false;
	for (uint32_t r = 0; r < world->n; r++) {
		uint32_t n = round->rows[r] * round->width;
		uint32_t n_valid = counted ? (uint32_t)round->valid[r] * round->width : n;

		for (uint32_t i = 0; i < n; i++)
			if (at[i] !=
				(i < n_valid ? payload(round->n, r, i) : 0xeeeeeeeeeeeeeeeeu)) {
				fprintf(stderr, "round %llu: rank %u has %#llx for %u of rank %u\n",
					(unsigned long long)round->n, rank,
					(unsigned long long)at[i], i, r);
				return WORLD_CHECK(world, !"stale, lost or misplaced value");
			}
		at += n;
	}
	return true;
}

/* Whole numbers, so that fp32 sums of them are exact. */
static float part(uint64_t n, uint32_t from, uint32_t to, uint32_t i)
{
	return (float)((n * 3001u + from * 401u + to * 53u + i) & 0x1ffffu);
}

static bool do_combine(struct world *world, uint32_t rank, const struct round *round)
{
	float in[MC_MAX_WORLD_SIZE * MAX_ROWS * MAX_HIDDEN], *at = in;
	float out[MAX_ROWS * MAX_HIDDEN], sum[MAX_ROWS * MAX_HIDDEN] = {0}, gamma[MAX_HIDDEN];
	struct mc_combine op = {
		.dtype = MC_DTYPE_FP32, .hidden = round->hidden, .input = in, .output = out};
	struct mc_fault fault;
	float *result = out;

	memcpy(op.rows, round->rows, sizeof(op.rows));
	for (uint32_t r = 0; r < world->n; r++)
		for (uint32_t i = 0; i < round->rows[r] * round->hidden; i++)
			*at++ = part(round->n, rank, r, i);
	if (round->kind == 3) {
		memset(gamma, 0, sizeof(gamma));
		op.residual = op.residual_output = result = sum;
		op.gamma = gamma;
		op.eps = 1.0f;
	}
	if (!WORLD_CHECK(world, world_combine(world, rank, 0, &op, &fault) == MC_FAULT_NONE))
		return false;
	for (uint32_t i = 0; i < round->rows[rank] * round->hidden; i++) {
		float want = 0;

		for (uint32_t r = 0; r < world->n; r++)
			want += part(round->n, r, rank, i);
		if (result[i] != want) {
			fprintf(stderr, "round %llu: rank %u has sum %g, not %g\n",
				(unsigned long long)round->n, rank, (double)result[i],
				(double)want);
			return WORLD_CHECK(world, !"stale, lost or misplaced value");
		}
	}
	return true;
}

static void run_rank(struct world *world, uint32_t rank, void *data)
{
	const struct stress *stress = data;
	uint64_t own = stress->seed * 977u + rank;

	for (uint64_t n = 1; n <= stress->n_rounds; n++) {
		struct round round = round_make(world, stress->seed, n);
		uint64_t draw = world_random(&own);

		if (stress->delays && draw % 64 == 0)
			for (uint64_t i = draw >> 32 & 7; i > 0; i--)
				sched_yield();
		if (stress->delays && draw % 8192 == 1)
			usleep((useconds_t)(draw >> 32 & 0x3ff));
		if (!(round.kind < 2 ? do_dispatch : do_combine)(world, rank, &round))
			return;
	}
}

static void run_group(const struct stress *stress, uint32_t group)
{
	struct world_options options = {.max_rows = MAX_ROWS,
		.dispatch_row_bytes = MAX_WORDS * 8u,
		.combine_row_bytes = MAX_HIDDEN * 4u,
		.epoch = 100 + group};
	struct stress own = *stress;
	struct world world;

	own.seed += group * 1000u;
	world_make(&world, stress->n_ranks, &options);
	world.run_limit_ms = 60000 + stress->n_rounds; /* 1 ms a round, on whatever machine */
	world_run(&world, stress->mode, run_rank, &own);
	world_free(&world);
}

static bool parse(int argc, char **argv, struct stress *stress)
{
	static const struct option options[] = {{"ranks", required_argument, NULL, 'r'},
		{"rounds", required_argument, NULL, 'n'}, {"groups", required_argument, NULL, 'g'},
		{"seed", required_argument, NULL, 's'}, {"threads", no_argument, NULL, 't'},
		{"no-delays", no_argument, NULL, 'd'}, {NULL, 0, NULL, 0}};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 10) : 0;

		switch (c) {
		case 'r':
			stress->n_ranks = (uint32_t)value;
			break;
		case 'n':
			stress->n_rounds = value;
			break;
		case 'g':
			stress->n_groups = (uint32_t)value;
			break;
		case 's':
			stress->seed = value;
			break;
		case 't':
			stress->mode = WORLD_THREADS;
			break;
		case 'd':
			stress->delays = false;
			break;
		default:
			return false;
		}
	}
	return optind == argc && stress->n_ranks >= 1 && stress->n_ranks <= MC_MAX_WORLD_SIZE &&
	       stress->n_groups >= 1 && stress->n_groups <= 16;
}

int main(int argc, char **argv)
{
	struct stress stress = {.n_ranks = 4,
		.n_groups = 1,
		.n_rounds = 5000,
		.seed = 1,
		.mode = WORLD_PROCESSES,
		.delays = true};
	uint64_t begin_ms = world_now_ms(), ms;
	int failed = 0, status;

	if (!parse(argc, argv, &stress)) {
		fprintf(stderr,
			"usage: %s [--ranks 1…64] [--rounds N] [--groups 1…16] [--seed N]"
			" [--threads] [--no-delays]\n",
			argv[0]);
		return 2;
	}
	for (uint32_t g = 0; g < stress.n_groups; g++) {
		pid_t pid = fork();

		if (pid == 0) {
			run_group(&stress, g);
			_exit(0);
		}
		failed += pid < 0;
	}
	while (wait(&status) > 0)
		failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	ms = world_now_ms() - begin_ms;
	printf("%s: %u groups of %u %s, %llu rounds each in %.1f s, %.1f us a round\n",
		failed ? "FAILED" : "ok", stress.n_groups, stress.n_ranks,
		stress.mode == WORLD_THREADS ? "threads" : "processes",
		(unsigned long long)stress.n_rounds, (double)ms / 1e3,
		(double)ms * 1e3 / (double)(stress.n_rounds ? stress.n_rounds : 1));
	return failed ? 1 : 0;
}
