/* SPDX-License-Identifier: Apache-2.0 */
#include "client/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/control.h"
#include "client/options.h"
#include "client/socket_path.h"

/* A greeting that takes longer is no greeting. */
#define GREET_MS 5000
/* Between two tries while a daemon is awaited. */
#define RETRY_MS 25
/* What disconnect grants all memberships together, so that it ends within its 5 s. */
#define DISCONNECT_MS 2500

static unsigned generation = 1;

static void forked(void)
{
	generation++;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

unsigned mc_context_generation(void)
{
	return generation;
}

/* Dials until it works, it can't, or wait_ms are over. */
static enum moecomm_status open_link(
	moecomm_context *context, int wait_ms, struct mc_link *ret_link, char *ret_detail)
{
	int64_t deadline = mc_clock_ms() + wait_ms;
	enum moecomm_status status;

	for (;;) {
		status = mc_link_open(
			&context->address, context->label, GREET_MS, -1, ret_link, ret_detail);
		if (status != MOECOMM_UNREACHABLE || mc_clock_ms() >= deadline)
			return status;
		nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
	}
}

static void context_free(moecomm_context *context)
{
	pthread_mutex_destroy(&context->lock);
	pthread_cond_destroy(&context->changed);
	free(context);
}

static moecomm_context *context_new(const char *label)
{
	moecomm_context *context = calloc(1, sizeof(*context));
	pthread_condattr_t attributes;

	if (!context)
		return NULL;
	context->generation = generation;
	context->link = (struct mc_link)MC_LINK_INIT;
	snprintf(context->label, sizeof(context->label), "%s",
		label && *label ? label : program_invocation_short_name);
	/* a program's name may hold anything; the daemon takes text only */
	mc_codec_text_fit(context->label, MC_LIMIT_LABEL_BYTES);
	pthread_mutex_init(&context->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&context->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return context;
}

enum moecomm_status moecomm_connect(
	const struct moecomm_connect_options *options, moecomm_context **ret_context)
{
	static const struct moecomm_connect_options defaults = MOECOMM_CONNECT_OPTIONS_INIT;
	struct mc_link link = MC_LINK_INIT;
	char detail[MC_ERROR_BYTES];
	moecomm_context *context;
	enum moecomm_status status;
	int r;

	if (!options)
		options = &defaults;
	if (!ret_context)
		return mc_error(MOECOMM_INVALID, "moecomm_connect: ret_context is NULL");
	if (!mc_options_size_ok(options, options->size, sizeof(*options)))
		return mc_error(MOECOMM_INVALID,
			"moecomm_connect: options.size is %zu: start from "
			"MOECOMM_CONNECT_OPTIONS_INIT",
			options->size);
	if (options->wait_ms < 0)
		return mc_error(MOECOMM_INVALID,
			"moecomm_connect: wait_ms is %d: it must be at least 0", options->wait_ms);
	if (options->label && strlen(options->label) > MC_LIMIT_LABEL_BYTES)
		return mc_error(MOECOMM_INVALID,
			"moecomm_connect: the label is longer than %u bytes", MC_LIMIT_LABEL_BYTES);
	mc_log_setup();
	context = context_new(options->label);
	if (!context)
		return mc_error(MOECOMM_NO_MEMORY, "out of memory");
	if (mc_socket_path_resolve(options->socket_path, &context->address)) {
		context_free(context);
		return mc_error(MOECOMM_INVALID,
			"the socket's path is longer than the %zu bytes that a socket address "
			"holds",
			sizeof(context->address.sun_path) - 1);
	}
	status = open_link(context, options->wait_ms, &link, detail);
	if (status != MOECOMM_OK) {
		context_free(context);
		return mc_error(status, "%s", detail);
	}
	r = mc_control_start(context, &link);
	if (r) {
		mc_link_close(&link);
		context_free(context);
		return mc_error(
			MOECOMM_SYSTEM, "cannot start the control thread: %s", strerror(-r));
	}
	mc_log("connected to moecommd %s at %s", context->link.version, context->address.sun_path);
	*ret_context = context;
	return MOECOMM_OK;
}

moecomm_context *moecomm_disconnect(moecomm_context *context)
{
	int64_t deadline = mc_clock_ms() + DISCONNECT_MS;

	if (!context)
		return NULL;
	/* the parent's thread, memory and daemon-side state are not this process's to end */
	if (context->generation != generation)
		return NULL;
	while (context->groups) {
		int64_t left = deadline - mc_clock_ms();

		mc_group_leave_within(context->groups, left > 0 ? (int)left : 0);
	}
	mc_control_stop(context);
	context_free(context);
	return NULL;
}
