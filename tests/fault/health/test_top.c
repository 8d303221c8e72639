/* SPDX-License-Identifier: Apache-2.0 */
/* top as scripts use it, and as a person does on a terminal. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include "fault/health/ranks.h"
#include "integration/program.h"

#define ENTERED "\033[?1049h"
#define LEFT    "\033[?1049l"

static struct mc_test_daemon daemon_;

static void reports_are_plain_text(void **state)
{
	struct ranks ranks;
	char *out, *err;
	const char *second;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "busy", 3, NULL, 20);
	assert_int_equal(ctl(&daemon_, &out, &err, "top", "-n", "2", "-d", "0.3", NULL), 0);
	assert_words(out, "moecomm top", "GROUP", "CALLS/S", "BYTES/S", "WAIT", "LAG", "busy",
		"rank 0", "rank 2", "dispatch", "test rank", "3/3", NULL);
	assert_null(strchr(out, '\033'));
	second = strstr(out + 1, "moecomm top");
	assert_non_null(second);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "top", "--once", "-g", "-d", "0.2", NULL), 0);
	assert_words(out, "busy", NULL);
	assert_null(strstr(out, "rank 0"));
	free(out);
	free(err);
	ranks_end(&ranks);
}

static double real(struct json_object *object, const char *key)
{
	return json_object_get_double(field(object, key));
}

/* Rates against what the ranks themselves count. */
static void rates_are_right(void **state)
{
	struct json_object *answer, *group, *rank;
	struct ranks ranks;
	uint32_t before, after;
	uint64_t begin_ms, took_ms;
	double true_rate, shown;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "rates", 3, NULL, 50);
	before = ranks.report[0].n_calls;
	begin_ms = mc_test_now_ms();
	answer = ctl_json(&daemon_, 0, "top", "--once", "-d", "2", NULL);
	after = ranks.report[0].n_calls;
	took_ms = mc_test_now_ms() - begin_ms;
	true_rate = (after - before) * 1000.0 / (double)took_ms;
	group = json_object_array_get_idx(field(answer, "groups"), 0);
	assert_string_equal(json_object_get_string(field(group, "name")), "rates");
	shown = real(group, "calls_per_second");
	print_message("calls a second: %.0f shown, %.0f counted by the rank\n", shown, true_rate);
	assert_true(shown > true_rate * 0.5 && shown < true_rate * 2);
	/* three ranks push 2 × (16 + 256) bytes a call */
	assert_true(real(group, "bytes_per_second") > shown * 3 * 544 * 0.9);
	assert_true(real(group, "bytes_per_second") < shown * 3 * 544 * 1.1);
	assert_true(real(group, "wait_share") >= 0 && real(group, "wait_share") <= 1);
	rank = json_object_array_get_idx(field(group, "ranks"), 1);
	assert_int_equal(json_object_get_int(field(rank, "rank")), 1);
	json_object_put(answer);
	ranks_end(&ranks);
}

static void a_wrong_command_line_is_told(void **state)
{
	static const char *const wrong[][3] = {{"top"}, {"top", "--json"}, {"top", "-n", "0"},
		{"top", "-n", "x"}, {"top", "-d", "0"}, {"top", "-d", "nan"},
		{"top", "--once", "x"}};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char *out, *err;

		assert_int_equal(
			ctl(&daemon_, &out, &err, wrong[i][0], wrong[i][1], wrong[i][2], NULL), 2);
		assert_string_equal(out, "");
		free(out);
		free(err);
	}
}

/* ---- on a terminal ---- */

struct screen {
	int fd; /* the terminal's other side */
	int user_fd;
	pid_t pid;
	struct termios before;
	char text[1 << 18];
	size_t n;
};

