/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A restart with all, some, none, doubled, foreign and corrupted fds and states: what is proven
 * intact goes on, what is not is dropped and its members are told, and nothing else is harmed.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "daemon/state/image.h"
#include "kernels/lamport.h"
#include "state.pb-c.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/fd_store.h"
#include "support/wire_client.h"

#define SOON_MS 20000
#define N_FDS   5u /* of a pair: board, two control blocks, two arenas */

/* A group of two ranks. */
struct pair {
	const char *group;
	struct mc_wire_client client[2];
	struct mc_wire_layout layout[2];
};

static struct mc_fd_store store;
static struct mc_test_daemon daemon_;

static int set_up(void **state)
{
	(void)state;
	mc_fd_store_open(&store, 1000);
	mc_fd_store_start(&store, &daemon_, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_);
	mc_fd_store_close(&store);
	return 0;
}

static void pair_form(struct pair *pair, const char *group)
{
	struct mc_wire_join join = {.group = group, .world_size = 2};

	pair->group = group;
	for (int r = 0; r < 2; r++)
		mc_wire_client_open(&pair->client[r], daemon_.socket, "test");
	mc_wire_form(pair->client, pair->layout, &join);
}

/* New connections, after a restart. */
static void pair_connect(struct pair *pair)
{
	for (int r = 0; r < 2; r++) {
		mc_wire_client_close(&pair->client[r]);
		mc_wire_client_open(&pair->client[r], daemon_.socket, "test");
	}
}

static void pair_close(struct pair *pair)
{
	for (int r = 0; r < 2; r++) {
		mc_wire_client_close(&pair->client[r]);
		mc_wire_layout_clear(&pair->layout[r]);
	}
}

static void send_resume(struct pair *pair, uint32_t r)
{
	Moecomm__Wire__Resume resume = MOECOMM__WIRE__RESUME__INIT;

	resume.member_id = pair->layout[r].member_id;
	resume.token.data = pair->layout[r].token;
	resume.token.len = sizeof(pair->layout[r].token);
	resume.group = (char *)pair->group;
	resume.rank = r;
	resume.epoch = pair->layout[r].epoch;
	mc_wire_send(&pair->client[r], MC_FRAME_RESUME, &resume.base);
}

static void expect_resumed(struct pair *pair)
{
	pair_connect(pair);
	for (uint32_t r = 0; r < 2; r++) {
		send_resume(pair, r);
		mc_wire_expect_done(&pair->client[r], MC_STATUS_OK, NULL, SOON_MS);
	}
	assert_int_equal(mc_wire_group_state(&pair->client[0], pair->group), MC_GROUP_READY);
}

static uint32_t abort_status(const struct pair *pair)
{
	const struct mc_board *board =
		mmap(NULL, MC_BOARD_BYTES, PROT_READ, MAP_SHARED, pair->layout[0].board_fd, 0);
	uint32_t word;

	assert_ptr_not_equal(board, MAP_FAILED);
	word = __atomic_load_n(&board->wait.abort_word, __ATOMIC_ACQUIRE);
	munmap((void *)board, MC_BOARD_BYTES);
	return mc_abort_status(word);
}

/* The daemon does not know it, and a new epoch can be formed. status: what its ops hear. */
static void expect_dropped(struct pair *pair, uint32_t status)
{
	pair_connect(pair);
	for (uint32_t r = 0; r < 2; r++) {
		send_resume(pair, r);
		mc_wire_expect_done(&pair->client[r], MC_STATUS_NOT_FOUND, "join again", SOON_MS);
	}
	assert_int_equal(abort_status(pair), status);
	assert_int_equal(mc_wire_group_state(&pair->client[0], pair->group), 0);
	for (int r = 0; r < 2; r++)
		mc_wire_layout_clear(&pair->layout[r]);
	mc_wire_form(pair->client, pair->layout,
		&(struct mc_wire_join){.group = pair->group, .world_size = 2});
}

static void name_of(const struct pair *pair, const char *suffix, char ret_name[64])
{
	snprintf(ret_name, 64, "e%llx-%s", (unsigned long long)pair->layout[0].epoch, suffix);
}

/* Ends all groups and waits until the store holds nothing but a state. */
static void expect_clean(struct pair *pairs, int n)
{
	for (int i = 0; i < n; i++)
		pair_close(&pairs[i]);
	mc_fd_store_wait_count(&store, "e", 0, SOON_MS);
	mc_fd_store_wait_count(&store, "", 1, SOON_MS);
}

