/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/link/link.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "integration/client/ranks.h"

#define END_TIMEOUT_MS 60000

int64_t link_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static moecomm_group *join(
	const struct link_world *world, int rank, moecomm_context *context, struct link_seen *seen)
{
	struct moecomm_group_options o = MOECOMM_GROUP_OPTIONS_INIT;
	int64_t begin_us = link_now_us();
	moecomm_group *group = NULL;

	/* what check_round draws from */
	o.name = world->group;
	o.rank = rank;
	o.world_size = world->world_size;
	o.backend = MOECOMM_BACKEND_HOST;
	o.max_rows = 16;
	o.dispatch_row_bytes = 256;
	o.combine_row_bytes = 256;
	o.n_channels = 2;
	o.join_timeout_ms = 20000;
	o.probe_timeout_ms = world->probe_timeout_ms ? world->probe_timeout_ms : 20000;
	o.op_timeout_ms = o.warmup_timeout_ms = world->op_timeout_ms ? world->op_timeout_ms : 20000;
	seen->join = moecomm_group_join(context, &o, &group);
	seen->join_ms = (link_now_us() - begin_us) / 1000;
	if (seen->join)
		snprintf(seen->text, sizeof(seen->text), "%s", moecomm_last_error());
	return group;
}

static void run_rounds(
	const struct link_world *world, int rank, moecomm_group *group, struct link_seen *seen)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	for (int i = 0; !world->n_rounds || i < world->n_rounds; i++) {
		int64_t begin_us = link_now_us();

		seen->status = check_round(group, rank, world->world_size, 10, i, 0);
		if (!seen->status) {
			atomic_store(&seen->n_rounds, i + 1);
			continue;
		}
		seen->at_us = link_now_us();
		seen->op_ms = (seen->at_us - begin_us) / 1000;
		snprintf(seen->text, sizeof(seen->text), "%s", moecomm_last_error());
		moecomm_group_query(group, &info);
		seen->fault_rank = info.fault_rank;
		seen->fault_call = info.fault_call;
		return;
	}
}

static int be_rank(const struct link_world *world, int rank, struct link_seen *seen)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	moecomm_context *context = NULL;
	moecomm_group *group;

	if (world->inject)
		setenv("MOECOMM_INJECT", world->inject, 1);
	if (world->inject_client)
		setenv("MOECOMM_INJECT_CLIENT", world->inject_client, 1);
	o.socket_path = world->socket;
	o.wait_ms = 10000;
	if (moecomm_connect(&o, &context)) {
		fprintf(stderr, "rank %d: %s\n", rank, moecomm_last_error());
		return 1;
	}
	group = join(world, rank, context, seen);
	if (group)
		run_rounds(world, rank, group, seen);
	moecomm_group_leave(group);
	moecomm_disconnect(context);
	return 0;
}

void link_start(const struct link_world *world, struct link_seen **ret_seen)
{
	struct link_seen *seen = mmap(NULL, sizeof(*seen) * LINK_WORLD, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t parent = getpid();

	assert_ptr_not_equal(seen, MAP_FAILED);
	assert_in_range(world->world_size, 1, LINK_WORLD);
	fflush(NULL);
	for (int r = 0; r < world->world_size; r++) {
		/* not into the shared memory at once: the child would put its 0 there */
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid) {
			seen[r].pid = pid;
			continue;
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		_exit(be_rank(world, r, &seen[r]));
	}
	*ret_seen = seen;
}

void link_wait(const struct link_world *world, struct link_seen *seen,
	struct link_seen ret_seen[LINK_WORLD])
{
	uint64_t deadline_us = (uint64_t)link_now_us() + END_TIMEOUT_MS * UINT64_C(1000);
	int status;

	for (int r = 0; r < world->world_size; r++) {
		while (waitpid(seen[r].pid, &status, WNOHANG) != seen[r].pid) {
			if ((uint64_t)link_now_us() > deadline_us) {
				for (int i = r; i < world->world_size; i++)
					kill(seen[i].pid, SIGKILL);
				fail_msg("rank %d of group %s does not end", r, world->group);
			}
			usleep(1000);
		}
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			continue;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_msg("rank %d of group %s ended with wait status %#x", r, world->group,
				(unsigned)status);
	}
	memcpy((void *)ret_seen, (const void *)seen, sizeof(*seen) * LINK_WORLD);
	munmap(seen, sizeof(*seen) * LINK_WORLD);
}

void link_run(const struct link_world *world, struct link_seen ret_seen[LINK_WORLD])
{
	struct link_seen *seen;

	link_start(world, &seen);
	link_wait(world, seen, ret_seen);
}

void link_assert_says(const struct link_seen *seen, int rank, const char *text)
{
	if (!strstr(seen->text, text))
		fail_msg("rank %d: \"%s\" does not say \"%s\"", rank, seen->text, text);
}
