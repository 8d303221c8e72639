/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend against the host ops, bit for bit: the same inputs through both, outputs
 * poisoned alike, whole buffers compared. One process; ranks share the GPUs there are. Prints a
 * line a section and the counts; exits 77 without a GPU.
 *
 *   gpu-ops [--devices N] [--ranks N] [--cases N] [--replays N] [--seed N]
 */
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/gpu/arena_fixture.h"

extern const struct mc_client_backend mc_client_backend;
#define BACKEND (&mc_client_backend)

#define BUFFER_BYTES (48u << 20)
#define POISON       0xa5
#define MAX_RANKS    16u
#define N_CHANNELS   2u

static int n_devices = 1;
static uint32_t world_size = 2;
static unsigned long n_checks, n_wrong;
static uint64_t rng = 0x243f6a8885a308d3ull;

static const struct mc_layout_spec spec_of_tests = {
	.n_channels = N_CHANNELS,
	.max_rows = 256,
	.dispatch_row_bytes = 4096,
	.combine_row_bytes = 4u * 4096u,
};

struct rank {
	struct mc_backend_rank *backend;
	cudaStream_t stream;
	uint8_t *device, *host; /* BUFFER_BYTES each: the same offsets in both */
	uint8_t *image;         /* for the comparison */
	pthread_t thread;
	struct mc_dispatch dispatch;
	struct mc_combine combine;
	bool is_dispatch;
	uint32_t channel;
	struct mc_host_rank *twin;
	struct mc_fault fault;
	int status;
};

static struct rank ranks[MAX_RANKS];
static struct mc_fixture *fixture;
static uint64_t epoch_number = 100;