static void start_top(struct screen *screen)
{
	struct winsize size = {.ws_row = 30, .ws_col = 120};
	char *path = program_path("moecommctl");

	memset(screen, 0, sizeof(*screen));
	assert_int_equal(openpty(&screen->fd, &screen->user_fd, NULL, NULL, &size), 0);
	assert_int_equal(tcgetattr(screen->user_fd, &screen->before), 0);
	fflush(NULL);
	screen->pid = fork();
	assert_true(screen->pid >= 0);
	if (!screen->pid) {
		setsid();
		ioctl(screen->user_fd, TIOCSCTTY, 0);
		dup2(screen->user_fd, 0);
		dup2(screen->user_fd, 1);
		dup2(screen->user_fd, 2);
		close(screen->fd);
		setenv("TERM", "xterm", 1);
		execl(path, "moecommctl", "--socket", daemon_.socket, "top", "-d", "0.2", NULL);
		_exit(127);
	}
	free(path);
	fcntl(screen->fd, F_SETFL, O_NONBLOCK);
}

/* Reads what it shows until the text comes. */
static void expect(struct screen *screen, const char *text)
{
	uint64_t deadline = mc_test_now_ms() + SOON_MS;

	while (!memmem(screen->text, screen->n, text, strlen(text))) {
		struct pollfd fd = {.fd = screen->fd, .events = POLLIN};
		ssize_t n;

		if (mc_test_now_ms() > deadline)
			fail_msg("'%s' was not shown in: %.2000s", text, screen->text);
		poll(&fd, 1, 50);
		n = read(
			screen->fd, screen->text + screen->n, sizeof(screen->text) - 1 - screen->n);
		if (n > 0)
			screen->n += (size_t)n;
	}
}

static void expect_end(struct screen *screen)
{
	struct termios after;
	int status = -1;

	expect(screen, LEFT);
	for (int waited = 0; waited < SOON_MS; waited += 5) {
		if (waitpid(screen->pid, &status, WNOHANG) == screen->pid)
			break;
		mc_test_sleep_ms(5);
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(tcgetattr(screen->user_fd, &after), 0);
	assert_int_equal(after.c_lflag, screen->before.c_lflag);
	assert_int_equal(after.c_iflag, screen->before.c_iflag);
	close(screen->fd);
	close(screen->user_fd);
}

static void press(struct screen *screen, char key)
{
	screen->n = 0;
	memset(screen->text, 0, sizeof(screen->text));
	assert_int_equal(write(screen->fd, &key, 1), 1);
}

static void a_terminal_is_given_back(void **state)
{
	static struct screen screen;
	struct ranks ranks;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "live", 2, NULL, 20);
	start_top(&screen);
	expect(&screen, ENTERED);
	expect(&screen, "rank 1");
	expect(&screen, "q quit");
	press(&screen, 'r');
	expect(&screen, "r ranks on");
	press(&screen, 'q');
	expect_end(&screen);

	start_top(&screen);
	expect(&screen, "q quit");
	press(&screen, 3); /* Ctrl-C */
	expect_end(&screen);

	start_top(&screen);
	expect(&screen, "q quit");
	kill(screen.pid, SIGTERM);
	expect_end(&screen);
	ranks_end(&ranks);
}

static void a_daemon_that_goes_and_comes_is_told(void **state)
{
	static struct screen screen;

	(void)state;
	start_top(&screen);
	expect(&screen, "q quit");
	mc_test_daemon_stop(&daemon_);
	expect(&screen, "no daemon at");
	expect(&screen, "asking again");
	mc_test_daemon_restart(&daemon_);
	screen.n = 0;
	memset(screen.text, 0, sizeof(screen.text));
	expect(&screen, "CALLS/S");
	press(&screen, 'q');
	expect_end(&screen);
}

static int set_up(void **state)
{
	(void)state;
	mc_test_daemon_start(&daemon_, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reports_are_plain_text),
		TEST(rates_are_right),
		TEST(a_wrong_command_line_is_told),
		TEST(a_terminal_is_given_back),
		TEST(a_daemon_that_goes_and_comes_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
