/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend against the host ops, bit for bit: the same inputs through both, outputs
 * poisoned alike, whole buffers compared. One process; ranks share the GPUs there are. Prints a
 * line a section and the counts; exits 77 without a GPU.
 *
 *   gpu-ops [--devices N] [--ranks N] [--cases N] [--replays N] [--seed N] [--graphs-only]
 *
 * --graphs-only: nothing but replays, of fifty graph sizes, with ranks that come late at random;
 * for long runs.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/gpu/ops.h"
#include "tests/gpu/ops_numbers.h"

int n_devices = 1;
uint32_t world_size = 2;
unsigned long n_checks, n_wrong;
uint64_t rng = 0x243f6a8885a308d3ull;

static const struct mc_layout_spec spec_of_tests = {
	.n_channels = N_CHANNELS,
	.max_rows = 256,
	.dispatch_row_bytes = 4096,
	.combine_row_bytes = 2u * 16384u,
};

struct rank ranks[MAX_RANKS];
struct mc_fixture *fixture;
static uint64_t epoch_number = 100;

uint64_t next(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

uint32_t below(uint32_t n)
{
	return n ? (uint32_t)(next() >> 11) % n : 0;
}

void expect(bool ok, const char *what)
{
	n_checks++;
	if (ok)
		return;
	n_wrong++;
	if (n_wrong < 40)
		printf("WRONG: %s\n", what);
}

double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

int device_of(uint32_t rank)
{
	return (int)(rank * (uint32_t)n_devices / world_size);
}

/* ---- membership ---- */

const struct mc_wait_line relaxed_wait = {
	.op_timeout_ms = 10000, .warmup_timeout_ms = 20000, .warmup_calls = 4};

void begin_epoch(const struct mc_wait_line *wait)
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

void end_epoch(void)
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

void probe_all(void)
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
		int device = device_of(r);
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
		CHECK(cudaSetDevice(device_of(r)));
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
void wait_streams(double timeout_ms)
{
	double begin = now_ms();

	for (uint32_t r = 0; r < world_size; r++) {
		cudaError_t e;

		CHECK(cudaSetDevice(device_of(r)));
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

void enqueue(uint32_t r)
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

void run_twins(void)
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

void upload(size_t n_bytes)
{
	for (uint32_t r = 0; r < world_size; r++) {
		CHECK(cudaSetDevice(device_of(r)));
		CHECK(cudaMemcpyAsync(ranks[r].device, ranks[r].host, n_bytes,
			cudaMemcpyHostToDevice, ranks[r].stream));
	}
	wait_streams(20000);
}

/* The device's buffers must be the host's, byte for byte, outputs, guards and inputs alike. */
void compare(size_t n_bytes, const char *what)
{
	char text[320];

	for (uint32_t r = 0; r < world_size; r++) {
		size_t i = 0;

		CHECK(cudaSetDevice(device_of(r)));
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

static void number_cases(void)
{
	uint64_t n = 0, differing = 0;

	CHECK(cudaSetDevice(0));
	CHECK(numbers_compare_scale(&n, &differing));
	printf("scales of norms: %llu compared, %llu differ\n", (unsigned long long)n,
		(unsigned long long)differing);
	expect(differing == 0, "the scale of a norm is not the rounded one");
}

static void report(const char *section, double begin)
{
	printf("%s: %lu checks, %lu wrong, %.1f s\n", section, n_checks, n_wrong,
		(now_ms() - begin) / 1e3);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"devices", required_argument, NULL, 'd'},
		{"ranks", required_argument, NULL, 'r'},
		{"cases", required_argument, NULL, 'c'},
		{"replays", required_argument, NULL, 'p'},
		{"seed", required_argument, NULL, 's'},
		{"graphs-only", no_argument, NULL, 'g'},
		{0},
	};
	uint32_t n_cases = 200, n_replays = 2000;
	bool graphs_only = false;
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
		case 'g':
			graphs_only = true;
			break;
		default:
			return 2;
		}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (cudaGetDeviceCount(&found) != cudaSuccess || found < n_devices) {
		printf("skipped: %d GPUs are needed, %d found\n", n_devices, found);
		return 77;
	}
	if (world_size < 1 || world_size > MAX_RANKS)
		return 2;
	open_ranks();
	begin_epoch(&relaxed_wait);
	probe_all();
	report("probe", begin);
	if (graphs_only) {
		graph_cases(50, n_replays, true);
		report("fifty sizes of graphs", begin);
		end_epoch();
	} else {
		number_cases();
		for (uint32_t i = 0; i < n_cases; i++)
			random_case(i);
		report("random cases", begin);
		large_cases();
		report("large cases", begin);
		channel_cases();
		report("all channels at once", begin);
		mask_cases();
		graph_cases(8, n_replays, false);
		graph_leak_case();
		report("masks and graphs", begin);
		early_cases();
		report("chains with other kernels", begin);
		end_epoch();
		/* a rank alone waits for nobody */
		if (world_size > 1)
			failure_cases();
		report("failures", begin);
		epoch_cases();
		report("epochs", begin);
	}
	close_ranks();
	for (int d = 0; d < n_devices; d++) {
		CHECK(cudaSetDevice(d));
		CHECK(cudaDeviceSynchronize());
	}
	printf("%u ranks on %d GPUs: %lu checks, %lu wrong\n", world_size, n_devices, n_checks,
		n_wrong);
	return n_wrong ? 1 : 0;
}
