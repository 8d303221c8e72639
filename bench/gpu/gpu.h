/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm-bench dispatch|combine|fused|chain: the ops on GPUs, one process a rank, through the
 * daemon and the public library, beside NCCL and the machine's floors, all in one run.
 */
#ifndef MC_BENCH_GPU_H
#define MC_BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_RANKS   64
#define BENCH_MAX_SIZES   24
#define BENCH_MAX_REPEATS 25
/* Ops in a long graph. */
#define BENCH_GRAPH_OPS 100

enum bench_kind {
	BENCH_DISPATCH,
	BENCH_COMBINE,
	BENCH_FUSED,
	BENCH_CHAIN,
};

/* How ops are launched. */
enum bench_form {
	BENCH_ONE,  /* a graph of one op (chain: of one dispatch and one combine), replayed */
	BENCH_LONG, /* a graph of BENCH_GRAPH_OPS ops, replayed */
	BENCH_N_FORMS,
};

/* Who does the work. */
enum bench_series {
	BENCH_OURS,
	BENCH_SEPARATE, /* fused only: our combine, then an add and a norm kernel */
	BENCH_NCCL,
	BENCH_NCCL_WINDOW, /* every buffer registered as a symmetric window */
	BENCH_NCCL_NOMIX,  /* NCCL_GRAPH_MIXING_SUPPORT=0 */
	BENCH_NCCL_WINDOW_NOMIX,
	BENCH_N_SERIES,
};

/* Numbers of enum moecomm_dtype. */
enum bench_dtype {
	BENCH_BF16 = 1,
	BENCH_FP16 = 2,
	BENCH_FP32 = 3,
};

struct bench_options {
	enum bench_kind kind;
	int world_size;
	int n_sizes;
	int64_t sizes[BENCH_MAX_SIZES]; /* tokens a rank */
	int64_t hidden;
	int64_t row_bytes;
	int dtype;
	int replays;
	int repeats;
	int timeout_s; /* of one phase */
	int history;   /* calls of mixed sizes before the first measurement */
	bool shared_gpu;
	bool nccl;
	const char *nccl_library;
	const char *socket_path; /* NULL: the library's default */
	const char *json_path;
	const char *plot_path;
	uint64_t seed;
};

const char *bench_kind_name(enum bench_kind kind);
const char *bench_form_name(enum bench_form form);
const char *bench_series_name(enum bench_series series);
/* Bytes an element. */
size_t bench_dtype_bytes(int dtype);
const char *bench_dtype_name(int dtype);

/* Returns 0, 1 (help was asked for and printed) or 2 (wrong usage, said on stderr). */
int bench_options_parse(int argc, char **argv, struct bench_options *ret_options);

/* argv[0] is the kind. Returns an exit status: 0, 1 failed or wrong bytes, 2 usage. */
int mc_bench_gpu(int argc, char **argv);

#endif
