/* SPDX-License-Identifier: Apache-2.0 */
/* What a process holds; equal before and after, or something leaked. */
#ifndef MC_TESTS_LEAK_H
#define MC_TESTS_LEAK_H

struct leak {
	int n_fds;
	int n_maps; /* mappings of memfds */
	int n_threads;
	long rss_kib;
};

void leak_take(struct leak *ret_leak);
/* Fails the test when fds, mappings or threads are more than before. */
void leak_check(const struct leak *before);

#endif
