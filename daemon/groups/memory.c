/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/groups/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/state/state.h"

int mc_memory_take(struct mc_epoch *epoch, struct mc_arm_result *result)
{
	void *board;

	epoch->memory = *result;
	epoch->has_memory = true;
	board = mmap(NULL, MC_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, result->board_fd, 0);
	if (board == MAP_FAILED)
		return -errno;
	epoch->board = board;
	return 0;
}

void mc_memory_drop(struct mc_epoch *epoch)
{
	struct mc_group *group = epoch->group;

	mc_state_forget(epoch);
	if (epoch->board)
		munmap(epoch->board, MC_BOARD_BYTES);
	epoch->board = NULL;
	if (epoch->has_memory)
		mc_arm_result_clear(&epoch->memory);
	epoch->has_memory = false;
	mc_quota_release(
		group->groups->daemon->quota, group->uid, MC_QUOTA_FDS, epoch->charged_fds);
	epoch->charged_fds = 0;
}

static _Atomic uint32_t *atomic_at(uint32_t *word)
{
	return (_Atomic uint32_t *)word;
}

void mc_memory_abort(
	struct mc_epoch *epoch, uint32_t status, uint32_t fault_rank, uint32_t reporter)
{
	uint32_t expected = 0, nobody = 0;
	uint32_t by = reporter == MC_NO_RANK ? 0 : reporter + 1;
	struct mc_fault *fault;

	if (!epoch->board)
		return;
	if (status == MC_STATUS_PEER_LOST && fault_rank < epoch->spec.world_size) {
		/* the dead can't say it: survivors find here who it was, status last */
		fault = &epoch->board->rank[fault_rank].fault;
		if (atomic_load_explicit(atomic_at(&fault->status), memory_order_acquire) == 0) {
			atomic_store_explicit(
				atomic_at(&fault->peer), fault_rank, memory_order_relaxed);
			atomic_compare_exchange_strong_explicit(atomic_at(&fault->status), &nobody,
				MC_FAULT_PEER_LOST, memory_order_release, memory_order_relaxed);
		}
		by = fault_rank + 1;
	}
	atomic_compare_exchange_strong_explicit(atomic_at(&epoch->board->wait.abort_word),
		&expected, mc_abort_word(status, by), memory_order_release, memory_order_relaxed);
}

void mc_memory_set_deadlines(struct mc_epoch *epoch)
{
	struct mc_wait_line *wait;

	if (!epoch->board)
		return;
	wait = &epoch->board->wait;
	atomic_store_explicit(
		atomic_at(&wait->op_timeout_ms), epoch->spec.op_timeout_ms, memory_order_relaxed);
	atomic_store_explicit(atomic_at(&wait->warmup_timeout_ms), epoch->spec.warmup_timeout_ms,
		memory_order_relaxed);
	atomic_store_explicit(
		atomic_at(&wait->warmup_calls), epoch->spec.warmup_calls, memory_order_relaxed);
}

int mc_memory_draw_sentinel(struct mc_epoch *epoch)
{
	struct mc_vector v;
	ssize_t n;
	bool degenerate;

	do {
		n = getrandom(&v, sizeof(v), 0);
		if (n != (ssize_t)sizeof(v))
			return n < 0 ? -errno : -EIO;
		/* words that zeroed memory, masks or fills consist of would meet real payloads */
		degenerate = false;
		for (int i = 0; i < 4; i++)
			degenerate |= v.word[i] == 0 || v.word[i] == UINT32_MAX ||
				      v.word[i] == v.word[(i + 1) % 4];
	} while (degenerate);
	epoch->sentinel = v;
	return 0;
}