/* ---- all, some, none ---- */

static void all_are_resumed(void **state)
{
	struct pair pairs[3];
	static const char *const names[] = {"one", "two", "three"};
	size_t n_fds;

	(void)state;
	for (int i = 0; i < 3; i++)
		pair_form(&pairs[i], names[i]);
	mc_fd_store_wait_count(&store, "", 3 * N_FDS + 1, SOON_MS);
	n_fds = mc_test_count_fds(daemon_.pid);
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	for (int i = 0; i < 3; i++)
		expect_resumed(&pairs[i]);
	/* and holds no more than before */
	mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
	assert_int_equal(mc_fd_store_count(&store, ""), 3 * N_FDS + 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(abort_status(&pairs[i]), 0);
	/* ends as any other */
	mc_wire_client_close(&pairs[0].client[0]);
	mc_wire_expect_notice(&pairs[0].client[1], MC_STATUS_PEER_LOST, "rank 0", NULL, SOON_MS);
	pairs[0].client[0].fd = -1;
	expect_clean(pairs, 3);
}

static void one_missing_fd_drops_that_group_only(void **state)
{
	static const char *const suffixes[] = {"b", "c0", "c1", "a0", "a1"};
	struct pair pairs[2];
	char name[64];

	(void)state;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		pair_form(&pairs[0], "broken");
		pair_form(&pairs[1], "whole");
		mc_test_daemon_kill(&daemon_);
		name_of(&pairs[0], suffixes[i], name);
		mc_fd_store_replace(&store, name, -1);
		mc_fd_store_restart(&store, &daemon_);
		mc_fd_store_wait_count(&store, "", N_FDS + 1, SOON_MS);
		expect_dropped(&pairs[0], *suffixes[i] == 'b' ? 0 : MC_STATUS_STALE_EPOCH);
		expect_resumed(&pairs[1]);
		snprintf(name + strlen(name), sizeof(name) - strlen(name),
			" can't be used: it is missing");
		assert_true(mc_test_daemon_log_has(&daemon_, name));
		expect_clean(pairs, 2);
	}
}

static void none_or_only_the_state_or_all_but_it(void **state)
{
	struct pair pair;
	char name[256];
	int fd;

	(void)state;
	pair_form(&pair, "none");
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_clear(&store);
	mc_fd_store_restart(&store, &daemon_);
	/* ops go on: nobody can end them */
	expect_dropped(&pair, 0);
	mc_fd_store_wait_count(&store, "", N_FDS + 1, SOON_MS);

	mc_test_daemon_kill(&daemon_);
	mc_fd_store_find(&store, "s", name);
	fd = mc_fd_store_dup(&store, name);
	mc_fd_store_clear(&store);
	mc_fd_store_add(&store, name, fd);
	mc_fd_store_restart(&store, &daemon_);
	expect_dropped(&pair, 0);

	mc_test_daemon_kill(&daemon_);
	mc_fd_store_find(&store, "s", name);
	mc_fd_store_replace(&store, name, -1);
	mc_fd_store_restart(&store, &daemon_);
	assert_true(mc_test_daemon_log_has(&daemon_, "no state that can be used"));
	expect_dropped(&pair, MC_STATUS_STALE_EPOCH);
	expect_clean(&pair, 1);
}

/* ---- doubled and foreign ---- */

static void doubled_fds_are_closed(void **state)
{
	static const char *const suffixes[] = {"b", "c1", "a0"};
	struct pair pair;
	size_t n_fds;
	char name[64];

	(void)state;
	pair_form(&pair, "double");
	n_fds = mc_test_count_fds(daemon_.pid);
	mc_test_daemon_kill(&daemon_);
	for (size_t i = 0; i < 3; i++) {
		name_of(&pair, suffixes[i], name);
		mc_fd_store_add(&store, name, mc_fd_store_dup(&store, name));
	}
	assert_int_equal(mc_fd_store_count(&store, ""), N_FDS + 3 + 1);
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pair);
	mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
	mc_fd_store_wait_count(&store, "", N_FDS + 1, SOON_MS);
	/* what is left is complete: it survives another restart */
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pair);
	expect_clean(&pair, 1);
}

