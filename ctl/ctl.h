/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of moecommctl share. A command is a file and a row of the table in main.c. */
#ifndef MC_CTL_CTL_H
#define MC_CTL_CTL_H

#include <stdbool.h>

/* Exit statuses; scripts depend on them. */
enum mc_ctl_exit {
	MC_CTL_OK = 0,
	MC_CTL_REFUSED = 1, /* the daemon said no, or what was asked for is not there */
	MC_CTL_USAGE = 2,
	MC_CTL_UNREACHABLE = 3, /* no daemon, no permission, or no answer in time */
	MC_CTL_UNHEALTHY = 4,   /* health: something is stalled, failed or not ready */
};

/* "schema" of every JSON answer. Fields are only added; a change of meaning makes it 2. */
#define MC_CTL_SCHEMA 1

struct mc_ctl {
	const char *socket; /* --socket; NULL: the default */
	bool json;
	bool color; /* stdout is a terminal that shows colours and nobody asked for none */
};

/*
 * A command returns an exit status and has told on stderr, in one line, what went wrong. argv[0] is
 * its own name.
 */
struct mc_ctl_command {
	const char *name;
	const char *arguments;
	const char *help;
	int (*run)(const struct mc_ctl *ctl, int argc, char **argv);
};

/* Ends with an entry without a name. */
extern const struct mc_ctl_command mc_ctl_commands[];

int mc_ctl_status(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_groups(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_clients(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_health(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_abort(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_deadline(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_dump(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_explain(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_metrics(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_release(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_top(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_version(const struct mc_ctl *ctl, int argc, char **argv);
int mc_ctl_help(const struct mc_ctl *ctl, int argc, char **argv);

/* One line on stderr, "moecommctl: …"; returns MC_CTL_USAGE. */
int mc_ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For commands without options: 0, or MC_CTL_USAGE after telling what is too much. */
int mc_ctl_no_arguments(int argc, char **argv);

#endif
