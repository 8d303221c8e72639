/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/health/ranks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include "client/moecomm.h"
#include "integration/program.h"

#define ROWS        4
#define ROW_BYTES   64
#define REST_US     2000
#define N_LATENCIES (sizeof(((struct rank_report *)0)->op_ns) / sizeof(uint32_t))

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void wait_for_ever(void)
{
	for (;;)
		pause();
}

/* ---- in the child ---- */

static int fail_rank(struct rank_report *report, enum moecomm_status status)
{
	snprintf(report->text, sizeof(report->text), "%s", moecomm_last_error());
	__atomic_store_n(&report->status, status, __ATOMIC_RELEASE);
	return 3;
}

static int dispatch(moecomm_group *group, uint32_t world_size, bool other_shape)
{
	static char input[2 * ROWS][ROW_BYTES], output[2 * ROWS * MAX_RANKS][ROW_BYTES];
	struct moecomm_tensor tensor = {input, output, ROW_BYTES};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	(void)world_size;
	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = other_shape ? ROWS + 1 : ROWS;
	return moecomm_dispatch(group, &args, NULL);
}

static int run_rank(const char *socket, const char *name, uint32_t rank, uint32_t world_size,
	const struct rank_plan *plan, struct rank_report *report)
{
	struct moecomm_connect_options connect = MOECOMM_CONNECT_OPTIONS_INIT;
	struct moecomm_group_options options = MOECOMM_GROUP_OPTIONS_INIT;
	moecomm_context *context;
	moecomm_group *group;
	enum moecomm_status status;

	connect.socket_path = socket;
	connect.label = "test rank";
	status = moecomm_connect(&connect, &context);
	if (status)
		return fail_rank(report, status);
	options.name = name;
	options.rank = (int)rank;
	options.world_size = (int)world_size;
	options.backend = MOECOMM_BACKEND_HOST;
	options.max_rows = 2 * ROWS;
	options.dispatch_row_bytes = ROW_BYTES;
	options.op_timeout_ms = plan->op_timeout_ms ? (int)plan->op_timeout_ms : 60000;
	options.warmup_calls = 1;
	options.join_timeout_ms = 4000;
	status = moecomm_group_join(context, &options, &group);
	if (status)
		return fail_rank(report, status);
	for (uint32_t call = 1;; call++) {
		uint64_t begin_ns;

		if (call == plan->skip_call || (plan->n_calls && call > plan->n_calls))
			wait_for_ever();
		begin_ns = now_ns();
		status = (enum moecomm_status)dispatch(group, world_size, call == plan->shape_call);
		if (status) {
			fail_rank(report, status);
			/* a member of an ended group, as engines are until they notice */
			wait_for_ever();
		}
		report->op_ns[call % N_LATENCIES] = (uint32_t)(now_ns() - begin_ns);
		__atomic_store_n(&report->n_calls, call, __ATOMIC_RELEASE);
		usleep(REST_US);
	}
}

/* ---- in the test ---- */

static void start(struct ranks *ranks, const char *socket, const char *group, uint32_t rank,
	uint32_t world_size, const struct rank_plan *plan)
{
	pid_t parent = getpid();

	fflush(NULL);
	ranks->pid[rank] = fork();
	assert_true(ranks->pid[rank] >= 0);
	if (ranks->pid[rank])
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	_exit(run_rank(socket, group, rank, world_size, plan, &ranks->report[rank]));
}

