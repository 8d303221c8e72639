/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/shared.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

struct bench_shared *bench_shared_new(void)
{
	void *memory = mmap(NULL, sizeof(struct bench_shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

bool bench_barrier(struct bench_shared *shared, int world_size)
{
	int generation = atomic_load(&shared->generation);
	unsigned spins = 0;

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == world_size) {
		atomic_store(&shared->arrived, 0);
		atomic_fetch_add(&shared->generation, 1);
		return !atomic_load(&shared->aborted);
	}
	while (atomic_load(&shared->generation) == generation) {
		if (atomic_load(&shared->aborted))
			return false;
		/* the coordinator kills ranks that wait too long, so there is no deadline here */
		if (++spins < 20000)
			sched_yield();
		else
			nanosleep(&(struct timespec){0, 200000}, NULL);
	}
	return !atomic_load(&shared->aborted);
}

void bench_abort(struct bench_shared *shared, const char *format, ...)
{
	va_list list;

	if (!atomic_exchange(&shared->error_taken, 1)) {
		va_start(list, format);
		vsnprintf(shared->error, sizeof(shared->error), format, list);
		va_end(list);
	}
	atomic_store(&shared->aborted, 1);
}
