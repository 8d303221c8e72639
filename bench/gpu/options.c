/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/gpu.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include "bench/common/number.h"

static const char *const kinds[] = {"dispatch", "combine", "fused", "chain"};

const char *bench_kind_name(enum bench_kind kind)
{
	return kinds[kind];
}

const char *bench_form_name(enum bench_form form)
{
	return form == BENCH_ONE ? "one" : "graph100";
}

const char *bench_series_name(enum bench_series series)
{
	static const char *const names[] = {
		"moecomm", "separate", "nccl", "nccl-window", "nccl-nomix", "nccl-window-nomix"};

	return names[series];
}

size_t bench_dtype_bytes(int dtype)
{
	return dtype == BENCH_FP32 ? 4 : 2;
}

const char *bench_dtype_name(int dtype)
{
	return dtype == BENCH_FP32 ? "fp32" : dtype == BENCH_FP16 ? "fp16" : "bf16";
}

static void usage(const char *kind)
{
	printf("usage: moecomm-bench %s [options]\n"
	       "\n"
	       "Measures on GPUs, one process a rank, through a running moecommd.\n"
	       "\n"
	       "  --world-size W      ranks (2)\n"
	       "  --sizes A,B,…       tokens a rank (1,4,16,64,256,1024)\n"
	       "  --hidden D          elements of a combine row (7168)\n"
	       "  --row-bytes N       bytes of a dispatch row (4096)\n"
	       "  --dtype T           bf16, fp16 or fp32 (bf16)\n"
	       "  --replays N         graph replays in one repeat (200); fewer where one is slow\n"
	       "  --repeats N         repeats; medians are told (5)\n"
	       "  --history N         calls of mixed sizes before the first measurement (0)\n"
	       "  --seed N            of the inputs (random)\n"
	       "  --shared-gpu        allow several ranks on one GPU, which says nothing about "
	       "speed\n"
	       "  --nccl auto|off|LIB measure NCCL too, from libnccl.so.2 or the library given "
	       "(auto)\n"
	       "  --socket PATH       of the daemon\n"
	       "  --timeout S         for one phase (120)\n"
	       "  --json FILE         results for programs\n"
	       "  --plot FILE         picture, .svg or .png (needs python3 and gnuplot or "
	       "matplotlib)\n",
		kind);
}

static int sizes(const char *text, struct bench_options *o)
{
	char copy[256], *at, *next = copy;

	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy)) {
		fprintf(stderr, "moecomm-bench: --sizes is too long\n");
		return 2;
	}
	o->n_sizes = 0;
	while ((at = strsep(&next, ","))) {
		if (o->n_sizes == BENCH_MAX_SIZES) {
			fprintf(stderr, "moecomm-bench: at most %d sizes\n", BENCH_MAX_SIZES);
			return 2;
		}
		if (mc_bench_number("sizes", at, 1, 1 << 20, &o->sizes[o->n_sizes++]))
			return 2;
	}
	return 0;
}

