/* SPDX-License-Identifier: Apache-2.0 */
#include "emulator.h"

#include <atomic>
#include <fenv.h>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <thread>
#include <sched.h>
#include <vector>

/*
 * Saves what a call must keep and the stack, takes the other's and returns there. (swapcontext does
 * the same with two system calls, which would be most of the time.)
 */
extern "C" void emu_switch(void **save, void *to);
asm(R"(
	.text
	.type emu_switch, @function
emu_switch:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	mov %rsp, (%rdi)
	mov %rsi, %rsp
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
	.size emu_switch, . - emu_switch
)");

__thread emu_index threadIdx, blockIdx, blockDim, gridDim;

namespace
{

constexpr size_t STACK_BYTES = 64u << 10;
constexpr unsigned MAX_THREADS = 1024, N_BARRIERS = 16, LANES = 32;

struct fiber {
	void *stack; /* where it goes on */
	unsigned thread;
	/* runs again once *gate is another number than seen; NULL: at any time */
	const uint64_t *gate;
	uint64_t seen;
	bool ended;
};

struct barrier {
	unsigned n_arrived;
	uint64_t round;
};

struct warp {
	unsigned n_live, n_arrived;
	unsigned n_rests; /* rounds that it sits out from now on */
	uint64_t round;
	/* by turns: nobody is more than one meeting ahead */
	emu_meeting meeting[2];
};

struct cluster {
	unsigned n_ctas, n_threads; /* of all its CTAs */
	std::atomic<unsigned> n_arrived;
	char *anchor[8]; /* of each CTA's thread-local memory */
	std::atomic<unsigned> n_started;
};

struct cta {
	void *scheduler; /* the stack that runs the fibers */
	const std::function<void()> *kernel;
	std::vector<fiber> fibers;
	std::vector<warp> warps;
	barrier barriers[N_BARRIERS];
	unsigned n_live;
	cluster *in;
	unsigned number; /* in the cluster */
	uint32_t draw;
};

thread_local cta *my_cta;
thread_local fiber *me;
thread_local char anchor;

std::atomic<uint32_t> n_launched; /* CTAs; each gets another order of its warps */

std::mutex stacks_lock;
std::vector<char *> stacks; /* of MAX_THREADS fibers each */

char *take_stacks()
{
	std::lock_guard<std::mutex> guard(stacks_lock);
	char *at;

	if (!stacks.empty()) {
		at = stacks.back();
		stacks.pop_back();
		return at;
	}
	at = (char *)mmap(NULL, MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) {
		perror("emulator: mmap");
		abort();
	}
	return at;
}

void give_stacks(char *at)
{
	std::lock_guard<std::mutex> guard(stacks_lock);

	stacks.push_back(at);
}

void switch_away()
{
	emu_switch(&me->stack, my_cta->scheduler);
}

void wait_for(const uint64_t *gate)
{
	me->gate = gate;
	me->seen = *gate;
	switch_away();
	me->gate = NULL;
}

void open_warp(warp &w)
{
	w.n_arrived = 0;
	w.round++;
	w.meeting[w.round % 2].lanes = 0;
}

void open_barrier(barrier &b)
{
	b.n_arrived = 0;
	b.round++;
}

/* Who ends is waited for no longer. */
void end_fiber()
{
	warp &w = my_cta->warps[me->thread / LANES];
	barrier &all = my_cta->barriers[0];

	me->ended = true;
	my_cta->n_live--;
	if (--w.n_live && w.n_arrived == w.n_live)
		open_warp(w);
	if (my_cta->n_live && all.n_arrived == my_cta->n_live)
		open_barrier(all);
}

void run_fiber()
{
	(*my_cta->kernel)();
	end_fiber();
	switch_away();
	abort(); /* nobody comes back here */
}

/* A stack on which emu_switch returns into run_fiber, as if that had been called. */
void *first_stack(char *bottom)
{
	void **top = (void **)(bottom + STACK_BYTES) - 1;

	*top = NULL; /* run_fiber's return address */
	*--top = (void *)run_fiber;
	top -= 6;
	memset(top, 0, 6 * sizeof(*top));
	return top;
}

void die_of_deadlock()
{
	fprintf(stderr, "emulator: CTA %u: no thread can go on\n", blockIdx.x);
	for (const fiber &f : my_cta->fibers) {
		if (f.ended)
			continue;
		fprintf(stderr, " thread %u waits at ", f.thread);
		for (unsigned b = 0; b < N_BARRIERS; b++)
			if (f.gate == &my_cta->barriers[b].round)
				fprintf(stderr, "barrier %u (%u have come)\n", b,
					my_cta->barriers[b].n_arrived);
		for (const warp &w : my_cta->warps)
			if (f.gate == &w.round)
				fprintf(stderr, "a meeting of its warp (%u of %u have come)\n",
					w.n_arrived, w.n_live);
	}
	abort();
}

/*
 * Whether a warp sits this round out. Hardware promises no order of warps, so here every one falls
 * behind the others now and then.
 */
bool rests(cta &c, warp &w)
{
	if (w.n_rests) {
		w.n_rests--;
		return true;
	}
	c.draw = c.draw * 1664525u + 1013904223u;
	if (c.draw >> 29)
		return false;
	w.n_rests = c.draw >> 26 & 7u;
	return true;
}

void run_cta(cta &c, unsigned block, unsigned n_ctas, unsigned n_threads)
{
	char *stack = take_stacks();
	unsigned n_ended = 0;

	/* a device has its own floating-point environment, whatever the caller set */
	fesetenv(FE_DFL_ENV);
	my_cta = &c;
	blockIdx = {block, 0, 0};
	blockDim = {n_threads, 1, 1};
	gridDim = {n_ctas, 1, 1};
	c.in->anchor[c.number] = &anchor;
	c.in->n_started++;
	while (c.in->n_started < c.in->n_ctas)
		sched_yield();
	c.fibers.resize(n_threads);
	c.warps.resize((n_threads + LANES - 1) / LANES);
	c.n_live = n_threads;
	for (unsigned i = 0; i < n_threads; i++) {
		fiber &f = c.fibers[i];

		f.thread = i;
		f.gate = NULL;
		f.ended = false;
		c.warps[i / LANES].n_live++;
		f.stack = first_stack(stack + i * STACK_BYTES);
	}
	while (n_ended < n_threads) {
		bool any = false, resting = false;

		n_ended = 0;
		for (fiber &f : c.fibers) {
			if (f.thread % LANES == 0)
				resting = rests(c, c.warps[f.thread / LANES]);
			if (f.ended) {
				n_ended++;
				continue;
			}
			if (f.gate && *f.gate == f.seen)
				continue;
			any = true;
			if (resting)
				continue;
			me = &f;
			threadIdx = {f.thread, 0, 0};
			emu_switch(&c.scheduler, f.stack);
		}
		if (!any && n_ended < n_threads)
			die_of_deadlock();
		sched_yield();
	}
	give_stacks(stack);
}

} /* namespace */

