/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm-bench's --help as a build with CUDA has it, also where there is none: its own table and
 * its own options of the commands on GPUs, with nothing that measures.
 */
#include <stdio.h>
#include <string.h>
#include "bench/bench.h"
#include "bench/gpu/gpu.h"

int mc_bench_control(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return MC_BENCH_USAGE;
}

int mc_bench_failures(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return MC_BENCH_USAGE;
}

int mc_bench_gpu(int argc, char **argv)
{
	struct bench_options options;

	return bench_options_parse(argc, argv, &options) == 1 ? MC_BENCH_OK : MC_BENCH_USAGE;
}
