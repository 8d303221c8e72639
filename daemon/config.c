/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

static const uint32_t backend_values[] = {
	MC_BACKEND_CHOICE_AUTO, MC_BACKEND_CHOICE_HOST, MC_BACKEND_CHOICE_CUDA};
static const uint32_t level_values[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

#define AT(member) offsetof(struct mc_config, member)

const struct mc_setting mc_settings[] = {
	{"daemon", "socket", MC_SETTING_PATH, AT(socket), "", 0, 0, NULL, NULL, false,
		"Path of the socket. Empty: /run/moecomm/moecommd.sock for root, else "
		"$XDG_RUNTIME_DIR/moecomm/moecommd.sock."},
	{"daemon", "socket_mode", MC_SETTING_MODE, AT(socket_mode), "0660", 0, 0777, NULL, NULL,
		false, "Permissions of the socket: who may write to it may use the daemon."},
	{"daemon", "socket_group", MC_SETTING_NAME, AT(socket_group), "", 0, 0, NULL, NULL, false,
		"Group that owns the socket. Empty: the daemon's own group."},
	{"daemon", "backend", MC_SETTING_CHOICE, AT(backend), "auto", 0, 0, "auto|host|cuda",
		backend_values, false,
		"Where arenas live: cuda, host, or auto (cuda where a GPU and its driver answer)."},
	{"daemon", "arm_helper", MC_SETTING_PATH, AT(arm_helper), "", 0, 0, NULL, NULL, false,
		"Path of moecomm-arm, which makes the memory on GPUs. Empty: beside the daemon, or "
		"in "
		"libexec."},
	{"daemon", "log_level", MC_SETTING_CHOICE, AT(log_level), "info", 0, 0,
		"error|warning|info|debug", level_values, true,
		"Least important lines that are logged."},
	{"groups", "arm_timeout_ms", MC_SETTING_MS, AT(arm_timeout_ms), "60000", 100, 3600000, NULL,
		NULL, true, "Longest time that creating and filling a group's memory may take."},
	{"groups", "drain_ms", MC_SETTING_MS, AT(drain_ms), "500", 0, 60000, NULL, NULL, true,
		"After a member leaves: how long the others' last ops may go on before the epoch "
		"ends "
		"for them too."},
	{"groups", "stall_ms", MC_SETTING_MS, AT(stall_ms), "2000", 10, 3600000, NULL, NULL, true,
		"A rank that others wait for is stalled after this time without progress."},
	{"groups", "resume_timeout_ms", MC_SETTING_MS, AT(resume_timeout_ms), "30000", 100, 3600000,
		NULL, NULL, true,
		"After a restart of the daemon: how long the members of running groups have to "
		"come "
		"back. Who has not by then counts as lost."},
	{"limits", "hello_timeout_ms", MC_SETTING_MS, AT(hello_timeout_ms), "10000", 10, 3600000,
		NULL, NULL, true, "A connection that has not said hello by then is closed."},
	{"limits", "max_connections", MC_SETTING_COUNT, AT(max_connections), "4096", 1, 1000000,
		NULL, NULL, true, "Connections in all."},
	{"limits", "max_connections_per_uid", MC_SETTING_COUNT, AT(max_connections_per_uid), "1024",
		1, 1000000, NULL, NULL, true, "Connections of one user."},
	{"limits", "max_groups_per_uid", MC_SETTING_COUNT, AT(max_groups_per_uid), "256", 1,
		1000000, NULL, NULL, true, "Groups that one user has created."},
	{"limits", "max_arena_bytes_per_uid", MC_SETTING_BYTES, AT(max_arena_bytes_per_uid), "1T",
		UINT64_C(1) << 20, UINT64_C(1) << 50, NULL, NULL, true,
		"Memory of one user's groups, until the last process that maps it lets go."},
	{"limits", "max_fds_per_uid", MC_SETTING_COUNT, AT(max_fds_per_uid), "16384", 16, 1000000,
		NULL, NULL, true,
		"File descriptors held for one user, or on their way to its clients."},
	{"limits", "max_queue_bytes", MC_SETTING_BYTES, AT(max_queue_bytes), "4M",
		UINT64_C(64) << 10, UINT64_C(1) << 30, NULL, NULL, false,
		"Unread replies of one connection; a client beyond it is cut off."},
	{"limits", "max_queued_bytes_per_uid", MC_SETTING_BYTES, AT(max_queued_bytes_per_uid),
		"64M", UINT64_C(64) << 10, UINT64_C(1) << 40, NULL, NULL, true,
		"Unread replies of all connections of one user."},
	{"limits", "max_requests_per_second_per_uid", MC_SETTING_COUNT,
		AT(max_requests_per_second_per_uid), "20000", 1, 100000000, NULL, NULL, true,
		"Requests of one user; more are refused with QUOTA."},
	{"metrics", "metrics_port", MC_SETTING_COUNT, AT(metrics_port), "0", 0, 65535, NULL, NULL,
		false, "Port of http://ADDRESS:PORT/metrics for Prometheus. 0: not served."},
	{"metrics", "metrics_address", MC_SETTING_NAME, AT(metrics_address), "127.0.0.1", 0, 0,
		NULL, NULL, false,
		"Address that it is served at, without encryption or password: whoever reaches it "
		"reads "
		"names of groups."},
};
const size_t mc_n_settings = sizeof(mc_settings) / sizeof(mc_settings[0]);

static void *setting_at(const struct mc_setting *setting, struct mc_config *config)
{
	return (char *)config + setting->offset;
}

static size_t text_size(const struct mc_setting *setting)
{
	return setting->type == MC_SETTING_PATH ? MC_CONFIG_PATH_BYTES : MC_CONFIG_NAME_BYTES;
}

static void format_bytes(uint64_t n, char *ret_text, size_t n_text)
{
	static const char suffixes[] = "KMGT";
	int i = -1;

	while (n && n % 1024 == 0 && i < 3) {
		n /= 1024;
		i++;
	}
	if (i < 0)
		snprintf(ret_text, n_text, "%" PRIu64, n);
	else
		snprintf(ret_text, n_text, "%" PRIu64 "%c", n, suffixes[i]);
}

void mc_setting_allowed(const struct mc_setting *setting, char *ret_text, size_t n_text)
{
	char min[32], max[32];

	switch (setting->type) {
	case MC_SETTING_PATH:
		snprintf(ret_text, n_text, "an absolute path of at most %u bytes",
			MC_CONFIG_PATH_BYTES - 1);
		break;
	case MC_SETTING_NAME:
		snprintf(ret_text, n_text, "a name of at most %u bytes", MC_CONFIG_NAME_BYTES - 1);
		break;
	case MC_SETTING_MODE:
		snprintf(ret_text, n_text, "an octal mode from 0 to 0777");
		break;
	case MC_SETTING_COUNT:
		snprintf(ret_text, n_text, "a number from %" PRIu64 " to %" PRIu64, setting->min,
			setting->max);
		break;
	case MC_SETTING_MS:
		snprintf(ret_text, n_text, "milliseconds from %" PRIu64 " to %" PRIu64,
			setting->min, setting->max);
		break;
	case MC_SETTING_BYTES:
		format_bytes(setting->min, min, sizeof(min));
		format_bytes(setting->max, max, sizeof(max));
		snprintf(ret_text, n_text,
			"bytes from %s to %s, with K, M, G or T for powers of 1024", min, max);
		break;
	case MC_SETTING_CHOICE:
		snprintf(ret_text, n_text, "one of %s", setting->choices);
		break;
	}
}

/* A number without sign, fraction or blanks. */
static int parse_number(const char *text, int base, const char **ret_rest, uint64_t *ret_n)
{
	char *end;
	unsigned long long n;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, base);
	if (errno)
		return -EINVAL;
	*ret_rest = end;
	*ret_n = n;
	return 0;
}

