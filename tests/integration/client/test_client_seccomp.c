/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attach and ops where a container's profile forbids ptrace and pidfd_getfd and no capability is
 * held: other libraries need one of them to share memory between processes.
 */
#include "integration/client/harness.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "integration/client/ranks.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* EPERM for the calls that reach into other processes. Threads made later inherit it. */
static int forbid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? -errno : 0;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0}};

	return syscall(SYS_capset, &header, none) ? -errno : 0;
}

static int body(struct rank *rank)
{
	struct rank mine = *rank;
	moecomm_group *group;

	EXPECT_TRUE(drop_capabilities() == 0);
	EXPECT_TRUE(forbid() == 0);
	/* that they really are forbidden */
	EXPECT_TRUE(ptrace(PTRACE_TRACEME, 0, 0, 0) == -1 && errno == EPERM);
	EXPECT_TRUE(syscall(SYS_pidfd_getfd, 0, 0, 0) == -1 && errno == EPERM);
	/* a connection of its own, whose thread lives under the filter too */
	mine.context = test_connect(test_socket());
	group = rank_join(&mine);
	EXPECT_TRUE(group);
	for (int i = 0; i < 20; i++)
		EXPECT(check_round(group, rank->rank, rank->world_size, 1, i, -1), MOECOMM_OK);
	moecomm_group_leave(group);
	moecomm_disconnect(mine.context);
	return 0;
}

static void test_seccomp(void **state)
{
	(void)state;
	assert_int_equal(run_processes("seccomp", 2, body, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_seccomp)};

	return cmocka_run_group_tests(tests, ranks_daemon_start, ranks_daemon_finish);
}
