/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm-worker: one rank of a small decoder with mixture-of-experts layers on real text. Written
 * to be read: connect and join here, a layer in layer.c, the model in model.c, what --check
 * compares with in reference.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <moecomm.h>
#include "latency.h"
#include "layer.h"
#include "meeting.h"
#include "model.h"
#include "options.h"
#include "reference.h"
#include "tensor.h"
#include "text.h"

/* Between two tries to join. */
#define RETRY_MS 20

struct worker {
	struct options options;
	struct text text;
	struct model *model;
	struct reference *reference; /* NULL without --check */
	struct tensor_space *space;
	struct layer_state *state;
	moecomm_context *context;
	moecomm_group *group;
	int64_t *rows; /* [world_size]: each rank's tokens in the current round */

	int64_t round;    /* the next to run */
	int64_t n_rounds; /* done by this process */
	int64_t n_tokens; /* this rank's, over those rounds */
	double max_error;
	int64_t last_progress_ns;
};

/* Tells which call failed, how, and which rank is to blame. Returns the exit status for it. */
static int failed(const struct worker *worker, const char *what, enum moecomm_status status)
{
	struct moecomm_group_info info = {.size = sizeof(info), .fault_rank = -1};
	char blame[32] = "";
	const char *detail = moecomm_last_error();

	if (worker->group && moecomm_group_query(worker->group, &info) == MOECOMM_OK &&
		info.state == MOECOMM_GROUP_FAILED) {
		if (info.fault_rank >= 0)
			snprintf(blame, sizeof(blame), " (rank %d)", info.fault_rank);
		if (info.detail[0])
			detail = info.detail;
	}
	fprintf(stderr, "rank %d: %s failed: %s%s: %s\n", worker->options.rank, what,
		moecomm_status_name(status), blame,
		detail[0] ? detail : moecomm_status_text(status));
	return WORKER_FAILED;
}

static enum moecomm_status connect_daemon(struct worker *worker)
{
	struct moecomm_connect_options options = MOECOMM_CONNECT_OPTIONS_INIT;
	char label[64];

	snprintf(label, sizeof(label), "moecomm-worker rank %d", worker->options.rank);
	options.socket_path = worker->options.socket;
	options.label = label;
	options.wait_ms = worker->options.wait_ms;
	return moecomm_connect(&options, &worker->context);
}

static int device_of(const struct options *options)
{
	int n = tensor_cuda_devices();

	if (options->device >= 0 || options->backend == MOECOMM_BACKEND_HOST || n == 0)
		return options->device;
	return options->rank % n;
}

/* Returns when all ranks have joined and every pair has been probed. */
static enum moecomm_status join_group(struct worker *worker)
{
	const struct options *o = &worker->options;
	struct moecomm_group_options options = MOECOMM_GROUP_OPTIONS_INIT;

	options.name = o->group;
	options.job = o->job;
	options.rank = o->rank;
	options.world_size = o->world_size;
	options.backend = o->backend;
	options.device = device_of(o);
	options.shared_gpu = o->shared_gpu;
	options.op_timeout_ms = o->op_timeout_ms;
	options.join_timeout_ms = o->join_timeout_ms;
	/* capacity: the group's memory is made for this, and a larger op is refused as TOO_LARGE */
	options.max_rows = o->tokens;
	options.dispatch_row_bytes = layer_dispatch_row_bytes(o);
	options.combine_row_bytes = layer_combine_row_bytes(o);
	return moecomm_group_join(worker->context, &options, &worker->group);
}

static void rest(int ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	if (ms > 0)
		nanosleep(&time, NULL);
}

/*
 * Whether a join is worth another try at once: somebody else died, left or was still there while
 * the group formed, or the daemon restarts. A rank that never comes is not: its deadline was the
 * wait.
 */
static bool is_passing(enum moecomm_status status)
{
	switch (status) {
	case MOECOMM_PEER_LOST:
	case MOECOMM_LEFT:
	case MOECOMM_ABORTED:
	case MOECOMM_STALE_EPOCH:
	case MOECOMM_IN_USE:
	case MOECOMM_UNREACHABLE:
	case MOECOMM_SHUTDOWN:
		return true;
	default:
		return false;
	}
}

/* With --rejoin: does it again as long as that makes sense, for as long as a join may take. */
static enum moecomm_status persist(
	struct worker *worker, enum moecomm_status (*join)(struct worker *worker))
{
	int timeout_ms = worker->options.join_timeout_ms ? worker->options.join_timeout_ms : 60000;
	int64_t deadline = latency_now_ns() + timeout_ms * INT64_C(1000000);
	enum moecomm_status status = join(worker);