void emu_launch(
	unsigned n_ctas, unsigned n_threads, unsigned size, const std::function<void()> &kernel)
{
	std::vector<cluster> clusters(n_ctas / size);
	std::vector<cta> ctas(n_ctas);
	std::vector<std::thread> threads;

	if (n_threads > MAX_THREADS || size > 8 || n_ctas % size) {
		fprintf(stderr, "emulator: %u CTAs of %u threads in clusters of %u: impossible\n",
			n_ctas, n_threads, size);
		abort();
	}
	for (unsigned i = 0; i < n_ctas; i++) {
		ctas[i].kernel = &kernel;
		ctas[i].in = &clusters[i / size];
		ctas[i].number = i % size;
		ctas[i].draw = ++n_launched;
		ctas[i].in->n_ctas = size;
		ctas[i].in->n_threads = size * n_threads;
	}
	for (unsigned i = 0; i < n_ctas; i++)
		threads.emplace_back([&ctas, i, n_ctas, n_threads]() {
			run_cta(ctas[i], i, n_ctas, n_threads);
		});
	for (std::thread &thread : threads)
		thread.join();
}

void emu_yield()
{
	switch_away();
}

emu_meeting emu_meet(uint32_t value)
{
	warp &w = my_cta->warps[me->thread / LANES];
	emu_meeting &meeting = w.meeting[w.round % 2];
	const unsigned lane = me->thread % LANES;

	meeting.value[lane] = value;
	meeting.lanes |= 1u << lane;
	if (++w.n_arrived == w.n_live)
		open_warp(w);
	else
		wait_for(&w.round);
	return meeting;
}

void emu_barrier(unsigned id, unsigned n_threads, bool wait)
{
	barrier &b = my_cta->barriers[id];

	if (++b.n_arrived == (n_threads ? n_threads : my_cta->n_live))
		open_barrier(b);
	else if (wait)
		wait_for(&b.round);
}

unsigned emu_cluster_cta()
{
	return my_cta->number;
}

unsigned emu_cluster_ctas()
{
	return my_cta->in->n_ctas;
}

void emu_cluster_arrive()
{
	my_cta->in->n_arrived++;
}

void emu_cluster_wait()
{
	while (my_cta->in->n_arrived < my_cta->in->n_threads)
		switch_away();
}

uint32_t emu_shared_address(const void *at)
{
	const ptrdiff_t offset = (const char *)at - &anchor;

	if (offset < -(1 << 23) || offset >= 1 << 23) {
		fprintf(stderr, "emulator: not an address of shared memory\n");
		abort();
	}
	return my_cta->number << 24 | ((uint32_t)offset & 0xffffffu);
}

uint32_t emu_shared_of(uint32_t address, unsigned cta)
{
	return cta << 24 | (address & 0xffffffu);
}

void *emu_shared_pointer(uint32_t address)
{
	const int32_t offset = (int32_t)(address << 8) >> 8;

	return my_cta->in->anchor[address >> 24] + offset;
}

uint32_t emu_rsqrt_turn;