static uint64_t next(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static uint32_t below(uint32_t n)
{
	return n ? (uint32_t)(next() >> 11) % n : 0;
}

static void expect(bool ok, const char *what)
{
	n_checks++;
	if (ok)
		return;
	n_wrong++;
	if (n_wrong < 40)
		printf("WRONG: %s\n", what);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* ---- membership ---- */

static const struct mc_wait_line relaxed_wait = {
	.op_timeout_ms = 10000, .warmup_timeout_ms = 20000, .warmup_calls = 4};

static void begin_epoch(const struct mc_wait_line *wait)
{
	struct mc_layout_spec spec = spec_of_tests;
	struct mc_backend_error error = {""};
	struct mc_backend_epoch epoch;
	uint32_t peer;

	spec.world_size = world_size;
	fixture = mc_fixture_make(&spec, n_devices, ++epoch_number, wait, 1);
	for (uint32_t r = 0; r < world_size; r++) {
		mc_fixture_epoch(fixture, r, &epoch);
		if (BACKEND->map(ranks[r].backend, &epoch, &peer, &error)) {
			printf("map of rank %u: %s\n", r, error.text);
			_exit(3);
		}
	}
}

static void end_epoch(void)
{
	for (uint32_t r = 0; r < world_size; r++)
		BACKEND->unmap(ranks[r].backend, 2000);
	fixture = mc_fixture_free(fixture);
}

struct probe {
	pthread_t thread;
	uint32_t rank;
	int status;
	uint8_t result[MC_MAX_WORLD_SIZE];
	struct mc_backend_error error;
};

static void *run_probe(void *argument)
{
	struct probe *p = argument;

	p->status = BACKEND->probe(ranks[p->rank].backend, 5000, p->result, &p->error);
	return NULL;
}

static void probe_all(void)
{
	struct probe probes[MAX_RANKS] = {0};

	for (uint32_t r = 0; r < world_size; r++) {
		probes[r].rank = r;
		pthread_create(&probes[r].thread, NULL, run_probe, &probes[r]);
	}
	for (uint32_t r = 0; r < world_size; r++) {
		pthread_join(probes[r].thread, NULL);
		expect(probes[r].status == 0, probes[r].error.text);
	}
}

static void open_ranks(void)
{
	struct mc_backend_error error = {""};

	for (uint32_t r = 0; r < world_size; r++) {
		struct rank *rank = &ranks[r];
		int device = (int)(r * (uint32_t)n_devices / world_size);
		double begin = now_ms();

		CHECK(cudaSetDevice(device));
		if (BACKEND->open(device, &rank->backend, &error)) {
			printf("open: %s\n", error.text);
			_exit(3);
		}
		if (r == 0)
			printf("open of %s took %.1f ms\n", BACKEND->device_uuid(rank->backend),
				now_ms() - begin);
		CHECK(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
		CHECK(cudaMalloc((void **)&rank->device, BUFFER_BYTES));
		rank->host = aligned_alloc(4096, BUFFER_BYTES);
		rank->image = aligned_alloc(4096, BUFFER_BYTES);
	}
}

static void close_ranks(void)
{
	for (uint32_t r = 0; r < world_size; r++) {
		struct rank *rank = &ranks[r];

		BACKEND->close(rank->backend);
		CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
		CHECK(cudaStreamDestroy(rank->stream));
		CHECK(cudaFree(rank->device));
		free(rank->host);
		free(rank->image);
		memset(rank, 0, sizeof(*rank));
	}
}

/* ---- running ---- */

/* All streams idle within the time; else the program ends: a kernel that hangs is the worst
 * failure. */
static void wait_streams(double timeout_ms)
{
	double begin = now_ms();

	for (uint32_t r = 0; r < world_size; r++) {
		cudaError_t e;

		CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
		while ((e = cudaStreamQuery(ranks[r].stream)) == cudaErrorNotReady)
			if (now_ms() - begin > timeout_ms) {
				printf("HANG: rank %u did not finish in %.0f ms\n", r, timeout_ms);
				for (uint32_t p = 0; fixture && p < world_size; p++)
					printf("  rank %u: call %u, fault %u peer %u\n", p,
						fixture->board->rank[p].progress[0].call,
						fixture->board->rank[p].fault.status,
						fixture->board->rank[p].fault.peer);
				fflush(stdout);
				_exit(4);
			}
		CHECK(e);
	}
}

static void enqueue(uint32_t r)
{
	struct rank *rank = &ranks[r];
	struct mc_backend_error error = {""};
	int status;

	if (rank->is_dispatch)
		status = BACKEND->dispatch(rank->backend, rank->channel, &rank->dispatch,
			rank->stream, &rank->fault, &error);
	else
		status = BACKEND->combine(rank->backend, rank->channel, &rank->combine,
			rank->stream, &rank->fault, &error);
	if (status) {
		printf("launch: %s\n", error.text);
		_exit(3);
	}
}

static void *run_twin(void *argument)
{
	struct rank *rank = argument;
	ptrdiff_t shift = rank->host - rank->device;

	/* the same op with the pointers of the host image */
#define MOVE(p)                                                                                    \
	do {                                                                                       \
		if (p)                                                                             \
			(p) = (void *)((uint8_t *)(uintptr_t)(p) + shift);                         \
	} while (0)
	if (rank->is_dispatch) {
		struct mc_dispatch op = rank->dispatch;

		for (uint32_t t = 0; t < op.n_tensors; t++) {
			MOVE(op.tensor[t].input);
			MOVE(op.tensor[t].output);
		}
		MOVE(op.count);
		MOVE(op.ret_counts);
		rank->status = mc_host_dispatch(rank->twin, rank->channel, &op, &rank->fault);
	} else {
		struct mc_combine op = rank->combine;

		MOVE(op.input);
		MOVE(op.output);
		MOVE(op.counts);
		MOVE(op.residual);
		MOVE(op.residual_output);
		MOVE(op.gamma);
		rank->status = mc_host_combine(rank->twin, rank->channel, &op, &rank->fault);
	}
	return NULL;
}

static void run_twins(void)
{
	for (uint32_t r = 0; r < world_size; r++) {
		ranks[r].twin = &fixture->host[r];
		pthread_create(&ranks[r].thread, NULL, run_twin, &ranks[r]);
	}
	for (uint32_t r = 0; r < world_size; r++) {
		pthread_join(ranks[r].thread, NULL);
		expect(ranks[r].status == 0, "the host op failed");
	}
}

static void upload(size_t n_bytes)
{
	for (uint32_t r = 0; r < world_size; r++) {
		CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
		CHECK(cudaMemcpyAsync(ranks[r].device, ranks[r].host, n_bytes,
			cudaMemcpyHostToDevice, ranks[r].stream));
	}
	wait_streams(20000);
}

/* The device's buffers must be the host's, byte for byte, outputs, guards and inputs alike. */
static void compare(size_t n_bytes, const char *what)
{
	char text[320];

	for (uint32_t r = 0; r < world_size; r++) {
		size_t i = 0;

		CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
		CHECK(cudaMemcpyAsync(ranks[r].image, ranks[r].device, n_bytes,
			cudaMemcpyDeviceToHost, ranks[r].stream));
		CHECK(cudaStreamSynchronize(ranks[r].stream));
		if (memcmp(ranks[r].image, ranks[r].host, n_bytes) == 0) {
			n_checks++;
			continue;
		}
		while (ranks[r].image[i] == ranks[r].host[i])
			i++;
		snprintf(text, sizeof(text), "%s: rank %u byte %zu is %02x, must be %02x", what, r,
			i, ranks[r].image[i], ranks[r].host[i]);
		expect(false, text);
	}
	for (uint32_t r = 0; r < world_size; r++)
		if (fixture->board->rank[r].fault.status) {
			const struct mc_fault *f = &fixture->board->rank[r].fault;

			printf("FAULT after %s: rank %u status %u peer %u call %llu mine %u %08x "
			       "%u "
			       "theirs %u %08x %u\n",
				what, r, f->status, f->peer, (unsigned long long)f->call,
				f->mine[0], f->mine[1], f->mine[2], f->theirs[0], f->theirs[1],
				f->theirs[2]);
			_exit(5);
		}
}

/* ---- cases ---- */

/* Space in all ranks' buffers; with `odd` at an odd address, else 16-byte aligned. */
struct space {
	size_t used;
	bool odd;
};

static size_t take(struct space *s, size_t n_bytes, uint32_t unit)
{
	size_t at = (s->used + 15u) / 16u * 16u;

	if (s->odd)
		at += unit * (1u + below(15u / unit));
	s->used = at + n_bytes + 32u; /* a guard behind each */
	if (s->used > BUFFER_BYTES) {
		printf("the test's buffers are too small\n");
		_exit(3);
	}
	return at;
}

static void noise(uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)(next() >> 24);
}

/* Numbers of ordinary size with some specials: zeros of both signs, subnormals, infinities, NaNs.
 */
static void numbers(enum mc_dtype dtype, uint8_t *at, size_t n, bool specials)
{
	static const uint16_t special16[] = {0, 0x8000, 1, 0x8001, 0x7f80, 0xff80, 0x7fc1, 0x7c00,
		0xfc00, 0x7c01, 0x7bff, 0x7f7f};

	for (size_t i = 0; i < n; i++) {
		bool special = specials && below(64) == 0;
		float f = ldexpf((float)(int32_t)next() * 0x1p-31f, (int)below(12) - 6);
		uint32_t w;

		memcpy(&w, &f, 4);
		if (dtype == MC_DTYPE_FP32) {
			if (special)
				w = (uint32_t)special16[below(12)] << 16 | below(3);
			memcpy(at + 4u * i, &w, 4);
		} else {
			uint16_t h = (uint16_t)(w >> 16);

			if (dtype == MC_DTYPE_FP16) /* about the same number */
				h = (uint16_t)((w >> 16 & 0x8000u) | (10u + below(12)) << 10 |
					       below(1024));
			if (special)
				h = special16[below(12)];
			memcpy(at + 2u * i, &h, 2);
		}
	}
}

static void poison_all(size_t n_bytes)
{
	for (uint32_t r = 0; r < world_size; r++)
		memset(ranks[r].host, POISON, n_bytes);
}

enum form {
	UNIFORM,
	RAGGED,
	COUNTED,
};

/* Dispatch op with inputs in all ranks' host buffers; returns the bytes in use. */
static size_t make_dispatch(uint32_t n_tensors, const uint64_t *row_bytes, uint32_t most_rows,
	enum form form, bool odd, bool want_counts)
{
	struct space s = {0, odd};
	struct mc_dispatch op = {.n_tensors = n_tensors, .ids_tensor = -1};
	size_t in[MC_MAX_TENSORS], out[MC_MAX_TENSORS], count_at, counts_at;
	uint64_t total = 0;

	for (uint32_t p = 0; p < world_size; p++) {
		op.rows[p] = form == UNIFORM ? most_rows : below(most_rows + 1u);
		if (form == RAGGED && below(4) == 0)
			op.rows[p] = 0;
		if (form == COUNTED)
			op.rows[p] = below(2) ? most_rows : 1u + below(most_rows);
		total += op.rows[p];
	}
	for (uint32_t t = 0; t < n_tensors; t++) {
		op.tensor[t].row_bytes = row_bytes[t];
		if (row_bytes[t] % 4 == 0 && below(2))
			op.ids_tensor = (int32_t)t;
		in[t] = take(&s, row_bytes[t] * most_rows, 1);
		out[t] = take(&s, row_bytes[t] * total, 1);
	}
	count_at = take(&s, 4, 1);
	counts_at = take(&s, 4u * world_size, 1);
	poison_all(s.used);
	for (uint32_t r = 0; r < world_size; r++) {
		struct rank *rank = &ranks[r];
		int32_t count = (int32_t)below(op.rows[r] + 1u);

		rank->is_dispatch = true;
		rank->dispatch = op;
		for (uint32_t t = 0; t < n_tensors; t++) {
			noise(rank->host + in[t], row_bytes[t] * op.rows[r]);
			rank->dispatch.tensor[t].input = rank->device + in[t];
			rank->dispatch.tensor[t].output = rank->device + out[t];
		}
		memcpy(rank->host + count_at, &count, 4);
		if (form == COUNTED)
			rank->dispatch.count = (int32_t *)(rank->device + count_at);
		if (want_counts)
			rank->dispatch.ret_counts = (int32_t *)(rank->device + counts_at);
		rank->dispatch.digest = mc_dispatch_digest(&rank->dispatch, world_size);
	}
	return s.used;
}

static size_t make_combine(enum mc_dtype dtype, uint64_t hidden, uint32_t most_rows, enum form form,
	bool norm, bool odd, bool specials, bool in_place)
{
	uint32_t size = mc_dtype_bytes(dtype);
	struct space s = {0, odd};
	struct mc_combine op = {.dtype = dtype, .hidden = hidden, .eps = 1e-5f};
	int32_t counts[MC_MAX_WORLD_SIZE];
	uint64_t total = 0;
	size_t input, output, residual, residual_output, gamma, counts_at;

	for (uint32_t p = 0; p < world_size; p++) {
		op.rows[p] = form == UNIFORM ? most_rows : below(most_rows + 1u);
		if (form == RAGGED && below(4) == 0)
			op.rows[p] = 0;
		counts[p] = (int32_t)below(op.rows[p] + 1u);
		total += op.rows[p];
	}
	if (!norm)
		op.eps = 0.0f;
	input = take(&s, total * hidden * size, size);
	output = take(&s, most_rows * hidden * size, size);
	residual = take(&s, most_rows * hidden * size, size);
	residual_output = in_place ? residual : take(&s, most_rows * hidden * size, size);
	gamma = take(&s, hidden * size, size);
	counts_at = take(&s, 4u * world_size, 1);
	poison_all(s.used);
	for (uint32_t r = 0; r < world_size; r++) {
		struct rank *rank = &ranks[r];

		rank->is_dispatch = false;
		rank->combine = op;
		numbers(dtype, rank->host + input, total * hidden, specials);
		numbers(dtype, rank->host + residual, op.rows[r] * hidden, specials);
		numbers(dtype, rank->host + gamma, hidden, false);
		memcpy(rank->host + counts_at, counts, 4u * world_size);
		rank->combine.input = rank->device + input;
		rank->combine.output = rank->device + output;
		if (norm) {
			rank->combine.residual = rank->device + residual;
			rank->combine.residual_output = rank->device + residual_output;
			rank->combine.gamma = rank->device + gamma;
		}
		if (form == COUNTED)
			rank->combine.counts = (int32_t *)(rank->device + counts_at);
		rank->combine.digest = mc_combine_digest(&rank->combine, world_size);
	}
	return s.used;
}

/* One case: upload, run `rounds` calls on the device, compare with the host op. */
static void run_case(size_t n_bytes, const char *what)
{
	uint32_t channel = below(N_CHANNELS);

	for (uint32_t r = 0; r < world_size; r++)
		ranks[r].channel = channel;
	upload(n_bytes);
	for (uint32_t r = 0; r < world_size; r++) {
		CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
		enqueue(r);
	}
	wait_streams(30000);
	run_twins();
	compare(n_bytes, what);
}

static void random_case(uint32_t i)
{
	static const uint64_t sizes[] = {16, 3584, 448, 32, 8, 24, 1, 7, 100, 1024, 33};
	static const uint64_t hiddens[] = {
		7168, 512, 8, 256, 264, 2048, 4096, 8192, 1, 7, 100, 1000, 4100};
	enum form form = (enum form)below(3);
	bool odd = below(4) == 0;
	uint32_t rows = below(3) == 0 ? 1u + below(2) : 1u + below(12);
	char what[200];
	size_t n;

	if (below(2)) {
		uint64_t row_bytes[MC_MAX_TENSORS], total = 0;
		uint32_t n_tensors = 1u + below(MC_MAX_TENSORS);
		bool want = below(2);

		if (below(2)) {
			n_tensors = 4;
			memcpy(row_bytes, (uint64_t[]){3584, 448, 32, 32}, 32);
		} else {
			for (uint32_t t = 0; t < n_tensors; t++) {
				row_bytes[t] = sizes[below(11)];
				total += row_bytes[t];
				if (total > 4096)
					row_bytes[t] = 16;
			}
		}
		if (below(16) == 0)
			rows = 100u + below(300);
		snprintf(what, sizeof(what), "case %u: dispatch, form %d, %u tensors, rows to %u%s",
			i, form, n_tensors, rows, odd ? ", odd" : "");
		n = make_dispatch(n_tensors, row_bytes, rows, form, odd, want);
	} else {
		enum mc_dtype dtype = below(2) ? MC_DTYPE_BF16 : (enum mc_dtype)(2u + below(2));
		uint64_t hidden = hiddens[below(13)];
		bool norm = below(2), in_place = below(2);

		if (dtype == MC_DTYPE_FP32 && hidden > 4096)
			hidden = 4096;
		snprintf(what, sizeof(what),
			"case %u: combine%s, form %d, type %d, hidden %llu, rows to %u%s", i,
			norm ? " + norm" : "", form, dtype, (unsigned long long)hidden, rows,
			odd ? ", odd" : "");
		n = make_combine(dtype, hidden, rows, form, norm, odd, below(3) == 0, in_place);
	}
	run_case(n, what);
}

/* Sizes at which the pipelines turn over, and rows that no register file holds. */
static void large_cases(void)
{
	static const uint64_t four[] = {3584, 448, 32, 32};
	struct {
		enum mc_dtype dtype;
		uint64_t hidden;
		uint32_t rows;
	} norms[] = {{MC_DTYPE_BF16, 7168, 150}, {MC_DTYPE_BF16, 8192, 20},
		{MC_DTYPE_FP16, 8192, 5}, {MC_DTYPE_FP32, 4096, 9}, {MC_DTYPE_BF16, 4104, 3}};

	run_case(make_dispatch(4, four, 512, UNIFORM, false, true), "dispatch of 512 rows");
	run_case(make_dispatch(4, four, 512, RAGGED, false, true), "ragged dispatch of 512 rows");
	run_case(make_dispatch(4, four, 512, COUNTED, true, true), "counted dispatch of 512 rows");
	if (world_size <= 8)
		run_case(make_combine(MC_DTYPE_BF16, 7168, 1024u / (world_size * 2u), UNIFORM,
				 false, false, false, false),
			"large combine");
	for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++) {
		uint32_t rows = norms[i].rows * 2u / world_size;

		run_case(make_combine(norms[i].dtype, norms[i].hidden, rows ? rows : 1, UNIFORM,
				 true, false, false, true),
			"large norm");
	}
}

static void mask_cases(void)
{
	for (int i = 0; i < 20; i++) {
		uint32_t rows = 1u + below(200), topk = 1u + below(9), odd = below(2);
		int32_t count = (int32_t)below(rows + 1u);
		size_t at = 64u + odd, count_at = 16u + odd;
		struct rank *rank = &ranks[0];
		struct mc_backend_error error = {""};
		struct mc_mask_ids op = {(int32_t *)(rank->device + at), rows, topk,
			(int32_t *)(rank->device + count_at)};
		struct mc_mask_ids twin = {(int32_t *)(rank->host + at), rows, topk,
			(int32_t *)(rank->host + count_at)};

		for (uint32_t r = 0; r < world_size; r++)
			noise(ranks[r].host, 16384);
		memcpy(rank->host + count_at, &count, 4);
		upload(16384);
		CHECK(cudaSetDevice(0));
		expect(BACKEND->mask_ids(rank->backend, &op, rank->stream, &error) == 0,
			error.text);
		wait_streams(5000);
		mc_host_mask_ids(&twin);
		compare(16384, "mask of expert ids");
	}
}

/* ---- graphs ---- */

#define N_GRAPHS 8u
static cudaGraphExec_t graphs[MAX_RANKS][N_GRAPHS];
static const uint32_t graph_rows[N_GRAPHS] = {1, 2, 3, 8, 17, 40, 64, 128};

/* Graph g of a rank: its dispatch or combine of graph_rows[g] rows, in the buffers' present state.
 */
static void capture_all(size_t *ret_bytes)
{
	static const uint64_t four[] = {3584, 448, 32, 32};

	for (uint32_t g = 0; g < N_GRAPHS; g++) {
		size_t n = g % 2 ? make_combine(MC_DTYPE_BF16, 1024, graph_rows[g], UNIFORM, g == 3,
					   false, false, false)
				 : make_dispatch(4, four, graph_rows[g], UNIFORM, false, false);

		ret_bytes[g] = n;
		for (uint32_t r = 0; r < world_size; r++) {
			cudaGraph_t graph;

			CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
			ranks[r].channel = 0;
			CHECK(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeGlobal));
			enqueue(r);
			CHECK(cudaStreamEndCapture(ranks[r].stream, &graph));
			CHECK(cudaGraphInstantiate(&graphs[r][g], graph, 0));
			CHECK(cudaGraphUpload(graphs[r][g], ranks[r].stream));
			CHECK(cudaGraphDestroy(graph));
		}
		wait_streams(5000);
	}
}