static void share(struct ranks *ranks, uint32_t n)
{
	memset(ranks, 0, sizeof(*ranks));
	ranks->n = n;
	ranks->report = mmap(NULL, MAX_RANKS * sizeof(*ranks->report), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(ranks->report, MAP_FAILED);
}

void ranks_start(struct ranks *ret_ranks, const char *socket, const char *group, uint32_t n,
	const struct rank_plan *plans, uint32_t wait_calls)
{
	static const struct rank_plan none;

	share(ret_ranks, n);
	for (uint32_t r = 0; r < n; r++)
		start(ret_ranks, socket, group, r, n, plans ? &plans[r] : &none);
	for (uint32_t r = 0; r < n; r++)
		ranks_wait_calls(ret_ranks, r, wait_calls);
}

void ranks_start_one(
	struct ranks *ret_ranks, const char *socket, const char *group, uint32_t world_size)
{
	static const struct rank_plan none;

	share(ret_ranks, 1);
	start(ret_ranks, socket, group, 0, world_size, &none);
}

void ranks_wait_calls(const struct ranks *ranks, uint32_t rank, uint32_t n_calls)
{
	uint64_t deadline = mc_test_now_ms() + SOON_MS;

	while (__atomic_load_n(&ranks->report[rank].n_calls, __ATOMIC_ACQUIRE) < n_calls) {
		if (mc_test_now_ms() > deadline)
			fail_msg("rank %u has done %u of %u calls: %s", rank,
				ranks->report[rank].n_calls, n_calls, ranks->report[rank].text);
		mc_test_sleep_ms(2);
	}
}

uint32_t ranks_wait_failure(const struct ranks *ranks, uint32_t rank)
{
	uint64_t deadline = mc_test_now_ms() + SOON_MS;
	uint32_t status;

	while (!(status = __atomic_load_n(&ranks->report[rank].status, __ATOMIC_ACQUIRE))) {
		if (mc_test_now_ms() > deadline)
			fail_msg("no op of rank %u has failed", rank);
		mc_test_sleep_ms(2);
	}
	return status;
}

void ranks_kill(struct ranks *ranks, uint32_t rank)
{
	if (!ranks->pid[rank])
		return;
	kill(ranks->pid[rank], SIGKILL);
	waitpid(ranks->pid[rank], NULL, 0);
	ranks->pid[rank] = 0;
}

void ranks_end(struct ranks *ranks)
{
	for (uint32_t r = 0; r < ranks->n; r++)
		ranks_kill(ranks, r);
	if (ranks->report)
		munmap(ranks->report, MAX_RANKS * sizeof(*ranks->report));
	ranks->report = NULL;
}

static int compare(const void *a, const void *b)
{
	uint32_t one = *(const uint32_t *)a, two = *(const uint32_t *)b;

	return (one > two) - (one < two);
}

uint64_t ranks_median_ns(const struct ranks *ranks, uint32_t rank, uint32_t since_call)
{
	const struct rank_report *report = &ranks->report[rank];
	uint32_t end = __atomic_load_n(&report->n_calls, __ATOMIC_ACQUIRE), n = 0;
	uint32_t sorted[N_LATENCIES];

	for (uint32_t call = since_call + 1; call <= end && n < N_LATENCIES; call++)
		sorted[n++] = report->op_ns[call % N_LATENCIES];
	if (!n)
		return 0;
	qsort(sorted, n, sizeof(sorted[0]), compare);
	return sorted[n / 2];
}

/* ---- moecommctl ---- */

static int run_ctl(const struct mc_test_daemon *daemon, char **ret_out, char **ret_err, bool json,
	va_list arguments)
{
	const char *argv[16] = {"moecommctl", "--socket", daemon->socket};
	struct program program;
	unsigned n = 3;
	int status;

	if (json)
		argv[n++] = "--json";
	while ((argv[n] = va_arg(arguments, const char *)))
		assert_true(++n < 15);
	program_start(&program, argv);
	status = program_wait(&program, SOON_MS);
	*ret_out = program_out(&program);
	*ret_err = program_err(&program);
	program_clear(&program);
	return status;
}

int ctl(const struct mc_test_daemon *daemon, char **ret_out, char **ret_err, ...)
{
	va_list arguments;
	int status;

	va_start(arguments, ret_err);
	status = run_ctl(daemon, ret_out, ret_err, false, arguments);
	va_end(arguments);
	return status;
}

struct json_object *ctl_json(const struct mc_test_daemon *daemon, int status, ...)
{
	struct json_object *answer;
	va_list arguments;
	char *out, *err;
	int got;

	va_start(arguments, status);
	got = run_ctl(daemon, &out, &err, true, arguments);
	va_end(arguments);
	if (got != status)
		fail_msg("exit status %d, wanted %d: %s%s", got, status, out, err);
	answer = json_tokener_parse(out);
	if (!answer)
		fail_msg("not JSON: %s", out);
	free(out);
	free(err);
	return answer;
}

char *ctl_until(const struct mc_test_daemon *daemon, int status, const char *command,
	const char *group, int timeout_ms)
{
	uint64_t deadline = mc_test_now_ms() + (uint64_t)timeout_ms;

	for (;;) {
		char *out, *err;
		int got = ctl(daemon, &out, &err, command, group, NULL);

		if (got == status) {
			free(err);
			return out;
		}
		if (mc_test_now_ms() > deadline)
			fail_msg("%s exits with %d, wanted %d: %s%s", command, got, status, out,
				err);
		free(out);
		free(err);
		mc_test_sleep_ms(20);
	}
}

struct json_object *field(struct json_object *object, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(object, key, &value))
		fail_msg("no '%s' in %s", key, json_object_to_json_string(object));
	return value;
}

void assert_words(const char *text, ...)
{
	va_list words;
	const char *word;

	va_start(words, text);
	while ((word = va_arg(words, const char *)))
		if (!strstr(text, word))
			fail_msg("no '%s' in: %s", word, text);
	va_end(words);
}
