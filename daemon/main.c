/* SPDX-License-Identifier: Apache-2.0 */
/* moecommd: the program. Exit status: 0 stopped in order, 1 could not serve, 2 wrong command line.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "proto/limits.h"
#include "proto/version.h"

enum option_code {
	OPTION_CONFIG = 256,
	OPTION_SOCKET,
	OPTION_BACKEND,
	OPTION_CHECK_CONFIG,
	OPTION_PRINT_CONFIG,
	OPTION_VERSION,
	OPTION_HELP,
};

enum action {
	ACTION_SERVE,
	ACTION_CHECK_CONFIG,
	ACTION_PRINT_CONFIG,
};

static void print_help(void)
{
	printf("Usage: moecommd [OPTION]...\n"
	       "\n"
	       "The host daemon of moecomm: forms groups of ranks, owns their memory, watches "
	       "them.\n"
	       "\n"
	       "  --config FILE                 settings; default: " MC_CONFIG_DEFAULT_FILE
	       " if it exists\n"
	       "  --socket PATH                 the socket's path, over the file's\n"
	       "  --backend auto|host|cuda      the backend, over the file's\n"
	       "  --check-config                checks the settings and exits\n"
	       "  --print-config                prints all settings, with their help, and exits\n"
	       "  --version\n"
	       "  --help\n"
	       "\n"
	       "Signals: SIGTERM and SIGINT stop it (running groups go on), SIGHUP reloads the "
	       "file.\n"
	       "Exit status: 0 stopped in order, 1 could not serve, 2 wrong command line.\n"
	       "\n"
	       "Settings of the file, with their defaults:\n");
	mc_config_help(stdout);
}

static int usage_error(const char *what)
{
	mc_log_end("%s (moecommd --help tells more)", what);
	return 2;
}

/* A handle that is still closing here is a leak of ours: say so rather than hide it. */
static int close_loop(uv_loop_t *loop)
{
	int r;

	uv_run(loop, UV_RUN_DEFAULT);
	r = uv_loop_close(loop);
	if (r)
		mc_log(LOG_ERR, "handles were left open: %s", uv_strerror(r));
	return r;
}

static int serve(const struct mc_config *config, const struct mc_config_overrides *overrides)
{
	struct mc_daemon daemon;
	uv_loop_t loop;
	char error[512];
	int r, status = 0;

	mc_log_set_level((int)config->log_level);
	r = uv_loop_init(&loop);
	if (r) {
		mc_log(LOG_ERR, "cannot start: %s", uv_strerror(r));
		return 1;
	}
	r = mc_daemon_init(&daemon, &loop, config, overrides, error, sizeof(error));
	if (!r)
		r = mc_daemon_serve(&daemon, error, sizeof(error));
	if (r) {
		mc_log_end("%s", error);
		status = 1;
		mc_daemon_stop(&daemon);
	} else {
		uv_run(&loop, UV_RUN_DEFAULT);
	}
	if (close_loop(&loop))
		status = 1;
	mc_daemon_clear(&daemon);
	if (!status)
		mc_log(LOG_INFO, "stopped");
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, OPTION_CONFIG},
		{"socket", required_argument, NULL, OPTION_SOCKET},
		{"backend", required_argument, NULL, OPTION_BACKEND},
		{"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
		{"print-config", no_argument, NULL, OPTION_PRINT_CONFIG},
		{"version", no_argument, NULL, OPTION_VERSION},
		{"help", no_argument, NULL, OPTION_HELP},
		{0},
	};
	struct mc_config_overrides overrides = {0};
	enum action action = ACTION_SERVE;
	struct mc_config config;
	char error[512];
	int code;

	mc_log_open(LOG_INFO);
	opterr = 0;
	while ((code = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		switch (code) {
		case OPTION_CONFIG:
			overrides.file = optarg;
			break;
		case OPTION_SOCKET:
			overrides.socket = optarg;
			break;
		case OPTION_BACKEND:
			overrides.backend = optarg;
			break;
		case OPTION_CHECK_CONFIG:
			action = ACTION_CHECK_CONFIG;
			break;
		case OPTION_PRINT_CONFIG:
			action = ACTION_PRINT_CONFIG;
			break;
		case OPTION_VERSION:
			printf("moecommd %s (protocol %u.%u)\n", mc_version_string(),
				MC_PROTO_MAJOR, MC_PROTO_MINOR);
			return 0;
		case OPTION_HELP:
			print_help();
			return 0;
		case ':':
			snprintf(error, sizeof(error), "%.200s needs a value", argv[optind - 1]);
			return usage_error(error);
		default:
			snprintf(error, sizeof(error), "%.200s is not an option", argv[optind - 1]);
			return usage_error(error);
		}
	}
	if (optind < argc) {
		snprintf(error, sizeof(error), "%.200s is not expected", argv[optind]);
		return usage_error(error);
	}
	if (mc_config_load(&overrides, &config, error, sizeof(error))) {
		mc_log_end("%s", error);
		return 1;
	}
	if (action == ACTION_CHECK_CONFIG) {
		printf("the configuration is fine\n");
		return 0;
	}
	if (action == ACTION_PRINT_CONFIG) {
		mc_config_print(&config, stdout);
		return 0;
	}
	return serve(&config, &overrides);
}