static void launch_graph(uint32_t g)
{
	for (uint32_t r = 0; r < world_size; r++) {
		CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
		CHECK(cudaGraphLaunch(graphs[r][g], ranks[r].stream));
	}
}

/* Replays in random order; now and then one is checked on fresh inputs and poisoned outputs. */
static void replay_all(uint32_t n_replays)
{
	static const uint64_t four[] = {3584, 448, 32, 32};

	for (uint32_t i = 0; i < n_replays; i++) {
		uint32_t g = below(N_GRAPHS);

		if (i % 100 == 99) {
			/* the same calls of make_ give the same places */
			size_t n = g % 2 ? make_combine(MC_DTYPE_BF16, 1024, graph_rows[g], UNIFORM,
						   g == 3, false, false, false)
					 : make_dispatch(
						   4, four, graph_rows[g], UNIFORM, false, false);

			wait_streams(20000);
			for (uint32_t r = 0; r < world_size; r++)
				ranks[r].channel =
					1; /* the twins keep their own count of calls there */
			upload(n);
			launch_graph(g);
			wait_streams(20000);
			run_twins();
			compare(n, "replayed graph");
		} else {
			launch_graph(g);
			if (i % 16 == 15) /* ranks of one context share its launch queue */
				wait_streams(20000);
		}
	}
	wait_streams(20000);
}