	while (status && worker->options.rejoin && is_passing(status) &&
		latency_now_ns() < deadline) {
		rest(RETRY_MS);
		status = join(worker);
	}
	return status;
}

static int set_up(struct worker *worker)
{
	const struct options *o = &worker->options;
	struct moecomm_group_info info = {.size = sizeof(info)};
	enum moecomm_status status;
	int64_t start;

	if (text_read(o->input, &worker->text) < 0)
		return WORKER_USAGE;
	worker->model = model_new(o);
	worker->rows = calloc((size_t)o->world_size, sizeof(*worker->rows));
	if (worker->model && o->check)
		worker->reference = reference_new(worker->model, o->tokens);
	if (!worker->model || !worker->rows || (o->check && !worker->reference)) {
		fprintf(stderr, "rank %d: out of memory for the model\n", o->rank);
		return WORKER_FAILED;
	}

	status = persist(worker, connect_daemon);
	if (status)
		return failed(worker, "connecting", status);
	start = latency_now_ns();
	status = persist(worker, join_group);
	if (status)
		return failed(worker, "joining the group", status);
	status = moecomm_group_query(worker->group, &info);
	if (status)
		return failed(worker, "querying the group", status);
	printf("rank %d of %d joined group %s: epoch %llu, %s backend, in %.1f ms\n", o->rank,
		o->world_size, o->group, (unsigned long long)info.epoch,
		info.backend == MOECOMM_BACKEND_CUDA ? "cuda" : "host",
		(double)(latency_now_ns() - start) / 1e6);

	worker->space = tensor_space_open(info.backend, device_of(o) < 0 ? 0 : device_of(o));
	if (worker->space)
		worker->state = layer_state_new(o, worker->model, worker->space);
	return worker->state ? -1 : WORKER_FAILED;
}

static void report_progress(struct worker *worker)
{
	const struct layer_state *state = worker->state;
	int64_t now = latency_now_ns();
	char check[48] = "";

	if (!worker->options.progress || now - worker->last_progress_ns < 1000000000)
		return;
	worker->last_progress_ns = now;
	if (worker->options.check)
		snprintf(check, sizeof(check), "   max error %.1e", worker->max_error);
	printf("rank %-2d  round %6lld   %7lld tokens   dispatch %8.1f µs   combine %8.1f µs%s\n",
		worker->options.rank, (long long)worker->round, (long long)worker->n_tokens,
		latency_percentile_us(&state->dispatch, 0.5),
		latency_percentile_us(&state->combine, 0.5), check);
}

/* This rank's tokens of the round, embedded; residual and hidden start alike. */
static int embed(struct worker *worker, int64_t rows)
{
	const struct text *text = &worker->text;
	struct layer_state *state = worker->state;
	size_t hidden = (size_t)worker->options.hidden;
	size_t at = text_position(text, &worker->options, worker->round, worker->rows);
	size_t n_bytes = (size_t)rows * hidden * sizeof(uint16_t);

	for (size_t t = 0; t < (size_t)rows; t++)
		model_embed(worker->model,
			text->bytes[(at + t + text->n_bytes - 1) % text->n_bytes],
			text->bytes[(at + t) % text->n_bytes],
			(uint16_t *)state->hidden.host + t * hidden);
	memcpy(state->residual.host, state->hidden.host, n_bytes);
	if (worker->space->upload(worker->space, &state->hidden, n_bytes) < 0 ||
		worker->space->upload(worker->space, &state->residual, n_bytes) < 0)
		return -1;
	return 0;
}

static enum moecomm_status run_round(struct worker *worker, char *ret_what, size_t n_what)
{
	struct layer_state *state = worker->state;
	const char *what = "";
	int64_t rows;

	text_rows(&worker->options, worker->round, worker->rows);
	rows = worker->rows[worker->options.rank];
	snprintf(ret_what, n_what, "copying to the device");
	if (embed(worker, rows) < 0)
		return MOECOMM_DEVICE;
	for (int layer = 0; layer < worker->options.layers; layer++) {
		enum moecomm_status status;
		double error;

		if (worker->reference)
			reference_enter(
				worker->reference, state->hidden.host, state->residual.host, rows);
		status = layer_run(state, worker->group, layer, worker->rows, &what);
		snprintf(ret_what, n_what, "%s in layer %d of round %lld", what, layer,
			(long long)worker->round);
		if (status)
			return status;
		if (!worker->reference)
			continue;
		error = reference_leave(
			worker->reference, layer, state->hidden.host, state->residual.host, rows);
		if (error > worker->max_error || isnan(error))
			worker->max_error = error;
		if (!(error <= REFERENCE_LIMIT)) {
			snprintf(ret_what, n_what,
				"layer %d of round %lld differs from the reference by %.1e", layer,
				(long long)worker->round, error);
			return MOECOMM_OK; /* every call went well; run() sees max_error */
		}
	}
	worker->round++;
	worker->n_rounds++;
	worker->n_tokens += rows;
	return MOECOMM_OK;
}

