/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded wait for the device. The driver's own wait has no deadline, and the ops may run from
 * graphs that this library never sees, so a thread waits for the whole context and its caller for
 * the thread, as long as it likes.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "client/backends/cuda/rank.h"

struct wait {
	const struct mc_driver *cu;
	CUcontext context;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	int n_users; /* the thread and its caller; the last one frees */
	bool idle;
};

static void put(struct wait *wait)
{
	bool last;

	pthread_mutex_lock(&wait->lock);
	last = --wait->n_users == 0;
	pthread_mutex_unlock(&wait->lock);
	if (!last)
		return;
	pthread_cond_destroy(&wait->ended);
	pthread_mutex_destroy(&wait->lock);
	free(wait);
}

static void *run(void *argument)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct wait *wait = argument;
	CUcontext old;

	/* another thread may be capturing: this wait is none of its business. The driver's call, as
	 * in mc_rank_poison */
	wait->cu->cuThreadExchangeStreamCaptureMode(&mode);
	if (wait->cu->cuCtxPushCurrent(wait->context) == CUDA_SUCCESS) {
		/* an error means a context without work, too: it has died */
		wait->cu->cuCtxSynchronize();
		wait->cu->cuCtxPopCurrent(&old);
	}
	pthread_mutex_lock(&wait->lock);
	wait->idle = true;
	pthread_cond_signal(&wait->ended);
	pthread_mutex_unlock(&wait->lock);
	put(wait);
	return NULL;
}

bool mc_rank_wait_idle(struct mc_backend_rank *rank, uint32_t timeout_ms)
{
	struct wait *wait = calloc(1, sizeof(*wait));
	pthread_condattr_t attr;
	sigset_t all, before;
	struct timespec end;
	pthread_t thread;
	bool idle;
	int error;

	if (!wait)
		return false;
	wait->cu = rank->cu;
	wait->context = rank->context;
	wait->n_users = 2;
	pthread_mutex_init(&wait->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&wait->ended, &attr);
	pthread_condattr_destroy(&attr);
	/* the program's signals are for the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, run, wait);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		wait->n_users = 1;
		put(wait);
		return false;
	}
	pthread_detach(thread);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += timeout_ms / 1000;
	end.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
	if (end.tv_nsec >= 1000000000L) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000L;
	}
	pthread_mutex_lock(&wait->lock);
	while (!wait->idle)
		if (pthread_cond_timedwait(&wait->ended, &wait->lock, &end) == ETIMEDOUT)
			break;
	idle = wait->idle;
	pthread_mutex_unlock(&wait->lock);
	put(wait);
	return idle;
}
