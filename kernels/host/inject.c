/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/inject.h"

#ifdef MC_FAULT_INJECTION
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ENTRIES 32u
#define ANY         UINT32_MAX

struct entry {
	enum mc_inject_kind kind;
	uint32_t writer; /* or the delayed rank */
	uint32_t reader;
	uint32_t delay_ms;
	uint64_t call; /* 0: not given */
};

static struct entry entries[MAX_ENTRIES];
static uint32_t n_entries;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
	const char *name;
	enum mc_inject_kind kind;
} kinds[] = {
	{"drop_probe", MC_INJECT_DROP_PROBE},
	{"flip_probe", MC_INJECT_FLIP_PROBE},
	{"drop_push", MC_INJECT_DROP_PUSH},
	{"flip_push", MC_INJECT_FLIP_PUSH},
	{"flip_data", MC_INJECT_FLIP_DATA},
	{"delay_ms", MC_INJECT_DELAY},
};

/* A number or, where allowed, "*"; moves *text past it. */
static bool parse_number(const char **text, bool any, uint64_t *ret_value)
{
	char *end;

	if (any && **text == '*') {
		(*text)++;
		*ret_value = ANY;
		return true;
	}
	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*ret_value = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

static bool parse_entry(const char *text, struct entry *ret_entry)
{
	struct entry e = {0};
	uint64_t first, second;
	size_t length = strcspn(text, ":");
	bool known = false, delay;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strlen(kinds[i].name) == length && !strncmp(kinds[i].name, text, length)) {
			e.kind = kinds[i].kind;
			known = true;
		}
	if (!known || text[length] != ':')
		return false;
	text += length + 1;
	delay = e.kind == MC_INJECT_DELAY;
	if (!parse_number(&text, true, &first) || *text++ != (delay ? '=' : '>') ||
		!parse_number(&text, !delay, &second) || first > UINT32_MAX || second > UINT32_MAX)
		return false;
	e.writer = (uint32_t)first;
	if (delay)
		e.delay_ms = (uint32_t)second;
	else
		e.reader = (uint32_t)second;
	if (*text == '@') {
		text++;
		if (!parse_number(&text, false, &e.call))
			return false;
	}
	if (*text != '\0')
		return false;
	*ret_entry = e;
	return true;
}

static int parse_list(const char *list)
{
	char copy[1024], *rest = copy, *item;

	n_entries = 0;
	if (!list || !*list)
		return 0;
	if (strlen(list) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, list);
	while ((item = strsep(&rest, ",")) != NULL) {
		if (n_entries == MAX_ENTRIES || !parse_entry(item, &entries[n_entries])) {
			n_entries = 0;
			return -EINVAL;
		}
		n_entries++;
	}
	return 0;
}

static void read_environment(void)
{
	const char *list = getenv("MOECOMM_INJECT");

	if (parse_list(list) < 0) {
		fprintf(stderr, "MOECOMM_INJECT: cannot read \"%s\"; see kernels/host/inject.h\n",
			list);
		abort();
	}
}

int mc_inject_set(const char *list)
{
	pthread_once(&once, read_environment);
	return parse_list(list);
}

bool mc_inject_pair(enum mc_inject_kind kind, uint32_t writer, uint32_t reader, uint64_t call)
{
	pthread_once(&once, read_environment);
	for (uint32_t i = 0; i < n_entries; i++) {
		const struct entry *e = &entries[i];

		if (e->kind == kind && (e->writer == ANY || e->writer == writer) &&
			(e->reader == ANY || e->reader == reader) && call >= e->call)
			return true;
	}
	return false;
}

void mc_inject_delay(uint32_t rank, uint64_t call)
{
	pthread_once(&once, read_environment);
	for (uint32_t i = 0; i < n_entries; i++) {
		const struct entry *e = &entries[i];
		struct timespec ts = {
			.tv_sec = e->delay_ms / 1000, .tv_nsec = e->delay_ms % 1000 * 1000000L};

		if (e->kind == MC_INJECT_DELAY && (e->writer == ANY || e->writer == rank) &&
			(e->call == 0 || e->call == call))
			while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
				;
	}
}
#endif
