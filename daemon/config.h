/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's settings. One table feeds parsing, --help, --print-config and the manual page, so
 * that they can't disagree.
 */
#ifndef MC_DAEMON_CONFIG_H
#define MC_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The kernel's sun_path holds 108 bytes with the terminator. */
#define MC_CONFIG_PATH_BYTES 108u
#define MC_CONFIG_NAME_BYTES 64u

enum mc_backend_choice {
	MC_BACKEND_CHOICE_AUTO = 0,
	MC_BACKEND_CHOICE_HOST = 1,
	MC_BACKEND_CHOICE_CUDA = 2,
};

struct mc_config {
	char socket[MC_CONFIG_PATH_BYTES];
	uint32_t socket_mode;
	char socket_group[MC_CONFIG_NAME_BYTES];
	uint32_t backend; /* enum mc_backend_choice */
	char arm_helper[MC_CONFIG_PATH_BYTES];
	uint32_t log_level; /* a syslog priority */
	uint32_t hello_timeout_ms;
	uint32_t arm_timeout_ms;
	uint32_t drain_ms;
	uint32_t stall_ms;
	uint32_t resume_timeout_ms;
	uint32_t max_connections;
	uint32_t max_connections_per_uid;
	uint32_t max_groups_per_uid;
	uint64_t max_arena_bytes_per_uid;
	uint32_t max_fds_per_uid;
	uint64_t max_queue_bytes;
	uint64_t max_queued_bytes_per_uid;
	uint32_t max_requests_per_second_per_uid;
	uint32_t metrics_port; /* 0: not served */
	char metrics_address[MC_CONFIG_NAME_BYTES];
};

enum mc_setting_type {
	MC_SETTING_PATH,
	MC_SETTING_NAME,
	MC_SETTING_MODE,  /* octal */
	MC_SETTING_COUNT, /* 32 bits */
	MC_SETTING_MS,    /* 32 bits; milliseconds */
	MC_SETTING_BYTES, /* 64 bits; K, M, G, T for powers of 1024 */
	MC_SETTING_CHOICE,
};

/* One row of the table. */
struct mc_setting {
	const char *section;
	const char *name;
	enum mc_setting_type type;
	size_t offset; /* in struct mc_config */
	const char *default_text;
	uint64_t min; /* numbers */
	uint64_t max;
	const char *choices;           /* MC_SETTING_CHOICE: "auto|host|cuda" */
	const uint32_t *choice_values; /* one a choice */
	bool reloads; /* takes effect on SIGHUP; else the daemon has to be restarted */
	const char *help;
};

extern const struct mc_setting mc_settings[];
extern const size_t mc_n_settings;

/* What the command line says about settings; stronger than the file, also at a reload. */
struct mc_config_overrides {
	const char *file;    /* NULL: the default file, which need not exist */
	const char *socket;  /* NULL: not given */
	const char *backend; /* NULL: not given */
};

#define MC_CONFIG_DEFAULT_FILE "/etc/moecomm/moecommd.conf"

/*
 * Reads file and overrides over the defaults. Returns 0 and sets *ret_config, or -EINVAL or another
 * -errno and puts a line into ret_error that names file, line, key and what is allowed.
 */
int mc_config_load(const struct mc_config_overrides *overrides, struct mc_config *ret_config,
	char *ret_error, size_t n_error);

/* Sets one setting from text. Returns 0, or -EINVAL and says in ret_error what is allowed. */
int mc_setting_parse(const struct mc_setting *setting, const char *text, struct mc_config *config,
	char *ret_error, size_t n_error);
/* The value as mc_setting_parse reads it. */
void mc_setting_format(const struct mc_setting *setting, const struct mc_config *config,
	char *ret_text, size_t n_text);
/* What the setting takes, in words: "a number from 1 to 64". */
void mc_setting_allowed(const struct mc_setting *setting, char *ret_text, size_t n_text);

/* The whole configuration as a file that mc_config_load reads back, each setting with its help. */
void mc_config_print(const struct mc_config *config, FILE *out);
/* The table for --help. */
void mc_config_help(FILE *out);

#endif