static int sealed_memfd(size_t n_bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static size_t size_of(const char *name)
{
	int fd = mc_fd_store_dup(&store, name);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return (size_t)st.st_size;
}

static void foreign_fds_are_closed(void **state)
{
	static const char *const names[] = {"stored", "foreign", "s", "sx", "e", "e1", "e1-",
		"e1-d0", "e1-a64", "e1-a00", "e1-a-1", "e1-b ", "E1-b", "e01-b",
		"s00000000000000000000000000000000000001",
		("a name that is far longer than any of ours can ever be, whatever numbers there "
		 "are")};
	struct pair pair;
	size_t n_fds, n = 0;
	int pipes[2];

	(void)state;
	pair_form(&pair, "foreign");
	n_fds = mc_test_count_fds(daemon_.pid);
	mc_test_daemon_kill(&daemon_);
	for (; n < sizeof(names) / sizeof(names[0]); n++)
		mc_fd_store_add(&store, names[n], sealed_memfd(MC_BOARD_BYTES, F_SEAL_SHRINK));
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	mc_fd_store_add(&store, "e99-b", pipes[0]);
	mc_fd_store_add(&store, "s7fff", pipes[1]);
	mc_fd_store_add(&store, "e98-a3", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pair);
	mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
	mc_fd_store_wait_count(&store, "", N_FDS + 1, SOON_MS);
	for (size_t i = 0; i < n - 1; i++) {
		char line[128];

		snprintf(line, sizeof(line), "the stored fd '%s' is none of ours", names[i]);
		if (!mc_test_daemon_log_has(&daemon_, line))
			fail_msg("the log does not tell of '%s'", names[i]);
	}
	assert_true(mc_test_daemon_log_has(
		&daemon_, "the stored state s7fff is dropped: it is no sealed memfd"));
	expect_clean(&pair, 1);
}

static void fds_that_are_not_what_they_are_named_drop_the_group(void **state)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct pair pairs[2];
	char mine[64], theirs[64];

	(void)state;
	for (int i = 0; i < 8; i++) {
		static const char *const suffixes[] = {
			"a0", "a0", "a1", "b", "c0", "c0", "a0", "b"};
		static const char *const reasons[] = {"not sealed", "its size is wrong", "no memfd",
			"of another epoch", "of another rank or epoch", "canaries",
			"two of that name", "no status board"};
		int pipes[2], fd = -1;

		pair_form(&pairs[0], "mine");
		pair_form(&pairs[1], "theirs");
		mc_test_daemon_kill(&daemon_);
		name_of(&pairs[0], suffixes[i], mine);
		name_of(&pairs[1], suffixes[i], theirs);
		switch (i) {
		case 0:
			fd = sealed_memfd(size_of(mine), F_SEAL_SHRINK);
			break;
		case 1:
			fd = sealed_memfd(size_of(mine) + 4096, seals);
			break;
		case 2:
			assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
			close(pipes[1]);
			fd = pipes[0];
			break;
		case 3:
			fd = mc_fd_store_dup(&store, theirs);
			break;
		case 4:
			name_of(&pairs[0], "c1", theirs);
			fd = mc_fd_store_dup(&store, theirs);
			break;
		case 5:
			fd = sealed_memfd(MC_CONTROL_BYTES, seals);
			break;
		case 6:
			mc_fd_store_add(&store, mine, sealed_memfd(size_of(mine), seals));
			break;
		default:
			fd = sealed_memfd(MC_BOARD_BYTES, seals);
			break;
		}
		if (fd >= 0)
			mc_fd_store_replace(&store, mine, fd);
		mc_fd_store_restart(&store, &daemon_);
		if (!mc_test_daemon_log_has(&daemon_, reasons[i]))
			fail_msg("the log does not say '%s'", reasons[i]);
		expect_dropped(&pairs[0], *suffixes[i] == 'b' ? 0 : MC_STATUS_STALE_EPOCH);
		expect_resumed(&pairs[1]);
		expect_clean(pairs, 2);
	}
}

/* ---- the state ---- */

static uint8_t *read_stored(const char *name, size_t *ret_n)
{
	int fd = mc_fd_store_dup(&store, name);
	size_t n = size_of(name);
	uint8_t *bytes = malloc(n);

	assert_non_null(bytes);
	assert_int_equal(pread(fd, bytes, n, 0), (ssize_t)n);
	close(fd);
	*ret_n = n;
	return bytes;
}

static int state_memfd(const uint8_t *bytes, size_t n)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	assert_int_equal(
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL),
		0);
	return fd;
}

static int read_image(const uint8_t *bytes, size_t n)
{
	int fd = state_memfd(bytes, n), r;
	uint8_t *payload = NULL;
	size_t n_payload;

	r = mc_image_read(fd, &payload, &n_payload);
	if (!r)
		free(payload);
	close(fd);
	return r;
}

