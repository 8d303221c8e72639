/* SPDX-License-Identifier: Apache-2.0 */
/* moecomm-bench: a file a subcommand, a row of the table in main.c each. */
#ifndef MC_BENCH_BENCH_H
#define MC_BENCH_BENCH_H

enum mc_bench_exit {
	MC_BENCH_OK = 0,
	MC_BENCH_FAILED = 1, /* something that was measured failed, or a result was wrong */
	MC_BENCH_USAGE = 2,
	MC_BENCH_UNREACHABLE = 3, /* no daemon */
};

struct mc_bench_command {
	const char *name;
	const char *help;
	/* argv[0] is the command's own name; --help is its own as well */
	int (*run)(int argc, char **argv);
};

int mc_bench_control(int argc, char **argv);
int mc_bench_failures(int argc, char **argv);

#endif