static void destroy_graphs(void)
{
	for (uint32_t r = 0; r < world_size; r++)
		for (uint32_t g = 0; g < N_GRAPHS; g++)
			CHECK(cudaGraphExecDestroy(graphs[r][g]));
}

/* ---- failures ---- */

static const struct mc_wait_line short_wait = {
	.op_timeout_ms = 200, .warmup_timeout_ms = 200, .warmup_calls = 0};

static const struct mc_fault *fault_of(uint32_t r)
{
	return &fixture->board->rank[r].fault;
}

static void small_dispatch(uint32_t rows)
{
	static const uint64_t four[] = {3584, 448, 32, 32};
	size_t n = make_dispatch(4, four, rows, UNIFORM, false, false);

	for (uint32_t r = 0; r < world_size; r++)
		ranks[r].channel = 0;
	upload(n);
}

static void fails_with(uint32_t r, uint32_t status, uint32_t peer, const char *what)
{
	char text[200];

	snprintf(text, sizeof(text), "%s: rank %u has status %u (want %u), peer %u (want %u)", what,
		r, fault_of(r)->status, status, fault_of(r)->peer, peer);
	expect(fault_of(r)->status == status && fault_of(r)->peer == peer, text);
}

static void enqueue_all_but(uint32_t except)
{
	for (uint32_t r = 0; r < world_size; r++)
		if (r != except) {
			CHECK(cudaSetDevice((int)(r * (uint32_t)n_devices / world_size)));
			enqueue(r);
		}
}