/* Each byte flipped in each bit, and each length, refused by the reader itself. */
static void no_changed_byte_passes(void **state)
{
	struct pair pair;
	uint8_t *bytes;
	char name[256];
	size_t n;
	int fd;

	(void)state;
	pair_form(&pair, "bytes");
	mc_fd_store_wait_count(&store, "s", 1, SOON_MS);
	mc_fd_store_find(&store, "s", name);
	bytes = read_stored(name, &n);
	assert_int_equal(read_image(bytes, n), 0);
	for (size_t i = 0; i < n; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			bytes[i] ^= (uint8_t)(1u << bit);
			assert_true(read_image(bytes, n) > 0);
			bytes[i] ^= (uint8_t)(1u << bit);
		}
	for (size_t i = 0; i < n; i++)
		assert_true(read_image(bytes, i) > 0);
	/* one that can still be written to is none of ours */
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	assert_int_equal(mc_image_read(fd, &bytes, &n), MC_IMAGE_E_FOREIGN);
	close(fd);
	free(bytes);
	expect_clean(&pair, 1);
}

static void a_damaged_state_is_dropped(void **state)
{
	struct pair pair;
	uint8_t *bytes;
	char name[256];
	size_t n;

	(void)state;
	for (int i = 0; i < 14; i++) {
		pair_form(&pair, "damaged");
		mc_test_daemon_kill(&daemon_);
		mc_fd_store_find(&store, "s", name);
		bytes = read_stored(name, &n);
		if (i < 10)
			bytes[(n - 1) * (size_t)i / 9] ^= 0x10;
		else
			n = n * (size_t)(i - 10) / 4;
		mc_fd_store_replace(&store, name, state_memfd(bytes, n));
		free(bytes);
		mc_fd_store_restart(&store, &daemon_);
		expect_dropped(&pair, MC_STATUS_STALE_EPOCH);
		assert_true(mc_test_daemon_log_has(&daemon_, "is dropped: "));
		expect_clean(&pair, 1);
	}
}

/* Rewrites the stored state by hand. */
static void change_state(void (*change)(Moecomm__State__State *state))
{
	Moecomm__State__State *state;
	uint8_t *payload, *packed;
	size_t n;
	char name[256];
	int fd;

	mc_fd_store_find(&store, "s", name);
	fd = mc_fd_store_dup(&store, name);
	assert_int_equal(mc_image_read(fd, &payload, &n), 0);
	close(fd);
	state = moecomm__state__state__unpack(NULL, n, payload);
	assert_non_null(state);
	change(state);
	packed = malloc(moecomm__state__state__get_packed_size(state));
	n = moecomm__state__state__pack(state, packed);
	assert_int_equal(mc_image_write(packed, n, &fd), 0);
	mc_fd_store_replace(&store, name, fd);
	moecomm__state__state__free_unpacked(state, NULL);
	free(packed);
	free(payload);
}

static void other_boot(Moecomm__State__State *state)
{
	state->boot_id[0] = state->boot_id[0] == '0' ? '1' : '0';
}

static void other_serial(Moecomm__State__State *state)
{
	state->serial++;
}

static void rank_twice(Moecomm__State__State *state)
{
	state->groups[0]->epochs[0]->members[1]->rank = 0;
}

static void id_twice(Moecomm__State__State *state)
{
	state->groups[0]->epochs[0]->members[1]->id = state->groups[0]->epochs[0]->members[0]->id;
}

static void too_large(Moecomm__State__State *state)
{
	state->groups[0]->epochs[0]->spec->world_size = 1000;
}

static void other_sentinel(Moecomm__State__State *state)
{
	state->groups[0]->epochs[0]->sentinel.data[3] ^= 1;
}

static void bad_name(Moecomm__State__State *state)
{
	state->groups[0]->name[0] = '\n';
}

static void no_state_of_an_epoch(Moecomm__State__State *state)
{
	state->groups[0]->epochs[0]->state = MC_GROUP_ARMING;
}

