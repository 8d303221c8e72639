/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts of joins and probes live in the daemon's memory and nowhere else: one of another boot,
 * driver or device set, or a truncated one, can't be met again, because none is ever stored.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "integration/daemon/harness.h"
#include "kernels/host/host.h"
#include "support/fd_store.h"

static const struct mc_wire_join join_of_two = {.group = "ep0", .world_size = 2};

/* The group's probe fails, and a retry hears of the earlier try. */
static void fail_the_probe(struct mc_wire_client *clients)
{
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = join_of_two;

	for (join.rank = 0; join.rank < 2; join.rank++)
		mc_wire_join(&clients[join.rank], &join);
	for (int r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	mc_wire_vote_no(&clients[1], layouts[1].member_id, 0, MC_PROBE_CORRUPT);
	mc_wire_vote_yes(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_PROBE_FAILED, "rank 1 from rank 0", SOON_MS);
	mc_wire_expect_done(&clients[1], MC_STATUS_PROBE_FAILED, "rank 1 from rank 0", SOON_MS);
	harness_drop(layouts, 2);
	join.rank = 0;
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_PROBE_FAILED, "earlier try", SOON_MS);
}

/* The same two processes with the same request: a probe of its own, and no word of an earlier one.
 */
static void form_afresh(struct mc_wire_client *clients)
{
	struct mc_wire_layout layouts[2];

	mc_wire_form(clients, layouts, &join_of_two);
	harness_drop(layouts, 2);
}

static void a_restart_forgets_them(void **state)
{
	struct mc_wire_client clients[2];

	(void)state;
	for (int how = 0; how < 2; how++) {
		harness_open(clients, 2);
		fail_the_probe(clients);
		harness_close(clients, 2);
		if (how)
			mc_test_daemon_kill(&harness_daemon);
		else
			mc_test_daemon_stop(&harness_daemon);
		mc_test_daemon_restart(&harness_daemon);
		harness_open(clients, 2);
		form_afresh(clients);
		harness_close(clients, 2);
		mc_wire_client_open(&clients[0], harness_daemon.socket, "test");
		mc_wire_wait_state(&clients[0], "ep0", 0, SOON_MS);
		mc_wire_client_close(&clients[0]);
	}
}

/* What is given to the service manager to keep has nothing of them either. */
static void nor_does_the_service_manager_keep_them(void **state)
{
	const struct mc_test_daemon_options options = {.config = "[daemon]\nsocket_mode = 0666\n"};
	struct mc_wire_client clients[2];
	struct mc_fd_store store;

	(void)state;
	mc_test_daemon_finish(&harness_daemon);
	mc_fd_store_open(&store, 1000);
	mc_fd_store_start(&store, &harness_daemon, &options);
	harness_open(clients, 2);
	fail_the_probe(clients);
	harness_close(clients, 2);
	mc_test_daemon_kill(&harness_daemon);
	mc_fd_store_restart(&store, &harness_daemon);
	harness_open(clients, 2);
	form_afresh(clients);
	harness_close(clients, 2);
	mc_test_daemon_stop(&harness_daemon);
	mc_fd_store_close(&store);
}

static unsigned count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	unsigned n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return n;
}

/* Files on a disk that the daemon holds open, beside its log. */
static unsigned count_disk_files(pid_t pid)
{
	char path[64], target[512];
	struct dirent *entry;
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char name[320];
		ssize_t length;
		struct stat st;

		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		length = readlink(name, target, sizeof(target) - 1);
		if (length < 0 || stat(name, &st) || !S_ISREG(st.st_mode))
			continue;
		target[length] = 0;
		if (strncmp(target, "/memfd:", 7) && strcmp(target, harness_daemon.log_path))
			n++;
	}
	closedir(dir);
	return n;
}

static void nothing_is_stored(void **state)
{
	static char home[96], variables[5][128];
	static const char *env[6];
	static const char *const names[] = {
		"HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"};
	const struct mc_test_daemon_options options = {
		.config = "[daemon]\nsocket_mode = 0666\n", .env = env};
	char template[] = "/tmp/moecomm-home-XXXXXX", run[96];
	struct mc_wire_client clients[2];
	unsigned n_run, n_all, n_open;

	(void)state;
	mc_test_daemon_finish(&harness_daemon);
	assert_non_null(mkdtemp(template));
	snprintf(home, sizeof(home), "%s", template);
	for (int i = 0; i < 5; i++) {
		snprintf(variables[i], sizeof(variables[i]), "%s=%s", names[i], home);
		env[i] = variables[i];
	}
	mc_test_daemon_start(&harness_daemon, &options);
	snprintf(run, sizeof(run), "%s/run", harness_daemon.directory);
	n_run = count_entries(run);
	n_all = count_entries(harness_daemon.directory);
	n_open = count_disk_files(harness_daemon.pid);
	harness_open(clients, 2);
	fail_the_probe(clients);
	/* the lock is the only file: not one more, here or anywhere that programs keep things */
	assert_int_equal(count_entries(run), n_run);
	assert_int_equal(count_entries(harness_daemon.directory), n_all);
	assert_int_equal(count_entries(home), 0);
	assert_int_equal(count_disk_files(harness_daemon.pid), n_open);
	harness_close(clients, 2);
	mc_test_daemon_stop(&harness_daemon);
	assert_int_equal(count_entries(home), 0);
	assert_int_equal(rmdir(home), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(a_restart_forgets_them),
		HARNESS_TEST(nor_does_the_service_manager_keep_them),
		HARNESS_TEST(nothing_is_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