/* Forms the next epoch with whoever comes: the survivors and a restarted rank. */
static enum moecomm_status rejoin(struct worker *worker)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	int64_t start = latency_now_ns();
	enum moecomm_status status = moecomm_group_rejoin(worker->group);

	if (!status)
		status = moecomm_group_query(worker->group, &info);
	if (!status)
		printf("rank %d rejoined group %s: epoch %llu, in %.1f ms\n", worker->options.rank,
			worker->options.group, (unsigned long long)info.epoch,
			(double)(latency_now_ns() - start) / 1e6);
	return status;
}

static enum moecomm_status run_epoch(struct worker *worker, char *ret_what, size_t n_what)
{
	const struct options *o = &worker->options;
	enum moecomm_status status;

	snprintf(ret_what, n_what, "agreeing on the round");
	status = meeting_largest(o, worker->space, worker->group, worker->round, &worker->round);
	while (!status && (o->rounds == 0 || worker->round < o->rounds)) {
		status = run_round(worker, ret_what, n_what);
		if (status || !(worker->max_error <= REFERENCE_LIMIT))
			return status;
		report_progress(worker);
		rest(o->pause_ms);
	}
	if (!status) {
		snprintf(ret_what, n_what, "the farewell");
		status = meeting_farewell(o, worker->space, worker->group);
	}
	return status;
}

static int run(struct worker *worker)
{
	char what[128];
	enum moecomm_status status = run_epoch(worker, what, sizeof(what));

	while (status && worker->options.rejoin) {
		failed(worker, what, status);
		status = persist(worker, rejoin);
		if (status)
			return failed(worker, "rejoining the group", status);
		status = run_epoch(worker, what, sizeof(what));
	}
	if (status)
		return failed(worker, what, status);
	if (!(worker->max_error <= REFERENCE_LIMIT)) {
		fprintf(stderr, "rank %d: wrong: %s (limit %.0e)\n", worker->options.rank, what,
			REFERENCE_LIMIT);
		/* the others wait for this rank's next op: tell them, rather than let them time out
		 */
		moecomm_group_abort(worker->group, what);
		return WORKER_WRONG;
	}
	return WORKER_OK;
}

static void report_latency(const char *name, const struct latency *latency)
{
	printf("  %-18s %8lld calls   median %8.1f µs   p99 %8.1f µs\n", name,
		(long long)latency->n_calls, latency_percentile_us(latency, 0.5),
		latency_percentile_us(latency, 0.99));
}

static void report(const struct worker *worker)
{
	const struct options *o = &worker->options;

	printf("rank %d: %lld rounds, time in ops with the wait for the slowest rank:\n", o->rank,
		(long long)worker->n_rounds);
	report_latency("dispatch", &worker->state->dispatch);
	report_latency("combine_rmsnorm", &worker->state->combine);
	if (o->check)
		printf("verified: max relative error %.1e over %d layers of %lld tokens (rank %d "
		       "of %d)\n",
			worker->max_error, o->layers, (long long)worker->n_tokens, o->rank,
			o->world_size);
}

int main(int argc, char **argv)
{
	struct worker worker = {0};
	int r = options_parse(argc, argv, &worker.options);

	if (r >= 0)
		return r;
	/* whole lines, also into a pipe that several ranks share */
	setvbuf(stdout, NULL, _IOLBF, 0);
	worker.last_progress_ns = latency_now_ns();

	r = set_up(&worker);
	if (r < 0)
		r = run(&worker);
	if (r == WORKER_OK)
		report(&worker);

	moecomm_group_leave(worker.group);
	moecomm_disconnect(worker.context);
	layer_state_free(worker.state);
	if (worker.space)
		worker.space->close(worker.space);
	reference_free(worker.reference);
	model_free(worker.model);
	text_free(&worker.text);
	free(worker.rows);
	if (fflush(stdout) == EOF && r == WORKER_OK) {
		fprintf(stderr, "rank %d: cannot write the report\n", worker.options.rank);
		r = WORKER_FAILED;
	}
	return r;
}
