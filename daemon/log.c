/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1536u
#define BURST      10u
#define REFILL_MS  1000u

static int log_level = LOG_INFO;
static bool to_journal;

uint64_t mc_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void mc_log_open(int level)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	log_level = level;
	to_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		     !fstat(STDERR_FILENO, &st) && st.st_dev == device && st.st_ino == inode;
}

void mc_log_set_level(int level)
{
	log_level = level;
}

static const char *level_name(int level)
{
	switch (level) {
	case LOG_ERR:
		return "error";
	case LOG_WARNING:
		return "warning";
	case LOG_INFO:
		return "info";
	default:
		return "debug";
	}
}

static void add_field(struct iovec *fields, int *io_n, char *buffer, size_t n_buffer,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
static void add_field(
	struct iovec *fields, int *io_n, char *buffer, size_t n_buffer, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(buffer, n_buffer, format, args);
	va_end(args);
	if (n < 0)
		return;
	fields[*io_n].iov_base = buffer;
	fields[*io_n].iov_len = (size_t)n < n_buffer ? (size_t)n : n_buffer - 1;
	(*io_n)++;
}

static void emit_journal(int level, const struct mc_log_about *about, const char *text)
{
	char message[LINE_BYTES + 16], priority[16], identifier[40], group[160], epoch[48], uid[32],
		pid[32];
	struct iovec fields[8];
	int n = 0;

	add_field(fields, &n, message, sizeof(message), "MESSAGE=%s", text);
	add_field(fields, &n, priority, sizeof(priority), "PRIORITY=%d", level);
	add_field(fields, &n, identifier, sizeof(identifier), "SYSLOG_IDENTIFIER=moecommd");
	if (about && about->group)
		add_field(fields, &n, group, sizeof(group), "MOECOMM_GROUP=%s", about->group);
	if (about && about->epoch)
		add_field(fields, &n, epoch, sizeof(epoch), "MOECOMM_EPOCH=%" PRIu64, about->epoch);
	if (about && about->uid_plus_1)
		add_field(fields, &n, uid, sizeof(uid), "MOECOMM_UID=%" PRIu32,
			about->uid_plus_1 - 1);
	if (about && about->pid)
		add_field(fields, &n, pid, sizeof(pid), "MOECOMM_PID=%" PRIu32, about->pid);
	sd_journal_sendv(fields, n);
}

/*
 * Whoever reads our stderr may have stopped to: better a line lost than a daemon that waits for it.
 * A pipe that is not full takes a line (PIPE_BUF is longer) without waiting.
 */
static bool is_stderr_full(void)
{
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&fd, 1, 0) == 0;
}

static void emit(int level, const struct mc_log_about *about, const char *text)
{
	static uint32_t n_lost;
	char line[LINE_BYTES + 96], lost[48] = "";
	int n;

	if (to_journal) {
		emit_journal(level, about, text);
		return;
	}
	if (is_stderr_full()) {
		n_lost++;
		return;
	}
	if (n_lost)
		snprintf(lost, sizeof(lost), " (%" PRIu32 " lines before it were lost)", n_lost);
	n_lost = 0;
	n = snprintf(line, sizeof(line), "moecommd: %s: %s%s\n", level_name(level), text, lost);
	/* one write a line, so that lines of several processes never mix */
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

/* Strings of clients may hold anything; a line stays a line. */
static void clean(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at; at++)
		if (*at < 0x20 || *at == 0x7f)
			*at = '?';
}

static void emit_args(int level, const struct mc_log_about *about, uint32_t n_left_out,
	const char *format, va_list args)
{
	char text[LINE_BYTES];
	size_t n;

	vsnprintf(text, sizeof(text), format, args);
	clean(text);
	n = strlen(text);
	if (n_left_out)
		snprintf(text + n, sizeof(text) - n, " (%" PRIu32 " lines like this were left out)",
			n_left_out);
	emit(level, about, text);
}

void mc_log(int level, const char *format, ...)
{
	va_list args;

	if (level > log_level)
		return;
	va_start(args, format);
	emit_args(level, NULL, 0, format, args);
	va_end(args);
}

void mc_log_about(int level, const struct mc_log_about *about, const char *format, ...)
{
	va_list args;

	if (level > log_level)
		return;
	va_start(args, format);
	emit_args(level, about, 0, format, args);
	va_end(args);
}

void mc_log_end(const char *format, ...)
{
	char text[LINE_BYTES], line[LINE_BYTES + 16];
	va_list args;
	int n;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	clean(text);
	if (!to_journal) {
		emit(LOG_ERR, NULL, text);
		return;
	}
	n = snprintf(line, sizeof(line), "<%d>%s\n", LOG_ERR, text);
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void mc_log_limited(struct mc_log_limit *limit, int level, const struct mc_log_about *about,
	const char *format, ...)
{
	uint64_t now = mc_now_ms(), n_new;
	uint32_t n_left_out;
	va_list args;

	if (level > log_level)
		return;
	if (!limit->started) {
		limit->started = true;
		limit->tokens = BURST;
		limit->refilled_ms = now;
	}
	n_new = (now - limit->refilled_ms) / REFILL_MS;
	if (n_new) {
		limit->tokens =
			n_new > BURST - limit->tokens ? BURST : limit->tokens + (uint32_t)n_new;
		limit->refilled_ms += n_new * REFILL_MS;
	}
	if (!limit->tokens) {
		limit->n_left_out++;
		return;
	}
	limit->tokens--;
	n_left_out = limit->n_left_out;
	limit->n_left_out = 0;
	va_start(args, format);
	emit_args(level, about, n_left_out, format, args);
	va_end(args);
}
