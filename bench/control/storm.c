/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "bench/common/stats.h"
#include "bench/control/control.h"

/* Worth no more than a client's own buffers. */
#define STACK_BYTES (256u << 10)

struct client {
	const struct mc_control *control;
	pthread_barrier_t *barrier;
	moecomm_context *context;
	enum moecomm_status status;
	char failure[512];
	int64_t start_ns, end_ns;
	pthread_t thread;
};

static void *connect_once(void *argument)
{
	struct client *client = argument;

	pthread_barrier_wait(client->barrier);
	client->start_ns = mc_bench_now_ns();
	client->status =
		mc_control_connect(client->control, "moecomm-bench storm", &client->context);
	client->end_ns = mc_bench_now_ns();
	if (client->status)
		snprintf(client->failure, sizeof(client->failure), "%s", moecomm_last_error());
	return NULL;
}

static int report(struct mc_control *control, struct client *clients, double *samples_ms)
{
	int64_t first = INT64_MAX, last = INT64_MIN;
	int n_failed = 0;
	double whole;

	for (int i = 0; i < control->n_clients; i++) {
		if (clients[i].status && n_failed++ == 0)
			fprintf(stderr, "moecomm-bench: client %d of the storm: %s\n", i,
				clients[i].failure);
		samples_ms[i] = (double)(clients[i].end_ns - clients[i].start_ns) / 1e6;
		if (clients[i].start_ns < first)
			first = clients[i].start_ns;
		if (clients[i].end_ns > last)
			last = clients[i].end_ns;
	}
	if (n_failed) {
		fprintf(stderr, "moecomm-bench: %d of %d connects failed\n", n_failed,
			control->n_clients);
		return -1;
	}
	whole = (double)(last - first) / 1e6;
	mc_control_row(control, "connect storm, one client", control->n_clients, "ms", samples_ms,
		(size_t)control->n_clients, (double)NAN);
	mc_control_row(control, "connect storm, all clients", control->n_clients, "ms", &whole, 1,
		(double)NAN);
	return 0;
}

int mc_control_storm(struct mc_control *control)
{
	size_t n = (size_t)control->n_clients;
	struct client *clients = calloc(n, sizeof(*clients));
	double *samples_ms = calloc(n, sizeof(*samples_ms));
	pthread_barrier_t barrier;
	pthread_attr_t attributes;
	int r;

	if (!clients || !samples_ms) {
		fprintf(stderr, "moecomm-bench: out of memory\n");
		free(clients);
		free(samples_ms);
		return -1;
	}
	pthread_barrier_init(&barrier, NULL, (unsigned)n);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	for (size_t i = 0; i < n; i++) {
		clients[i].control = control;
		clients[i].barrier = &barrier;
		if (pthread_create(&clients[i].thread, &attributes, connect_once, &clients[i]) !=
			0) {
			fprintf(stderr, "moecomm-bench: cannot make %zu threads\n", n);
			exit(1);
		}
	}
	for (size_t i = 0; i < n; i++)
		pthread_join(clients[i].thread, NULL);
	pthread_attr_destroy(&attributes);
	pthread_barrier_destroy(&barrier);
	r = report(control, clients, samples_ms);
	for (size_t i = 0; i < n; i++)
		moecomm_disconnect(clients[i].context);
	free(clients);
	free(samples_ms);
	return r;
}
