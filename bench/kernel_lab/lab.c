/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing of the bare kernels over launch shapes, without daemon or library: the tool that
 * launch_shape.h was tuned with. One process, a thread a rank, graphs replayed back to back.
 *
 *   mc-kernel-lab [--ranks N] [--devices N] [--op dispatch|combine|norm|chain|all] [--floor]
 *                 [--tokens a,b,…] [--warps a,b,…] [--ctas a,b,…] [--clusters a,b,…]
 *                 [--early on|off|auto] [--label TEXT]
 *
 * A line a configuration: op, tokens, warps, ctas, cluster (norm only), then the median and spread
 * in µs an op of one-kernel graphs and of a graph of 100; 0 means the built-in shape.
 */
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench/kernel_lab/floor.h"
#include "tests/gpu/arena_fixture.h"

#define HIDDEN     7168u
#define MAX_TOKENS 4096u
#define CHAIN      100
#define REPEATS    7
#define MAX_LIST   16

enum op {
	DISPATCH,
	COMBINE,
	NORM,
	CHAIN_BOTH,
	N_OPS,
};
static const char *const op_names[] = {"dispatch", "combine", "norm", "chain"};

static struct mc_fixture *fixture;
static struct mc_cuda_device device_info[8];
static uint32_t world_size = 2;
static int n_devices = 1;
static pthread_barrier_t barrier;
static enum mc_cuda_early early = MC_CUDA_EARLY_AUTO; /* as the library has it */

struct rank {
	uint32_t rank;
	pthread_t thread;
	struct mc_cuda_rank view;
	cudaStream_t stream;
	cudaEvent_t begin, end;
	uint8_t *input, *output, *sum, *residual, *gamma;
	enum op op;
	uint32_t tokens, warps, ctas, cluster;
	double one_us[REPEATS], chain_us[REPEATS];
};

static const uint32_t tensor_bytes[4] = {3584, 448, 32, 32};

static void enqueue(struct rank *r, enum op kind)
{
	if (kind == DISPATCH) {
		struct mc_dispatch op = {.n_tensors = 4, .ids_tensor = 2};
		uint64_t in = 0, out = 0;

		for (uint32_t t = 0; t < 4; t++) {
			op.tensor[t] =
				(struct mc_tensor){r->input + in, r->output + out, tensor_bytes[t]};
			in += (uint64_t)tensor_bytes[t] * r->tokens;
			out += (uint64_t)tensor_bytes[t] * r->tokens * world_size;
		}
		for (uint32_t p = 0; p < world_size; p++)
			op.rows[p] = r->tokens;
		op.digest = mc_dispatch_digest(&op, world_size);
		CHECK(mc_cuda_dispatch(&r->view, 0, &op, r->stream));
	} else {
		struct mc_combine op = {
			.dtype = MC_DTYPE_BF16,
			.hidden = HIDDEN,
			.input = r->input,
			.output = r->sum,
		};

		if (kind == NORM) {
			op.residual = op.residual_output = r->residual;
			op.gamma = r->gamma;
			op.eps = 1e-6f;
		}
		for (uint32_t p = 0; p < world_size; p++)
			op.rows[p] = r->tokens;
		op.digest = mc_combine_digest(&op, world_size);
		CHECK(mc_cuda_combine(&r->view, 0, &op, r->stream));
	}
}