static int parse_choice(const struct mc_setting *setting, const char *text, uint32_t *ret_value)
{
	const char *at = setting->choices;
	size_t n = strlen(text);

	for (size_t i = 0; *at; i++) {
		size_t n_choice = strcspn(at, "|");

		if (n_choice == n && !memcmp(at, text, n)) {
			*ret_value = setting->choice_values[i];
			return 0;
		}
		at += n_choice;
		at += *at == '|';
	}
	return -EINVAL;
}

static int parse_bytes(const char *text, uint64_t *ret_n)
{
	static const char suffixes[] = "KMGT";
	const char *rest, *suffix;
	uint64_t n;
	unsigned shift = 0;

	if (parse_number(text, 10, &rest, &n))
		return -EINVAL;
	if (*rest) {
		suffix = strchr(suffixes, *rest);
		if (!suffix || rest[1])
			return -EINVAL;
		shift = 10u * (unsigned)(suffix - suffixes + 1);
	}
	if (n > UINT64_MAX >> shift)
		return -EINVAL;
	*ret_n = n << shift;
	return 0;
}

int mc_setting_parse(const struct mc_setting *setting, const char *text, struct mc_config *config,
	char *ret_error, size_t n_error)
{
	void *at = setting_at(setting, config);
	const char *rest = "";
	uint64_t n = 0;
	int r = 0;
	char allowed[160];

	switch (setting->type) {
	case MC_SETTING_PATH:
		if (strlen(text) >= text_size(setting) || (*text && *text != '/'))
			r = -EINVAL;
		else
			strcpy(at, text);
		break;
	case MC_SETTING_NAME:
		if (strlen(text) >= text_size(setting))
			r = -EINVAL;
		else
			strcpy(at, text);
		break;
	case MC_SETTING_MODE:
		r = parse_number(text, 8, &rest, &n);
		if (!r && (*rest || n > setting->max))
			r = -EINVAL;
		if (!r)
			*(uint32_t *)at = (uint32_t)n;
		break;
	case MC_SETTING_COUNT:
	case MC_SETTING_MS:
		r = parse_number(text, 10, &rest, &n);
		if (!r && (*rest || n < setting->min || n > setting->max))
			r = -EINVAL;
		if (!r)
			*(uint32_t *)at = (uint32_t)n;
		break;
	case MC_SETTING_BYTES:
		r = parse_bytes(text, &n);
		if (!r && (n < setting->min || n > setting->max))
			r = -EINVAL;
		if (!r)
			*(uint64_t *)at = n;
		break;
	case MC_SETTING_CHOICE:
		r = parse_choice(setting, text, at);
		break;
	}
	if (r) {
		mc_setting_allowed(setting, allowed, sizeof(allowed));
		snprintf(ret_error, n_error, "%s = %.80s is not allowed: must be %s", setting->name,
			text, allowed);
	}
	return r;
}

