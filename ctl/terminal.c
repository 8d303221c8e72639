/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l" /* alternate screen, no cursor */
#define LEAVE "\033[?25h\033[?1049l"

static struct {
	bool is_open;
	bool has_keys;
	struct termios saved;
	sigset_t waiting; /* signals let through while waiting only */
} terminal;

static volatile sig_atomic_t got_end, got_resize, got_suspend;

static void on_signal(int number)
{
	if (number == SIGWINCH)
		got_resize = 1;
	else if (number == SIGTSTP)
		got_suspend = 1;
	else
		got_end = 1;
}

static void write_all(const char *text, size_t n)
{
	while (n) {
		ssize_t r = write(STDOUT_FILENO, text, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			got_end = 1; /* nobody is there to look */
			return;
		}
		text += r;
		n -= (size_t)r;
	}
}

static void take(void)
{
	struct termios raw = terminal.saved;

	if (terminal.has_keys) {
		raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	}
	write_all(ENTER, strlen(ENTER));
}

static void give(void)
{
	write_all(LEAVE, strlen(LEAVE));
	if (terminal.has_keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.saved);
}

int mc_terminal_open(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t blocked;

	sigemptyset(&blocked);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		sigaddset(&blocked, signals[i]);
		sigaction(signals[i], &action, NULL);
	}
	signal(SIGPIPE, SIG_IGN);
	/* handled while waiting only, so that no half screen is ever shown */
	if (sigprocmask(SIG_BLOCK, &blocked, &terminal.waiting))
		return -errno;
	terminal.has_keys = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &terminal.saved);
	terminal.is_open = true;
	take();
	atexit(mc_terminal_close);
	return 0;
}

void mc_terminal_close(void)
{
	if (!terminal.is_open)
		return;
	terminal.is_open = false;
	give();
}

void mc_terminal_size(unsigned *ret_rows, unsigned *ret_columns)
{
	struct winsize size;

	*ret_rows = 24;
	*ret_columns = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
		return;
	*ret_rows = size.ws_row;
	*ret_columns = size.ws_col;
}

/* One line cut to the width, between characters; escape sequences are kept whole. */
static void put_line(FILE *out, const char *line, size_t n, unsigned columns)
{
	unsigned width = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)line[i];

		if (c == '\033') {
			while (i < n && line[i] != 'm')
				putc(line[i++], out);
			if (i < n)
				putc('m', out);
			continue;
		}
		/* bytes after the first of a UTF-8 character take no room of their own */
		width += (c & 0xc0) != 0x80;
		if (width <= columns)
			putc(c, out);
	}
	fputs("\033[0m\033[K\r\n", out);
}

void mc_terminal_show(const char *text, size_t n_text)
{
	unsigned rows, columns, line = 0;
	const char *end = text + n_text;
	char *screen = NULL;
	size_t n_screen = 0;
	FILE *out = open_memstream(&screen, &n_screen);

	if (!out)
		return;
	mc_terminal_size(&rows, &columns);
	fputs("\033[H", out);
	/* the last row stays free: a line feed there would scroll */
	while (text < end && ++line < rows) {
		const char *feed = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((feed ? feed : end) - text);

		put_line(out, text, n, columns);
		text += n + 1;
	}
	fputs("\033[J", out);
	if (!fclose(out))
		write_all(screen, n_screen);
	free(screen);
}

static void suspend(void)
{
	got_suspend = 0;
	give();
	raise(SIGSTOP);
	take();
}

enum mc_terminal_event mc_terminal_wait(int timeout_ms, char *ret_key)
{
	struct pollfd keys = {.fd = terminal.has_keys ? STDIN_FILENO : -1, .events = POLLIN};
	struct timespec timeout = {
		.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
	int r = got_end ? -1 : ppoll(&keys, 1, &timeout, &terminal.waiting);

	if (got_end)
		return MC_TERMINAL_END;
	if (got_suspend) {
		suspend();
		return MC_TERMINAL_REDRAW;
	}
	if (got_resize) {
		got_resize = 0;
		return MC_TERMINAL_REDRAW;
	}
	if (r <= 0)
		return MC_TERMINAL_TIMEOUT;
	if (read(STDIN_FILENO, ret_key, 1) != 1)
		return MC_TERMINAL_END;
	return MC_TERMINAL_KEY;
}
