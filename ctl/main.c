/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl: asks the daemon what is going on. */
#include "ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct mc_ctl_command mc_ctl_commands[] = {
	{"status", "", "the daemon, its groups and its GPUs", mc_ctl_status},
	{"groups", "[-v] [GROUP]", "groups; -v: with their ranks, deadlines and memory",
		mc_ctl_groups},
	{"clients", "", "connected processes", mc_ctl_clients},
	{"health", "", "what is stalled, failed or not ready; exit status 4 when anything is",
		mc_ctl_health},
	{"explain", "GROUP", "what is wrong with a group, whose doing it is and what to do",
		mc_ctl_explain},
	{"top", "[-d S] [-n N | --once]", "live: calls, bytes, waits and lag by group and rank",
		mc_ctl_top},
	{"metrics", "", "Prometheus text exposition", mc_ctl_metrics},
	{"dump", "", "everything as one JSON text, for a bug report", mc_ctl_dump},
	{"deadline", "GROUP [--op-ms N] …",
		"change a ready group's deadlines (--warmup-ms, "
		"--warmup-calls)",
		mc_ctl_deadline},
	{"release", "UUID", "see that nothing of a GPU is held, before it is reset",
		mc_ctl_release},
	{"abort", "GROUP [--reason TEXT]", "end a group's epoch for all its members", mc_ctl_abort},
	{"version", "", "versions of this program and of the daemon", mc_ctl_version},
	{"help", "", "this text", mc_ctl_help},
	{NULL, NULL, NULL, NULL},
};

int mc_ctl_usage(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("moecommctl: ", stderr);
	vfprintf(stderr, format, arguments);
	fputs("; 'moecommctl help' lists all commands\n", stderr);
	va_end(arguments);
	return MC_CTL_USAGE;
}

int mc_ctl_no_arguments(int argc, char **argv)
{
	return argc > 1 ? mc_ctl_usage("%s takes no '%s'", argv[0], argv[1]) : 0;
}

int mc_ctl_help(const struct mc_ctl *ctl, int argc, char **argv)
{
	int r = mc_ctl_no_arguments(argc, argv);

	(void)ctl;
	if (r)
		return r;
	puts("usage: moecommctl [--socket PATH] [--json] COMMAND\n\nCommands:");
	for (const struct mc_ctl_command *c = mc_ctl_commands; c->name; c++) {
		char call[64];

		snprintf(call, sizeof(call), "%s %s", c->name, c->arguments);
		printf("  %-29s %s\n", call, c->help);
	}
	puts("\nOptions:\n"
	     "  --socket PATH  the daemon's socket; by default $MOECOMM_SOCKET, else\n"
	     "                 /run/moecomm/moecommd.sock, else "
	     "$XDG_RUNTIME_DIR/moecomm/moecommd.sock\n"
	     "  --json         JSON instead of tables; numbers are exact, units stand in the "
	     "names\n"
	     "\n"
	     "Exit status: 0 fine, 1 refused, 2 usage, 3 daemon unreachable, 4 unhealthy.");
	return MC_CTL_OK;
}

static bool want_color(void)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no_color && *no_color) && term &&
	       strcmp(term, "dumb") != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct mc_ctl ctl = {.color = want_color()};
	const struct mc_ctl_command *command = mc_ctl_commands;
	const char *name = NULL;
	int option, r;

	setlocale(LC_CTYPE, ""); /* labels in UTF-8 get their width right in tables */
	/* '+': options behind the command are the command's own */
	while ((option = getopt_long(argc, argv, "+hs:", options, NULL)) != -1) {
		switch (option) {
		case 's':
			ctl.socket = optarg;
			break;
		case 'j':
			ctl.json = true;
			break;
		case 'h':
			name = "help";
			break;
		case 'v':
			name = "version";
			break;
		default:
			return mc_ctl_usage("wrong option");
		}
	}
	/* both orders read naturally, so --json is taken behind the command as well */
	for (int i = optind; i < argc; i++) {
		if (strcmp(argv[i], "--json") != 0)
			continue;
		ctl.json = true;
		memmove(&argv[i], &argv[i + 1], (size_t)(argc - i) * sizeof(*argv));
		argc--;
		i--;
	}
	if (name) {
		static char *alone[] = {NULL, NULL};

		alone[0] = (char *)name;
		argv = alone;
		argc = 1;
	} else {
		if (optind == argc)
			return mc_ctl_usage("no command given");
		argv += optind;
		argc -= optind;
	}
	while (command->name && strcmp(command->name, argv[0]) != 0)
		command++;
	if (!command->name)
		return mc_ctl_usage("unknown command '%s'", argv[0]);
	optind = 0; /* the command parses its own from the start */
	r = command->run(&ctl, argc, argv);
	if (fflush(stdout) == EOF && r == MC_CTL_OK) {
		fprintf(stderr, "moecommctl: cannot write the output: %s\n", strerror(errno));
		r = MC_CTL_REFUSED;
	}
	return r;
}