static void a_state_that_makes_no_sense_is_dropped(void **state)
{
	static const struct {
		void (*change)(Moecomm__State__State *state);
		const char *reason;
	} cases[] = {
		{other_boot, "it is of another boot"},
		{other_serial, "it is not the one its name tells"},
		{rank_twice, "its ranks make no sense"},
		{id_twice, "a membership is there twice"},
		{too_large, "1000"},
		{other_sentinel, "its sentinel is another one"},
		{bad_name, "its name or its lists make no sense"},
		{no_state_of_an_epoch, "its state is none that is stored"},
	};
	struct pair pair;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pair_form(&pair, "senseless");
		mc_test_daemon_kill(&daemon_);
		change_state(cases[i].change);
		mc_fd_store_restart(&store, &daemon_);
		if (!mc_test_daemon_log_has(&daemon_, cases[i].reason))
			fail_msg("the log does not say '%s'", cases[i].reason);
		expect_dropped(&pair, MC_STATUS_STALE_EPOCH);
		expect_clean(&pair, 1);
	}
}

/* Killed between storing a state and taking the one before it out. */
static void the_latest_intact_state_counts(void **state)
{
	struct pair pairs[2];
	char older[256], newer[256], again[256];
	int fd;

	(void)state;
	pair_form(&pairs[0], "first");
	mc_fd_store_wait_count(&store, "s", 1, SOON_MS);
	mc_fd_store_find(&store, "s", older);
	fd = mc_fd_store_dup(&store, older);
	pair_form(&pairs[1], "second");
	mc_fd_store_wait_count(&store, older, 0, SOON_MS);
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_find(&store, "s", newer);
	mc_fd_store_add(&store, older, fcntl(fd, F_DUPFD_CLOEXEC, 0));
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pairs[0]);
	expect_resumed(&pairs[1]);
	mc_fd_store_wait_count(&store, "s", 1, SOON_MS);

	/* the latest is damaged: the one before it knows only the first group */
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_find(&store, "s", again);
	mc_fd_store_replace(&store, again, state_memfd((const uint8_t *)"MCSTATE\n", 8));
	mc_fd_store_add(&store, older, fd);
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pairs[0]);
	expect_dropped(&pairs[1], MC_STATUS_STALE_EPOCH);
	expect_clean(pairs, 2);
}

/* ---- what members do next ---- */