static cudaGraphExec_t capture(struct rank *r, int n)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < n; i++)
		enqueue(r, r->op != CHAIN_BOTH ? r->op : i % 2 ? COMBINE : DISPATCH);
	CHECK(cudaStreamEndCapture(r->stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphUpload(exec, r->stream));
	CHECK(cudaStreamSynchronize(r->stream));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

static double replay(struct rank *r, cudaGraphExec_t exec, int n)
{
	float ms;

	for (int i = 0; i < 3; i++)
		CHECK(cudaGraphLaunch(exec, r->stream));
	CHECK(cudaStreamSynchronize(r->stream));
	pthread_barrier_wait(&barrier);
	CHECK(cudaEventRecord(r->begin, r->stream));
	for (int i = 0; i < n; i++) {
		CHECK(cudaGraphLaunch(exec, r->stream));
		/* ranks of one context share its launch queue: bound what is outstanding */
		if (n_devices == 1 && i % 64 == 63)
			CHECK(cudaStreamSynchronize(r->stream));
	}
	CHECK(cudaEventRecord(r->end, r->stream));
	CHECK(cudaStreamSynchronize(r->stream));
	CHECK(cudaEventElapsedTime(&ms, r->begin, r->end));
	pthread_barrier_wait(&barrier);
	return ms * 1000.0 / n;
}

static void *run(void *argument)
{
	struct rank *r = argument;
	cudaGraphExec_t one, chain;

	CHECK(cudaSetDevice(fixture->device[r->rank]));
	r->view.tuning.data_warps = r->warps;
	r->view.tuning.max_ctas = r->ctas;
	r->view.tuning.cluster = r->cluster;
	r->view.early_launch = early;
	one = capture(r, 1);
	pthread_barrier_wait(&barrier);
	chain = capture(r, CHAIN);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < REPEATS; i++) {
		r->one_us[i] = replay(r, one, 200);
		r->chain_us[i] = replay(r, chain, r->tokens >= 512 ? 4 : 10) / CHAIN;
	}
	CHECK(cudaGraphExecDestroy(one));
	CHECK(cudaGraphExecDestroy(chain));
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int parse_list(const char *text, uint32_t *list)
{
	char *end;
	int n = 0;

	while (n < MAX_LIST && *text) {
		list[n++] = (uint32_t)strtoul(text, &end, 10);
		text = *end == ',' ? end + 1 : end;
		if (end == text && *end)
			break;
	}
	return n;
}

static void set_up(struct rank *r)
{
	const size_t n_row = 2u * HIDDEN * (size_t)MAX_TOKENS;
	uint16_t *noise = malloc(n_row);
	cudaError_t error;

	CHECK(cudaSetDevice(fixture->device[r->rank]));
	error = (cudaError_t)mc_cuda_load(&device_info[fixture->device[r->rank]]);
	CHECK(error);
	mc_fixture_view(fixture, r->rank, &device_info[fixture->device[r->rank]], &r->view);
	CHECK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
	CHECK(cudaEventCreate(&r->begin));
	CHECK(cudaEventCreate(&r->end));
	CHECK(cudaMalloc((void **)&r->input, n_row * world_size));
	CHECK(cudaMalloc((void **)&r->output, n_row * world_size));
	CHECK(cudaMalloc((void **)&r->sum, n_row));
	CHECK(cudaMalloc((void **)&r->residual, n_row));
	CHECK(cudaMalloc((void **)&r->gamma, HIDDEN * 2u));
	/* small random bf16 numbers, never zeros */
	for (size_t i = 0; i < n_row / 2u; i++)
		noise[i] = (uint16_t)(0x3c00u | ((uint32_t)rand() & 0x81ffu));
	for (uint32_t p = 0; p < world_size; p++)
		CHECK(cudaMemcpy(r->input + p * n_row, noise, n_row, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(r->residual, noise, n_row, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(r->gamma, noise, HIDDEN * 2u, cudaMemcpyHostToDevice));
	CHECK(cudaDeviceSynchronize());
	free(noise);
}

/* ---- floors ---- */

static double graph_us(cudaStream_t stream, cudaEvent_t *event, cudaGraph_t graph, int n_replays)
{
	double us[REPEATS];
	cudaGraphExec_t exec;
	float ms;

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphUpload(exec, stream));
	for (int k = 0; k < REPEATS; k++) {
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaEventRecord(event[0], stream));
		for (int i = 0; i < n_replays; i++)
			CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaEventRecord(event[1], stream));
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaEventElapsedTime(&ms, event[0], event[1]));
		us[k] = ms * 1000.0 / n_replays;
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	qsort(us, REPEATS, sizeof(us[0]), compare);
	return us[REPEATS / 2];
}

static void floor_empty(cudaStream_t stream, cudaEvent_t *event, uint32_t ctas, uint32_t threads)
{
	double us[2];

	for (int chain = 0; chain < 2; chain++) {
		cudaGraph_t graph;
		int n = chain ? CHAIN : 1;

		CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		for (int i = 0; i < n; i++)
			CHECK(mc_floor_empty(ctas, threads, stream));
		CHECK(cudaStreamEndCapture(stream, &graph));
		us[chain] = graph_us(stream, event, graph, chain ? 10 : 500) / n;
	}
	printf("floor: empty kernel %u x %u: one %.2f us, in a graph of 100 %.2f us\n", ctas,
		threads, us[0], us[1]);
}