void mc_setting_format(const struct mc_setting *setting, const struct mc_config *config,
	char *ret_text, size_t n_text)
{
	const void *at = (const char *)config + setting->offset;
	const char *choice;
	uint32_t value;

	switch (setting->type) {
	case MC_SETTING_PATH:
	case MC_SETTING_NAME:
		snprintf(ret_text, n_text, "%s", (const char *)at);
		break;
	case MC_SETTING_MODE:
		snprintf(ret_text, n_text, "%04o", *(const uint32_t *)at);
		break;
	case MC_SETTING_COUNT:
	case MC_SETTING_MS:
		snprintf(ret_text, n_text, "%" PRIu32, *(const uint32_t *)at);
		break;
	case MC_SETTING_BYTES:
		format_bytes(*(const uint64_t *)at, ret_text, n_text);
		break;
	case MC_SETTING_CHOICE:
		value = *(const uint32_t *)at;
		choice = setting->choices;
		for (size_t i = 0; setting->choice_values[i] != value && strchr(choice, '|'); i++)
			choice = strchr(choice, '|') + 1;
		snprintf(ret_text, n_text, "%.*s", (int)strcspn(choice, "|"), choice);
		break;
	}
}

/* State of one reading of a file. */
struct reading {
	FILE *stream;
	struct mc_config *config;
	int line;
	bool in_long_line;
	int error_line; /* 0: none yet */
	char error[320];
	bool seen[sizeof(mc_settings) / sizeof(mc_settings[0])];
};

/* Counts lines, so that an error can name its own; inih tells only the first one's. */
static char *read_line(char *buffer, int n_buffer, void *data)
{
	struct reading *reading = data;
	char *line = fgets(buffer, n_buffer, reading->stream);
	size_t n;

	if (!line)
		return NULL;
	if (!reading->in_long_line)
		reading->line++;
	n = strlen(line);
	reading->in_long_line = n && line[n - 1] != '\n' && !feof(reading->stream);
	if (reading->in_long_line && !reading->error_line) {
		reading->error_line = reading->line;
		snprintf(reading->error, sizeof(reading->error), "line is longer than %d bytes",
			n_buffer - 2);
	}
	return line;
}

static int set_one(void *data, const char *section, const char *name, const char *value)
{
	struct reading *reading = data;
	size_t i;

	if (reading->error_line)
		return 0;
	for (i = 0; i < mc_n_settings; i++)
		if (!strcmp(mc_settings[i].section, section) && !strcmp(mc_settings[i].name, name))
			break;
	if (i == mc_n_settings)
		snprintf(reading->error, sizeof(reading->error),
			"[%.40s] %.80s is not a setting (moecommd --help lists them)", section,
			name);
	else if (reading->seen[i])
		snprintf(reading->error, sizeof(reading->error), "%s is set twice", name);
	else if (!mc_setting_parse(&mc_settings[i], value, reading->config, reading->error,
			 sizeof(reading->error)))
		reading->seen[i] = true;
	if (i < mc_n_settings && reading->seen[i] && !*reading->error)
		return 1;
	reading->error_line = reading->line;
	return 0;
}