static void failure_cases(void)
{
	const uint32_t last = world_size - 1u;
	struct mc_control control;
	double begin;

	/* a rank that does not come is named by all within its deadline */
	begin_epoch(&short_wait);
	small_dispatch(3);
	enqueue_all_but(UINT32_MAX);
	wait_streams(5000);
	begin = now_ms();
	enqueue_all_but(last);
	wait_streams(3000);
	expect(now_ms() - begin < 200 * 1.1 + 100, "a timeout comes in time");
	for (uint32_t r = 0; r < last; r++)
		fails_with(r, MC_FAULT_TIMEOUT, last, "skipped op");
	expect(fault_of(0)->call == 2 && fault_of(0)->theirs[0] == 1,
		"the record tells who is where");
	begin = now_ms();
	enqueue_all_but(last);
	wait_streams(1000);
	expect(now_ms() - begin < 50, "later ops return at once");
	end_epoch();

	/* ranks whose shapes differ */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	for (uint32_t t = 0; t < 4; t++)
		ranks[last].dispatch.tensor[t].row_bytes /= 2;
	ranks[last].dispatch.digest = mc_dispatch_digest(&ranks[last].dispatch, world_size);
	begin = now_ms();
	enqueue_all_but(UINT32_MAX);
	wait_streams(3000);
	expect(now_ms() - begin < 1000, "a mismatch does not wait for the deadline");
	for (uint32_t r = 0; r < world_size; r++)
		expect(fault_of(r)->status == MC_FAULT_MISMATCH,
			"shapes that differ are a mismatch");
	expect(fault_of(last)->mine[1] != fault_of(last)->theirs[1],
		"both sides' digests are told");
	end_epoch();

	/* an abort while they spin */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	enqueue_all_but(last);
	usleep(20000);
	begin = now_ms();
	__atomic_store_n(&fixture->board->wait.abort_word,
		mc_abort_word(MC_FAULT_PEER_LOST, last + 1u), __ATOMIC_RELEASE);
	wait_streams(3000);
	printf("  abort to exit: %.2f ms\n", now_ms() - begin);
	for (uint32_t r = 0; r < last; r++)
		fails_with(r, MC_FAULT_PEER_LOST, last, "abort word");
	end_epoch();

	/* poison while they spin */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	enqueue_all_but(last);
	usleep(20000);
	begin = now_ms();
	for (uint32_t r = 0; r < last; r++)
		BACKEND->poison(ranks[r].backend, MC_FAULT_ABORTED);
	wait_streams(3000);
	printf("  poison to exit: %.2f ms\n", now_ms() - begin);
	end_epoch();

	/* a payload that equals the sentinel */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	CHECK(cudaSetDevice(0));
	CHECK(cudaMemcpy((uint8_t *)(uintptr_t)ranks[0].dispatch.tensor[0].input + 160,
		&fixture->sentinel, 16, cudaMemcpyHostToDevice));
	CHECK(cudaDeviceSynchronize());
	enqueue_all_but(UINT32_MAX);
	wait_streams(3000);
	fails_with(0, MC_FAULT_SENTINEL, 0, "payload is the sentinel");
	end_epoch();

	/* a damaged control block */
	begin_epoch(&relaxed_wait);
	small_dispatch(3);
	CHECK(cudaSetDevice(fixture->device[0]));
	CHECK(cudaMemcpy(&control, fixture->control[0], sizeof(control), cudaMemcpyDeviceToHost));
	control.canary_tail ^= 1u;
	CHECK(cudaMemcpy(fixture->control[0], &control, sizeof(control), cudaMemcpyHostToDevice));
	CHECK(cudaDeviceSynchronize());
	enqueue_all_but(UINT32_MAX);
	wait_streams(3000);
	expect(fault_of(0)->status == MC_FAULT_CORRUPT, "a damaged canary is reported");
	end_epoch();

	/* counts out of range */
	for (int i = 0; i < 2; i++) {
		int32_t bad = i ? 4 : -1;

		begin_epoch(&relaxed_wait);
		small_dispatch(3);
		for (uint32_t r = 0; r < world_size; r++) {
			int32_t *count = (int32_t *)(ranks[r].device + BUFFER_BYTES - 64u);
			int32_t value = r == 0 ? bad : 2;

			CHECK(cudaSetDevice(fixture->device[r]));
			CHECK(cudaMemcpy(count, &value, 4, cudaMemcpyHostToDevice));
			CHECK(cudaDeviceSynchronize());
			ranks[r].dispatch.count = count;
			ranks[r].dispatch.digest =
				mc_dispatch_digest(&ranks[r].dispatch, world_size);
		}
		enqueue_all_but(UINT32_MAX);
		wait_streams(3000);
		fails_with(0, MC_FAULT_BAD_COUNT, 0, "count out of range");
		end_epoch();
	}
}

