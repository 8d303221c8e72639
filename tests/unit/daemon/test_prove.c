/* SPDX-License-Identifier: Apache-2.0 */
/* What passes for a driver's memory in the fd store, as far as it can be told without the driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "daemon/state/prove.h"

static const struct mc_proof of_a_gpu = {.epoch = 1, .world_size = 2, .arena_bytes = 1 << 21};

static void expect_refused(int fd)
{
	assert_true(fd >= 0);
	assert_non_null(mc_prove_control(fd, &of_a_gpu, 0));
	assert_non_null(mc_prove_arena(fd, &of_a_gpu));
	close(fd);
}

static void what_is_no_device_of_the_driver_is_refused(void **state)
{
	int pair[2];

	(void)state;
	expect_refused(memfd_create("arena", MFD_CLOEXEC));
	expect_refused(open("/dev/null", O_RDWR | O_CLOEXEC));
	expect_refused(open("/dev/zero", O_RDWR | O_CLOEXEC));
	expect_refused(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	expect_refused(epoll_create1(EPOLL_CLOEXEC));
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	expect_refused(pair[0]);
	expect_refused(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	expect_refused(pair[0]);
	expect_refused(pair[1]);
	assert_non_null(mc_prove_arena(-1, &of_a_gpu));
}

/* Where there is a driver. */
static void the_control_node_is_taken(void **state)
{
	int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

	(void)state;
	if (fd < 0)
		skip();
	assert_null(mc_prove_control(fd, &of_a_gpu, 0));
	assert_null(mc_prove_arena(fd, &of_a_gpu));
	close(fd);
	/* one that can't be written to is none that we have stored */
	expect_refused(open("/dev/nvidiactl", O_RDONLY | O_CLOEXEC));
}

/* Allocations of a driver share one inode: the same object is only what was duplicated. */
static void one_node_opened_twice_is_two(void **state)
{
	int a = open("/dev/null", O_RDWR | O_CLOEXEC), b = open("/dev/null", O_RDWR | O_CLOEXEC);
	int c = fcntl(a, F_DUPFD_CLOEXEC, 0), memory = memfd_create("memory", MFD_CLOEXEC);
	int again = fcntl(memory, F_DUPFD_CLOEXEC, 0), other = memfd_create("memory", MFD_CLOEXEC);

	(void)state;
	assert_false(mc_prove_same(a, b));
	assert_true(mc_prove_same(a, c));
	assert_true(mc_prove_same(memory, again));
	assert_false(mc_prove_same(memory, other));
	assert_false(mc_prove_same(a, memory));
	close(a), close(b), close(c), close(memory), close(again), close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_device_of_the_driver_is_refused),
		cmocka_unit_test(the_control_node_is_taken),
		cmocka_unit_test(one_node_opened_twice_is_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