static int load_file(const char *file, bool may_be_absent, struct mc_config *config,
	char *ret_error, size_t n_error)
{
	struct reading reading = {.config = config};
	int r, first;

	reading.stream = fopen(file, "re");
	if (!reading.stream) {
		r = -errno;
		if (r == -ENOENT && may_be_absent)
			return 0;
		snprintf(ret_error, n_error, "cannot read %s: %s", file, strerror(-r));
		return r;
	}
	first = ini_parse_stream(read_line, &reading, set_one, &reading);
	r = ferror(reading.stream) ? -EIO : 0;
	fclose(reading.stream);
	if (r) {
		snprintf(ret_error, n_error, "cannot read %s: %s", file, strerror(-r));
		return r;
	}
	if (reading.error_line && (first <= 0 || first >= reading.error_line)) {
		snprintf(ret_error, n_error, "%s:%d: %s", file, reading.error_line, reading.error);
		return -EINVAL;
	}
	if (first) {
		snprintf(ret_error, n_error, "%s:%d: neither [section] nor name = value", file,
			first > 0 ? first : 1);
		return -EINVAL;
	}
	return 0;
}

static int default_socket(char *ret_path, size_t n_path, char *ret_error, size_t n_error)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (geteuid() == 0)
		n = snprintf(ret_path, n_path, "/run/moecomm/moecommd.sock");
	else if (runtime && *runtime == '/')
		n = snprintf(ret_path, n_path, "%s/moecomm/moecommd.sock", runtime);
	else
		/* a system service with a user of its own has a runtime directory made for it */
		n = snprintf(ret_path, n_path, "/run/moecomm/moecommd.sock");
	if (n < 0 || (size_t)n >= n_path) {
		snprintf(ret_error, n_error,
			"$XDG_RUNTIME_DIR is too long for a socket path: set one of at most %u "
			"bytes with "
			"--socket",
			MC_CONFIG_PATH_BYTES - 1);
		return -EINVAL;
	}
	return 0;
}

static const struct mc_setting *find_setting(const char *name)
{
	for (size_t i = 0; i < mc_n_settings; i++)
		if (!strcmp(mc_settings[i].name, name))
			return &mc_settings[i];
	return NULL;
}

static int override(const char *name, const char *text, struct mc_config *config, char *ret_error,
	size_t n_error)
{
	char error[256];
	int r;

	if (!text)
		return 0;
	r = mc_setting_parse(find_setting(name), text, config, error, sizeof(error));
	if (r)
		snprintf(ret_error, n_error, "command line: --%s", error);
	return r;
}

int mc_config_load(const struct mc_config_overrides *overrides, struct mc_config *ret_config,
	char *ret_error, size_t n_error)
{
	struct mc_config config;
	int r;

	memset(&config, 0, sizeof(config));
	for (size_t i = 0; i < mc_n_settings; i++) {
		r = mc_setting_parse(
			&mc_settings[i], mc_settings[i].default_text, &config, ret_error, n_error);
		if (r)
			return r;
	}
	r = load_file(overrides->file ? overrides->file : MC_CONFIG_DEFAULT_FILE, !overrides->file,
		&config, ret_error, n_error);
	if (r)
		return r;
	r = override("socket", overrides->socket, &config, ret_error, n_error);
	if (r)
		return r;
	r = override("backend", overrides->backend, &config, ret_error, n_error);
	if (r)
		return r;
	if (!*config.socket) {
		r = default_socket(config.socket, sizeof(config.socket), ret_error, n_error);
		if (r)
			return r;
	}
	*ret_config = config;
	return 0;
}

void mc_config_print(const struct mc_config *config, FILE *out)
{
	const char *section = "";
	char text[MC_CONFIG_PATH_BYTES], allowed[160];

	for (size_t i = 0; i < mc_n_settings; i++) {
		if (strcmp(section, mc_settings[i].section)) {
			section = mc_settings[i].section;
			fprintf(out, "%s[%s]\n", i ? "\n" : "", section);
		}
		mc_setting_allowed(&mc_settings[i], allowed, sizeof(allowed));
		mc_setting_format(&mc_settings[i], config, text, sizeof(text));
		fprintf(out, "# %s\n# Takes %s; default: %s%s\n%s = %s\n", mc_settings[i].help,
			allowed,
			*mc_settings[i].default_text ? mc_settings[i].default_text : "empty",
			mc_settings[i].reloads ? "; reloads on SIGHUP" : "", mc_settings[i].name,
			text);
	}
}

void mc_config_help(FILE *out)
{
	char allowed[160];

	for (size_t i = 0; i < mc_n_settings; i++) {
		mc_setting_allowed(&mc_settings[i], allowed, sizeof(allowed));
		fprintf(out, "  [%s] %s = %s\n      %s\n      Takes %s.\n", mc_settings[i].section,
			mc_settings[i].name, mc_settings[i].default_text, mc_settings[i].help,
			allowed);
	}
}
