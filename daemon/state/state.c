/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/state.h"

#include <stdlib.h>
#include "daemon/daemon.h"

int mc_state_open(struct mc_daemon *daemon)
{
	struct mc_state *state = &daemon->state;
	struct mc_store_entry *entries;
	size_t n_entries;

	state->daemon = daemon;
	mc_store_open(&state->store);
	uv_timer_init(daemon->loop, &state->save_timer);
	uv_timer_init(daemon->loop, &state->resume_timer);
	state->save_timer.data = state;
	state->resume_timer.data = daemon;
	state->handles_open = true;
	n_entries = mc_store_take(&entries);
	if (!n_entries)
		return 0;
	mc_state_restore(state, entries, n_entries);
	free(entries);
	mc_await_members(daemon);
	mc_state_save(state);
	return 0;
}

void mc_state_close(struct mc_daemon *daemon)
{
	struct mc_state *state = &daemon->state;

	if (!state->handles_open)
		return;
	mc_await_drop_all(daemon);
	uv_close((uv_handle_t *)&state->save_timer, NULL);
	uv_close((uv_handle_t *)&state->resume_timer, NULL);
	state->handles_open = false;
	mc_store_close(&state->store);
}