int bench_options_parse(int argc, char **argv, struct bench_options *ret_options)
{
	enum {
		WORLD = 1,
		SIZES,
		HIDDEN,
		ROW,
		DTYPE,
		REPLAYS,
		REPEATS,
		SEED,
		HISTORY,
		SHARED,
		NCCL,
		SOCKET,
		TIMEOUT,
		JSON,
		PLOT,
		HELP
	};
	static const struct option table[] = {
		{"world-size", required_argument, NULL, WORLD},
		{"sizes", required_argument, NULL, SIZES},
		{"hidden", required_argument, NULL, HIDDEN},
		{"row-bytes", required_argument, NULL, ROW},
		{"dtype", required_argument, NULL, DTYPE},
		{"replays", required_argument, NULL, REPLAYS},
		{"repeats", required_argument, NULL, REPEATS},
		{"seed", required_argument, NULL, SEED},
		{"history", required_argument, NULL, HISTORY},
		{"shared-gpu", no_argument, NULL, SHARED},
		{"nccl", required_argument, NULL, NCCL},
		{"socket", required_argument, NULL, SOCKET},
		{"timeout", required_argument, NULL, TIMEOUT},
		{"json", required_argument, NULL, JSON},
		{"plot", required_argument, NULL, PLOT},
		{"help", no_argument, NULL, HELP},
		{0},
	};
	struct bench_options o = {.world_size = 2,
		.hidden = 7168,
		.row_bytes = 4096,
		.dtype = BENCH_BF16,
		.replays = 200,
		.repeats = 5,
		.timeout_s = 120,
		.nccl = true,
		.nccl_library = "libnccl.so.2"};
	int64_t v = 0;
	int c, r = 0;

	while (o.kind < BENCH_CHAIN && strcmp(argv[0], kinds[o.kind]) != 0)
		o.kind++;
	if (getrandom(&o.seed, sizeof(o.seed), 0) != (ssize_t)sizeof(o.seed))
		o.seed = 1;
	o.seed >>= 1; /* as --seed and the JSON take it */
	sizes("1,4,16,64,256,1024", &o);
	optind = 0; /* another parser has run before */
	while (!r && (c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (c) {
		case WORLD:
			r = mc_bench_number("world-size", optarg, 1, BENCH_MAX_RANKS, &v);
			o.world_size = (int)v;
			break;
		case SIZES:
			r = sizes(optarg, &o);
			break;
		case HIDDEN:
			r = mc_bench_number("hidden", optarg, 1, 1 << 24, &o.hidden);
			break;
		case ROW:
			r = mc_bench_number("row-bytes", optarg, 1, 1 << 26, &o.row_bytes);
			break;
		case DTYPE:
			o.dtype = strcmp(optarg, "bf16") == 0   ? BENCH_BF16
				  : strcmp(optarg, "fp16") == 0 ? BENCH_FP16
				  : strcmp(optarg, "fp32") == 0 ? BENCH_FP32
								: 0;
			if (!o.dtype) {
				fprintf(stderr,
					"moecomm-bench: --dtype takes bf16, fp16 or fp32, not "
					"\"%s\"\n",
					optarg);
				r = 2;
			}
			break;
		case REPLAYS:
			r = mc_bench_number("replays", optarg, 1, 1000000, &v);
			o.replays = (int)v;
			break;
		case REPEATS:
			r = mc_bench_number("repeats", optarg, 1, BENCH_MAX_REPEATS, &v);
			o.repeats = (int)v;
			break;
		case SEED:
			r = mc_bench_number("seed", optarg, 0, INT64_MAX, &v);
			o.seed = (uint64_t)v;
			break;
		case HISTORY:
			r = mc_bench_number("history", optarg, 0, 1000000000, &v);
			o.history = (int)v;
			break;
		case SHARED:
			o.shared_gpu = true;
			break;
		case NCCL:
			o.nccl = strcmp(optarg, "off") != 0;
			if (o.nccl && strcmp(optarg, "auto") != 0)
				o.nccl_library = optarg;
			break;
		case SOCKET:
			o.socket_path = optarg;
			break;
		case TIMEOUT:
			r = mc_bench_number("timeout", optarg, 1, 86400, &v);
			o.timeout_s = (int)v;
			break;
		case JSON:
			o.json_path = optarg;
			break;
		case PLOT:
			o.plot_path = optarg;
			break;
		case HELP:
			usage(kinds[o.kind]);
			return 1;
		default:
			r = 2;
		}
	}
	if (!r && optind != argc) {
		fprintf(stderr, "moecomm-bench: %s is not understood\n", argv[optind]);
		r = 2;
	}
	if (r)
		return r < 0 ? 2 : r;
	if (o.plot_path && !o.json_path) {
		fprintf(stderr,
			"moecomm-bench: --plot draws from the results: give --json FILE too\n");
		return 2;
	}
	*ret_options = o;
	return 0;
}