/* A graph of one epoch is stale between epochs and right in the next. */
static void epoch_cases(void)
{
	size_t n_bytes[N_GRAPHS];
	double begin;

	begin_epoch(&relaxed_wait);
	capture_all(n_bytes);
	replay_all(200);
	end_epoch();
	begin = now_ms();
	for (uint32_t g = 0; g < N_GRAPHS; g++)
		launch_graph(g);
	wait_streams(1000);
	expect(now_ms() - begin < 200, "between epochs a graph returns at once");
	for (int i = 0; i < 3; i++) {
		begin_epoch(&relaxed_wait);
		probe_all();
		replay_all(200);
		end_epoch();
	}
	destroy_graphs();
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"devices", required_argument, NULL, 'd'},
		{"ranks", required_argument, NULL, 'r'},
		{"cases", required_argument, NULL, 'c'},
		{"replays", required_argument, NULL, 'p'},
		{"seed", required_argument, NULL, 's'},
		{0},
	};
	uint32_t n_cases = 200, n_replays = 2000;
	size_t n_bytes[N_GRAPHS];
	int c, found = 0;
	double begin = now_ms();

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'd':
			n_devices = atoi(optarg);
			break;
		case 'r':
			world_size = (uint32_t)atoi(optarg);
			break;
		case 'c':
			n_cases = (uint32_t)atoi(optarg);
			break;
		case 'p':
			n_replays = (uint32_t)atoi(optarg);
			break;
		case 's':
			rng ^= strtoull(optarg, NULL, 10) * 0x9e3779b97f4a7c15ull;
			break;
		default:
			return 2;
		}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (cudaGetDeviceCount(&found) != cudaSuccess || found < n_devices) {
		printf("skipped: %d GPUs are needed, %d found\n", n_devices, found);
		return 77;
	}
	if (world_size < 2 || world_size > MAX_RANKS)
		return 2;
	open_ranks();
	begin_epoch(&relaxed_wait);
	probe_all();
	printf("probe: %lu checks, %lu wrong\n", n_checks, n_wrong);
	for (uint32_t i = 0; i < n_cases; i++)
		random_case(i);
	printf("random cases: %lu checks, %lu wrong, %.1f s\n", n_checks, n_wrong,
		(now_ms() - begin) / 1e3);
	large_cases();
	printf("large cases: %lu checks, %lu wrong, %.1f s\n", n_checks, n_wrong,
		(now_ms() - begin) / 1e3);
	mask_cases();
	capture_all(n_bytes);
	replay_all(n_replays);
	destroy_graphs();
	printf("masks and graphs: %lu checks, %lu wrong, %.1f s\n", n_checks, n_wrong,
		(now_ms() - begin) / 1e3);
	end_epoch();
	failure_cases();
	printf("failures: %lu checks, %lu wrong, %.1f s\n", n_checks, n_wrong,
		(now_ms() - begin) / 1e3);
	epoch_cases();
	printf("epochs: %lu checks, %lu wrong, %.1f s\n", n_checks, n_wrong,
		(now_ms() - begin) / 1e3);
	close_ranks();
	for (int d = 0; d < n_devices; d++) {
		CHECK(cudaSetDevice(d));
		CHECK(cudaDeviceSynchronize());
	}
	printf("%u ranks on %d GPUs: %lu checks, %lu wrong\n", world_size, n_devices, n_checks,
		n_wrong);
	return n_wrong ? 1 : 0;
}
