/* SPDX-License-Identifier: Apache-2.0 */
/* moecomm-bench: measures. */
#include <stdio.h>
#include <string.h>
#include "bench/bench.h"
#ifdef MC_BENCH_HAVE_CUDA
#include "bench/gpu/gpu.h"
#endif

static const struct mc_bench_command commands[] = {
	{"control", "control plane: attach, status queries, a storm of connects", mc_bench_control},
	{"failures", "how soon ranks hear of failures, and run again", mc_bench_failures},
#ifdef MC_BENCH_HAVE_CUDA
	{"dispatch", "dispatch on GPUs, beside NCCL and the machine's floors", mc_bench_gpu},
	{"combine", "combine on GPUs", mc_bench_gpu},
	{"fused", "combine + residual + RMSNorm on GPUs, beside its separate kernels",
		mc_bench_gpu},
	{"chain", "alternating dispatch and combine on GPUs", mc_bench_gpu},
#endif
	{NULL, NULL, NULL},
};

static void usage(FILE *to)
{
	fputs("usage: moecomm-bench COMMAND [OPTION…]; COMMAND --help lists its "
	      "options\n\nCommands:\n",
		to);
	for (const struct mc_bench_command *c = commands; c->name; c++)
		fprintf(to, "  %-10s %s\n", c->name, c->help);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return MC_BENCH_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return MC_BENCH_OK;
	}
	for (const struct mc_bench_command *c = commands; c->name; c++)
		if (!strcmp(argv[1], c->name))
			return c->run(argc - 1, argv + 1);
	fprintf(stderr, "moecomm-bench: unknown command '%s'; --help lists all\n", argv[1]);
	return MC_BENCH_USAGE;
}
