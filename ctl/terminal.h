/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole screen for a live command: the terminal is given back as it was on every way out, also by
 * a signal, and while the program is suspended.
 */
#ifndef MC_CTL_TERMINAL_H
#define MC_CTL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Takes the terminal of stdout (and keys of stdin, if that is one). Returns 0 or -errno. */
int mc_terminal_open(void);
/* Gives it back. Idempotent. */
void mc_terminal_close(void);

/* Size now; 24 × 80 when it can't be told. */
void mc_terminal_size(unsigned *ret_rows, unsigned *ret_columns);
/* Shows a text from the top, cut to the screen. Escape sequences of colours take no room. */
void mc_terminal_show(const char *text, size_t n_text);

enum mc_terminal_event {
	MC_TERMINAL_TIMEOUT,
	MC_TERMINAL_KEY,
	MC_TERMINAL_REDRAW, /* resized, or back from being suspended */
	MC_TERMINAL_END,    /* Ctrl-C, SIGTERM, or the terminal is gone */
};
/* Waits for a key or the time to pass; *ret_key is set for MC_TERMINAL_KEY. */
enum mc_terminal_event mc_terminal_wait(int timeout_ms, char *ret_key);

#endif