/* Two GPUs: one store's way, push bandwidth in one direction and both, torn vectors. */
static void floor_link(cudaStream_t *stream, cudaEvent_t *event)
{
	static const uint64_t sizes[] = {1u << 20, 4u << 20, 16u << 20, 64u << 20};
	unsigned long long *counts, n[2];
	uint8_t *memory[2];
	float ms;

	for (int d = 0; d < 2; d++) {
		CHECK(cudaSetDevice(d));
		CHECK(cudaDeviceEnablePeerAccess(1 - d, 0));
		CHECK(cudaMalloc((void **)&memory[d], 64u << 20));
		CHECK(cudaMemset(memory[d], 0, 64u << 20));
		CHECK(cudaDeviceSynchronize());
	}
	for (int repeat = 0; repeat < 2; repeat++) {
		for (int d = 0; d < 2; d++) {
			CHECK(cudaSetDevice(d));
			CHECK(cudaMemset(memory[d], 0, 64));
			CHECK(cudaDeviceSynchronize());
		}
		CHECK(cudaSetDevice(1));
		CHECK(mc_floor_ping(
			(uint32_t *)memory[1], (uint32_t *)memory[0], 2000, 0, stream[1]));
		CHECK(cudaSetDevice(0));
		CHECK(cudaEventRecord(event[0], stream[0]));
		CHECK(mc_floor_ping(
			(uint32_t *)memory[0], (uint32_t *)memory[1], 2000, 1, stream[0]));
		CHECK(cudaEventRecord(event[1], stream[0]));
		CHECK(cudaStreamSynchronize(stream[0]));
		CHECK(cudaStreamSynchronize(stream[1]));
		CHECK(cudaEventElapsedTime(&ms, event[0], event[1]));
	}
	printf("floor: one way of a 4-byte store %.3f us\n", ms * 1000.0 / 4000);
	for (int both = 0; both < 2; both++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (uint32_t ctas = 132; ctas <= 528; ctas *= 2) {
				int rounds = sizes[i] >= 16u << 20 ? 10 : 40;

				for (int d = both; d >= 0; d--) {
					CHECK(cudaSetDevice(d));
					CHECK(mc_floor_push(
						memory[1 - d], sizes[i], ctas, stream[d]));
					if (d == 0)
						CHECK(cudaEventRecord(event[0], stream[0]));
					for (int k = 0; k < rounds; k++)
						CHECK(mc_floor_push(
							memory[1 - d], sizes[i], ctas, stream[d]));
				}
				CHECK(cudaEventRecord(event[1], stream[0]));
				CHECK(cudaStreamSynchronize(stream[0]));
				CHECK(cudaStreamSynchronize(stream[1]));
				CHECK(cudaEventElapsedTime(&ms, event[0], event[1]));
				printf("floor: push of %llu KiB %s, %u CTAs: %.2f us, %.0f GB/s\n",
					(unsigned long long)sizes[i] >> 10,
					both ? "both ways" : "one way", ctas, ms * 1000.0 / rounds,
					sizes[i] * rounds / (ms * 1e6));
			}
	CHECK(cudaSetDevice(0));
	CHECK(cudaMalloc((void **)&counts, 16));
	CHECK(cudaMemset(counts, 0, 16));
	CHECK(cudaMemset(memory[0], 0, 1u << 20));
	CHECK(cudaDeviceSynchronize());
	CHECK(mc_floor_tear_read(memory[0], 8192, 4000, counts, stream[0]));
	CHECK(cudaSetDevice(1));
	CHECK(mc_floor_tear_write(memory[0], 8192, 4000, stream[1]));
	CHECK(cudaStreamSynchronize(stream[1]));
	CHECK(cudaStreamSynchronize(stream[0]));
	CHECK(cudaMemcpy(n, counts, 16, cudaMemcpyDeviceToHost));
	printf("tear test: %llu of %llu 16-byte loads torn\n", n[1], n[0]);
}

static int run_floors(void)
{
	cudaStream_t stream[2];
	cudaEvent_t event[2];

	for (int d = 0; d < n_devices && d < 2; d++) {
		CHECK(cudaSetDevice(d));
		CHECK(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
	}
	CHECK(cudaSetDevice(0));
	CHECK(cudaEventCreate(&event[0]));
	CHECK(cudaEventCreate(&event[1]));
	floor_empty(stream[0], event, 1, 288);
	floor_empty(stream[0], event, 36, 512);
	floor_empty(stream[0], event, 132, 544);
	if (n_devices >= 2)
		floor_link(stream, event);
	return 0;
}

/* One configuration on all ranks, and its line. False: an op failed. */
static bool run_one(struct rank *ranks, const char *label)
{
	double *one = ranks[0].one_us, *chain = ranks[0].chain_us;
	const struct mc_fault *fault = &fixture->board->rank[0].fault;

	for (uint32_t r = 0; r < world_size; r++)
		pthread_create(&ranks[r].thread, NULL, run, &ranks[r]);
	for (uint32_t r = 0; r < world_size; r++)
		pthread_join(ranks[r].thread, NULL);
	qsort(one, REPEATS, sizeof(*one), compare);
	qsort(chain, REPEATS, sizeof(*chain), compare);
	printf("%s %-8s %4u tokens %2u warps %3u ctas %u cluster  one %6.2f (%.2f-%.2f)  chain "
	       "%6.2f (%.2f-%.2f)\n",
		label, op_names[ranks[0].op], ranks[0].tokens, ranks[0].warps, ranks[0].ctas,
		ranks[0].cluster, one[REPEATS / 2], one[0], one[REPEATS - 1], chain[REPEATS / 2],
		chain[0], chain[REPEATS - 1]);
	fflush(stdout);
	if (!fixture->board->wait.abort_word)
		return true;
	printf("FAILED: fault %u peer %u call %llu\n", fault->status, fault->peer,
		(unsigned long long)fault->call);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"ranks", required_argument, NULL, 'r'},
		{"devices", required_argument, NULL, 'd'},
		{"op", required_argument, NULL, 'o'},
		{"tokens", required_argument, NULL, 't'},
		{"warps", required_argument, NULL, 'w'},
		{"ctas", required_argument, NULL, 'c'},
		{"clusters", required_argument, NULL, 'u'},
		{"early", required_argument, NULL, 'e'},
		{"floor", no_argument, NULL, 'f'},
		{"label", required_argument, NULL, 'l'},
		{0},
	};
	static const struct mc_wait_line wait = {
		.op_timeout_ms = 5000, .warmup_timeout_ms = 20000, .warmup_calls = 16};
	uint32_t tokens[MAX_LIST] = {1, 4, 16, 64, 256, 1024}, warps[MAX_LIST] = {0};
	uint32_t ctas[MAX_LIST] = {0}, clusters[MAX_LIST] = {0};
	int n_tokens = 6, n_warps = 1, n_ctas = 1, n_clusters = 1, floors = 0, c;
	const char *label = "";
	enum op first = DISPATCH, last = CHAIN_BOTH;
	struct mc_layout_spec spec = {.n_channels = 1};
	struct rank *ranks;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'r':
			world_size = (uint32_t)atoi(optarg);
			break;
		case 'd':
			n_devices = atoi(optarg);
			break;
		case 'o':
			for (int i = 0; i < N_OPS; i++)
				if (!strcmp(optarg, op_names[i]))
					first = last = (enum op)i;
			break;
		case 't':
			n_tokens = parse_list(optarg, tokens);
			break;
		case 'w':
			n_warps = parse_list(optarg, warps);
			break;
		case 'c':
			n_ctas = parse_list(optarg, ctas);
			break;
		case 'e':
			early = !strcmp(optarg, "on")    ? MC_CUDA_EARLY_ON
				: !strcmp(optarg, "off") ? MC_CUDA_EARLY_OFF
							 : MC_CUDA_EARLY_AUTO;
			break;
		case 'u':
			n_clusters = parse_list(optarg, clusters);
			break;
		case 'f':
			floors = 1;
			break;
		case 'l':
			label = optarg;
			break;
		default:
			return 2;
		}
	alarm(300);
	if (floors)
		return run_floors();
	spec.world_size = world_size;
	spec.max_rows = 64;
	for (int i = 0; i < n_tokens; i++)
		if (tokens[i] > spec.max_rows)
			spec.max_rows = tokens[i];
	spec.dispatch_row_bytes = 4096;
	spec.combine_row_bytes = HIDDEN * 2u;
	fixture = mc_fixture_make(&spec, n_devices, 1, &wait, 0);
	ranks = calloc(world_size, sizeof(*ranks));
	pthread_barrier_init(&barrier, NULL, world_size);
	for (uint32_t r = 0; r < world_size; r++) {
		ranks[r].rank = r;
		set_up(&ranks[r]);
	}
	for (enum op op = first; op <= last; op++)
		for (int t = 0; t < n_tokens; t++)
			for (int w = 0; w < n_warps; w++)
				for (int k = 0; k < n_ctas; k++)
					for (int u = 0; u < n_clusters; u++) {
						for (uint32_t r = 0; r < world_size; r++) {
							ranks[r].op = op;
							ranks[r].tokens = tokens[t];
							ranks[r].warps = warps[w];
							ranks[r].ctas = ctas[k];
							ranks[r].cluster = clusters[u];
						}
						if (!run_one(ranks, label))
							return 1;
					}
	return 0;
}