static void a_token_is_needed(void **state)
{
	struct pair pair;

	(void)state;
	pair_form(&pair, "token");
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	pair_connect(&pair);
	pair.layout[1].token[7] ^= 1;
	send_resume(&pair, 1);
	mc_wire_expect_done(&pair.client[1], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	pair.layout[1].token[7] ^= 1;
	pair.layout[1].epoch++;
	send_resume(&pair, 1);
	mc_wire_expect_done(&pair.client[1], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	pair.layout[1].epoch--;
	expect_resumed(&pair);
	expect_clean(&pair, 1);
}

static void who_returns_to_an_ended_epoch_is_told(void **state)
{
	Moecomm__Wire__Abort abort_ = MOECOMM__WIRE__ABORT__INIT;
	struct pair pair;

	(void)state;
	pair_form(&pair, "ended");
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	pair_connect(&pair);
	send_resume(&pair, 0);
	mc_wire_expect_done(&pair.client[0], MC_STATUS_OK, NULL, SOON_MS);
	abort_.has_member_id = 1;
	abort_.member_id = pair.layout[0].member_id;
	mc_wire_send(&pair.client[0], MC_FRAME_ABORT, &abort_.base);
	mc_wire_expect_done(&pair.client[0], MC_STATUS_OK, NULL, SOON_MS);
	/* the memory is nobody's to be handed any more */
	mc_fd_store_wait_count(&store, "e", 0, SOON_MS);
	send_resume(&pair, 1);
	mc_wire_expect_done(&pair.client[1], MC_STATUS_OK, NULL, SOON_MS);
	mc_wire_expect_notice(
		&pair.client[1], MC_STATUS_ABORTED, "aborted by rank 0", NULL, SOON_MS);

	/* who still holds memory of an ended epoch is known over one more restart */
	mc_fd_store_wait_count(&store, "s", 1, SOON_MS);
	mc_test_sleep_ms(50);
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	pair_connect(&pair);
	{
		struct mc_wire_reply reply;
		Moecomm__Wire__Status *status =
			mc_wire_status(&pair.client[0], "ended", true, false, &reply);

		assert_int_equal(status->n_groups, 1);
		assert_int_equal(status->groups[0]->state, MC_GROUP_FAILED);
		assert_int_equal(status->groups[0]->n_holders, 2);
		assert_int_equal(status->groups[0]->holders[0]->pid, getpid());
		mc_wire_reply_clear(&reply);
	}
	send_resume(&pair, 1);
	mc_wire_expect_done(&pair.client[1], MC_STATUS_OK, NULL, SOON_MS);
	mc_wire_expect_notice(
		&pair.client[1], MC_STATUS_ABORTED, "aborted by rank 0", NULL, SOON_MS);
	send_resume(&pair, 0);
	mc_wire_expect_done(&pair.client[0], MC_STATUS_OK, NULL, SOON_MS);
	expect_clean(&pair, 1);
}

/* Asks for the next epoch instead of resuming this one. */
static void a_join_instead_of_a_return(void **state)
{
	struct mc_wire_join join = {.group = "next", .world_size = 2};
	struct pair pair;
	uint64_t epoch;

	(void)state;
	pair_form(&pair, "next");
	epoch = pair.layout[0].epoch;
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	pair_connect(&pair);
	for (int r = 0; r < 2; r++)
		mc_wire_layout_clear(&pair.layout[r]);
	mc_wire_form(pair.client, pair.layout, &join);
	assert_true(pair.layout[0].epoch > epoch);
	expect_clean(&pair, 1);
}

static void a_full_store_is_no_harm(void **state)
{
	struct pair pairs[3];
	static const char *const names[] = {"fits", "fits-too", "does-not"};

	(void)state;
	mc_test_daemon_finish(&daemon_);
	mc_fd_store_close(&store);
	mc_fd_store_open(&store, 2 * N_FDS + 4);
	mc_fd_store_start(&store, &daemon_, NULL);
	for (int i = 0; i < 3; i++)
		pair_form(&pairs[i], names[i]);
	assert_true(mc_test_daemon_log_has(
		&daemon_, "fd store is full (11 fds): group does-not will not outlive"));
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pairs[0]);
	expect_resumed(&pairs[1]);
	expect_dropped(&pairs[2], 0);
	assert_int_equal(store.n_refused, 0);
	expect_clean(pairs, 3);
}

/* Nobody takes out of the socket what the daemon tells: its clients must not feel it. */
static void a_manager_that_does_not_read_is_no_harm(void **state)
{
	enum { N = 64 };
	static struct mc_wire_client client[N];
	static struct mc_wire_layout layout[N];
	struct mc_wire_join join = {.group = "large", .world_size = N};
	struct pair kept, pair;
	uint64_t begun;

	(void)state;
	pair_form(&kept, "kept");
	mc_fd_store_wait_count(&store, "e", N_FDS, SOON_MS);
	/* the stand-in reads with the lock held */
	pthread_mutex_lock(&store.lock);
	begun = mc_test_now_ms();
	for (int r = 0; r < N; r++)
		mc_wire_client_open(&client[r], daemon_.socket, "test");
	mc_wire_form(client, layout, &join);
	for (int r = 0; r < N; r++) {
		mc_wire_client_close(&client[r]);
		mc_wire_layout_clear(&layout[r]);
	}
	pair_close(&kept);
	mc_wire_client_open(&client[0], daemon_.socket, "test");
	mc_wire_wait_state(&client[0], "large", 0, SOON_MS);
	mc_wire_wait_state(&client[0], "kept", 0, SOON_MS);
	mc_wire_client_close(&client[0]);
	assert_true(mc_test_now_ms() - begun < SOON_MS / 2);
	assert_true(mc_test_daemon_log_has(&daemon_, "cannot store the memory of group large"));
	pthread_mutex_unlock(&store.lock);
	/* what could not be told then is told now, and what comes is stored */
	mc_fd_store_wait_count(&store, "e", 0, SOON_MS);
	pair_form(&pair, "after");
	mc_fd_store_wait_count(&store, "e", N_FDS, SOON_MS);
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	expect_resumed(&pair);
	expect_clean(&pair, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(all_are_resumed),
		TEST(one_missing_fd_drops_that_group_only),
		TEST(none_or_only_the_state_or_all_but_it),
		TEST(doubled_fds_are_closed),
		TEST(foreign_fds_are_closed),
		TEST(fds_that_are_not_what_they_are_named_drop_the_group),
		TEST(no_changed_byte_passes),
		TEST(a_damaged_state_is_dropped),
		TEST(a_state_that_makes_no_sense_is_dropped),
		TEST(the_latest_intact_state_counts),
		TEST(a_token_is_needed),
		TEST(who_returns_to_an_ended_epoch_is_told),
		TEST(a_join_instead_of_a_return),
		TEST(a_full_store_is_no_harm),
		TEST(a_manager_that_does_not_read_is_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
