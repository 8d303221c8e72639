/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm: dispatch and combine of mixture-of-experts layers between the GPUs of a host.
 *
 * A worker connects to the host's daemon, joins a group as one of its ranks, and then calls ops on
 * its own stream. The daemon owns the memory and watches; no op ever talks to it.
 *
 *     moecomm_context *ctx; moecomm_group *group;
 *     moecomm_connect(NULL, &ctx);
 *     struct moecomm_group_options o = MOECOMM_GROUP_OPTIONS_INIT;
 *     o.name = "ep0"; o.rank = rank; o.world_size = 4;
 *     o.max_rows = 256; o.dispatch_row_bytes = 4096; o.combine_row_bytes = 7168 * 2;
 *     moecomm_group_join(ctx, &o, &group);
 *     … moecomm_dispatch(group, …, stream); experts(); moecomm_combine(group, …, stream); …
 *     moecomm_group_leave(group); moecomm_disconnect(ctx);
 *
 * Rules for every call:
 *  - The library never exits, aborts, raises a signal or prints (unless MOECOMM_LOG asks for it).
 *  - A failing call returns a status other than MOECOMM_OK, sets nothing it would return, leaks
 *    nothing, and leaves a sentence for people at moecomm_last_error() of the calling thread.
 *  - Option structures start with their own size, set by their _INIT macro: a program built against
 *    an older header keeps working.
 *  - After fork() the child can't use the parent's contexts and groups (calls return INVALID, and
 *    leave and disconnect do nothing): it connects for itself. All fds are close-on-exec, and the
 *    library handles no signal and raises no SIGPIPE.
 *  - Memory handed in stays the caller's. Pointers to tensors must stay valid until the op is done.
 */
/* clang-format off: tables of documented fields read better as they stand */
#ifndef MOECOMM_H
#define MOECOMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define MOECOMM_VERSION_MAJOR 0
#define MOECOMM_VERSION_MINOR 1
#define MOECOMM_VERSION_PATCH 0

/* Outcome of a call. Numbers never change. moecomm_status_text() has each one's sentence. */
enum moecomm_status {
	MOECOMM_OK = 0,             /* the call succeeded */
	MOECOMM_INVALID = 1,        /* an argument is wrong */
	MOECOMM_TOO_LARGE = 2,      /* the op does not fit the group's capacity; nothing was launched */
	MOECOMM_BUSY = 3,           /* another op runs on this channel; nothing was launched */
	MOECOMM_UNREACHABLE = 4,    /* no daemon answers at the socket */
	MOECOMM_DENIED = 5,         /* not permitted; the detail names path component, mode and group */
	MOECOMM_VERSION = 6,        /* daemon and client speak different major versions */
	MOECOMM_UNSUPPORTED = 7,    /* the other side, or this build, does not know this request */
	MOECOMM_SPEC_MISMATCH = 8,  /* ranks asked for different group specs; field, ranks, values named */
	MOECOMM_JOIN_TIMEOUT = 9,   /* not all ranks joined before the deadline; the missing are named */
	MOECOMM_QUOTA = 10,         /* a bound on what one user may hold is reached */
	MOECOMM_IN_USE = 11,        /* the group name or rank is taken; the holder is named */
	MOECOMM_PROBE_FAILED = 12,  /* the join probe found a pair that can't exchange data */
	MOECOMM_PEER_LOST = 13,     /* a peer process ended */
	MOECOMM_TIMEOUT = 14,       /* a peer did not arrive before the deadline */
	MOECOMM_MISMATCH = 15,      /* ranks called different ops or shapes */
	MOECOMM_ABORTED = 16,       /* the group was aborted */
	MOECOMM_STALE_EPOCH = 17,   /* the group's epoch has ended; rejoin */
	MOECOMM_DEVICE = 18,        /* the device or its driver reported an error */
	MOECOMM_SENTINEL = 19,      /* a payload equals the epoch's sentinel (probability 2^-128; 2^-64 on host) */
	MOECOMM_CORRUPT = 20,       /* a control block or header is damaged */
	MOECOMM_PROTOCOL = 21,      /* the other side sent something malformed */
	MOECOMM_NO_MEMORY = 22,     /* out of memory */
	MOECOMM_SYSTEM = 23,        /* a system call failed; the detail names it */
	MOECOMM_TOPOLOGY = 24,      /* these devices or hosts can't form a group */
	MOECOMM_NOT_FOUND = 25,     /* no such group or membership */
	MOECOMM_LEFT = 26,          /* a member left the group */
	MOECOMM_SHUTDOWN = 27,      /* the daemon is shutting down */
};

/* "OK", "PEER_LOST", …; "UNKNOWN" for a number this build does not know. Never NULL. Any thread. */
const char *moecomm_status_name(enum moecomm_status status);
/* The sentence above. Never NULL. Any thread. */
const char *moecomm_status_text(enum moecomm_status status);
/*
 * What the last failing call of this thread said, with what to do; "" before any. Valid until the
 * thread's next call.
 */
const char *moecomm_last_error(void);
/* "0.1.0": of the library, not of the header. Any thread. */
const char *moecomm_version(void);

/* Where arenas live and ops run. */
enum moecomm_backend {
	MOECOMM_BACKEND_AUTO = 0, /* what the daemon serves: cuda where a GPU and driver answer, else host */
	MOECOMM_BACKEND_HOST = 1, /* shared memory; ops run on the calling thread */
	MOECOMM_BACKEND_CUDA = 2,
};

/* How an op travels. */
enum moecomm_path {
	MOECOMM_PATH_AUTO = 0,
	MOECOMM_PATH_LAMPORT = 1, /* the fast path: pushes into the peers' arenas */
	MOECOMM_PATH_NCCL = 2,    /* the fallback; not in this release: joining with it is UNSUPPORTED */
};

enum moecomm_dtype {
	MOECOMM_BF16 = 1,
	MOECOMM_FP16 = 2,
	MOECOMM_FP32 = 3,
};

/* ---- connection ---- */

/* A connection to the daemon, with one control thread of its own that makes no device call. */
typedef struct moecomm_context moecomm_context;

struct moecomm_connect_options {
	size_t size;             /* sizeof(struct moecomm_connect_options) */
	const char *socket_path; /* NULL: $MOECOMM_SOCKET, else the default of this user */
	const char *label;       /* shown by moecommctl; NULL: the program's name */
	int wait_ms;             /* how long to wait for a daemon that is not there yet; 0: not at all */
};
#define MOECOMM_CONNECT_OPTIONS_INIT {sizeof(struct moecomm_connect_options), NULL, NULL, 0}

/*
 * Connects. options may be NULL. The default socket is /run/moecomm/moecommd.sock, or
 * $XDG_RUNTIME_DIR/moecomm/moecommd.sock when only that exists. A daemon of another user than root
 * and the caller is DENIED, before anything is sent to it, unless every directory on the way to the
 * socket belongs to root, that user or the caller and none can be written by everybody: whoever came
 * first to a path below /tmp is not to be handed data.
 * UNREACHABLE (at once, or after wait_ms; a daemon that hangs may take 5 s more), DENIED, QUOTA,
 * INVALID, VERSION, PROTOCOL, NO_MEMORY, SYSTEM.
 * The caller owns *ret_context and ends it with moecomm_disconnect. Any thread.
 */
enum moecomm_status moecomm_connect(
	const struct moecomm_connect_options *options, moecomm_context **ret_context);

/*
 * Leaves all groups of the context, ends its thread and frees it; returns NULL. NULL is allowed.
 * No other call on it or its groups may run. Ends within 5 s whatever has failed.
 */
moecomm_context *moecomm_disconnect(moecomm_context *context);

/* ---- groups ---- */

/* One rank's membership of a group. */
typedef struct moecomm_group moecomm_group;

struct moecomm_group_options {
	size_t size;                 /* sizeof(struct moecomm_group_options) */
	const char *name;            /* group name, 1 to 128 bytes of [A-Za-z0-9._:-] */
	const char *job;             /* told apart from other jobs that use the name; NULL: "" */
	int rank;                    /* 0 … world_size-1 */
	int world_size;              /* 1 … 64 */
	enum moecomm_backend backend;
	int device;                  /* CUDA device ordinal; -1: the current one. Ignored on host */
	int n_channels;              /* independent rings, 1 … 8; 0: 1. As many as really overlap: with
	                                CUDA an op takes at most 1/n of the multiprocessors, so that
	                                all can run at once */
	int64_t max_rows;            /* capacity: rows a rank in one call */
	int64_t dispatch_row_bytes;  /* bytes of a dispatched row over all its tensors; 0: no dispatch */
	int64_t combine_row_bytes;   /* D × element size; 0: no combine */
	enum moecomm_path path;      /* override; must be equal on all ranks */
	int shared_gpu;              /* 1: several ranks may share one GPU */
	int op_timeout_ms;           /* steady deadline of a call; 0: 10,000 */
	int warmup_timeout_ms;       /* deadline of a channel's first calls; 0: 120,000 */
	int warmup_calls;            /* how many those are; 0: 16 */
	int join_timeout_ms;         /* for all ranks to come; 0: 60,000 */
	int probe_timeout_ms;        /* for the join probe; 0: 10,000 */
	const uint32_t *allow_uid;   /* other users who may join; the first joiner's lists stand */
	int n_allow_uid;
	const uint32_t *allow_gid;
	int n_allow_gid;
};
#define MOECOMM_GROUP_OPTIONS_INIT                                                                 \
	{sizeof(struct moecomm_group_options), NULL, NULL, 0, 1, MOECOMM_BACKEND_AUTO, -1, 0, 0, 0, 0,     \
		MOECOMM_PATH_AUTO, 0, 0, 0, 0, 0, 0, NULL, 0, NULL, 0}

/*
 * Joins and waits until all ranks are there, the memory is armed and mapped, and the probe of every
 * pair has passed; at most join_timeout_ms + probe_timeout_ms + arming. Several threads may join
 * at once on one context, also as ranks of one group.
 * INVALID, DENIED, IN_USE, SPEC_MISMATCH, TOPOLOGY, JOIN_TIMEOUT, PROBE_FAILED, QUOTA, PEER_LOST,
 * LEFT, ABORTED, SHUTDOWN, DEVICE, UNREACHABLE, UNSUPPORTED, NO_MEMORY, SYSTEM,
 * TOO_LARGE (an arena beyond 4 TiB), PROTOCOL.
 * The caller owns *ret_group and ends it with moecomm_group_leave. Allocates device memory
 * mappings and loads all kernels: not during stream capture.
 */
enum moecomm_status moecomm_group_join(moecomm_context *context,
	const struct moecomm_group_options *options, moecomm_group **ret_group);

/*
 * Joins the next epoch of the group with the options of the first join, in the same handle. Fresh
 * memory at the same addresses: captured graphs stay valid, as long as no more ranks of the group
 * share this GPU than when they were captured. The old epoch ends for every member.
 * No op of this rank may be in flight. On failure the handle stays usable for another rejoin or leave.
 * CUDA can't tell whose kernels are still running: the old memory is let go once all work of this
 * process on the device is done; DEVICE says that some was not within about 2 s.
 */
enum moecomm_status moecomm_group_rejoin(moecomm_group *group);

/*
 * Leaves and frees; returns NULL. NULL is allowed. Waits for this rank's ops in flight; no other call
 * on the group may begin any more, queries and aborts included. The epoch ends for all members.
 */
moecomm_group *moecomm_group_leave(moecomm_group *group);

/*
 * Ends the epoch for all members: ops in flight return ABORTED within 1 s, also on ranks that wait.
 * From any thread, any number of times; harmless on an ended epoch. reason may be NULL.
 */
enum moecomm_status moecomm_group_abort(moecomm_group *group, const char *reason);

/*
 * Rows a rank that one op can carry when a row is row_bytes long (a dispatch's tensors together, or
 * D × element size). The one number that decides TOO_LARGE. 0: nothing of that size fits. Any thread.
 */
int64_t moecomm_group_capacity(const moecomm_group *group, int64_t row_bytes);

/*
 * The path that an op of that shape takes: a pure function of its arguments and of what was agreed at
 * join; the same on all ranks. MOECOMM_PATH_AUTO: none, such an op returns TOO_LARGE or INVALID. Any
 * thread.
 */
enum moecomm_path moecomm_group_path(const moecomm_group *group, int64_t rows, int64_t row_bytes);

/* State of a group as its member sees it. */
enum moecomm_group_state {
	MOECOMM_GROUP_READY = 1,  /* ops run */
	MOECOMM_GROUP_FAILED = 2, /* the epoch has ended; status and detail say why; rejoin or leave */
};

struct moecomm_group_info {
	size_t size;                    /* set by the caller before the call */
	enum moecomm_group_state state;
	enum moecomm_status status;     /* why it failed; OK while ready */
	int fault_rank;                 /* whose doing; -1: nobody's in particular */
	uint64_t fault_call;            /* call number; 0: none */
	char detail[512];               /* the fault in a sentence */
	uint64_t epoch;
	int rank, world_size;
	enum moecomm_backend backend;
	enum moecomm_path path;
	char path_reason[256];          /* why not the fast path; "" */
	int daemon_connected;           /* 0: the daemon is away; ops go on */
	uint64_t calls;                 /* ops entered on all channels */
	uint64_t arena_bytes;           /* of one rank */
	uint64_t fallback_calls;        /* ops that took another path than the fast one */
};

/*
 * Reads state and last fault from host memory, without a synchronisation, while ops run. Any thread.
 * Sets at most ret_info->size bytes.
 */
enum moecomm_status moecomm_group_query(const moecomm_group *group, struct moecomm_group_info *ret_info);

/* Changes the group's deadlines for all members, from now on; 0 leaves one as it is. Any thread. */
enum moecomm_status moecomm_group_set_deadlines(moecomm_group *group, int op_timeout_ms,
	int warmup_timeout_ms, int warmup_calls);

/* ---- ops ----
 *
 * Rules for every op:
 *  - Enqueued on `stream` (a cudaStream_t as void *; ignored on the host backend, where the op is
 *    complete on return). Never allocates, synchronises or talks to the daemon. May be captured in a
 *    CUDA graph, in any capture mode.
 *  - All ranks of the group call the same ops with the same shapes in the same order on a channel;
 *    otherwise MISMATCH. Different channels are independent: there is room for an op of each on the
 *    device at the same time. Ranks may start them in different orders only on streams that CUDA
 *    itself runs independently (non-blocking ones, no more than CUDA_DEVICE_MAX_CONNECTIONS).
 *    Ops of different groups on one GPU do not know of each other: let all ranks start those that
 *    may overlap in the same order (or use channels of one group). Else an op that waits can take
 *    what the other needs, and both end by their deadlines.
 *  - One op at a time a channel: BUSY when two threads meet.
 *  - Rows: `rows` counts each rank's rows; or `rows_per_rank` (host array [world_size], zeros
 *    allowed, read before return) when they differ. Equal numbers take the same path as `rows`.
 *    Blocks of gathered tensors lie in rank order, rank r's block from row Σ rows of ranks below r.
 *  - With a device-side count the rows above are maxima: blocks keep their places, only valid rows
 *    travel, padding rows of outputs are left alone (expert ids: -1). All ranks give one, or none.
 *  - Pointers of any alignment; 16-byte aligned ones are fast. Outputs must not overlap inputs
 *    unless said.
 *  - INVALID, TOO_LARGE, BUSY before any launch. On the host backend also the op's own outcome:
 *    PEER_LOST, TIMEOUT, MISMATCH, ABORTED, LEFT, STALE_EPOCH, SENTINEL, CORRUPT, and INVALID for a
 *    bad device-side count; with CUDA those show at the next call and in moecomm_group_query().
 *    After a failed op its outputs are undefined and every later op of the epoch returns the
 *    failure at once.
 */

struct moecomm_tensor {
	const void *input;  /* [rows, row_bytes], contiguous; device memory (host backend: any memory) */
	void *output;       /* [Σ rows, row_bytes], contiguous */
	int64_t row_bytes;  /* ≥ 1 */
};

struct moecomm_dispatch_args {
	size_t size;                     /* sizeof(struct moecomm_dispatch_args) */
	int channel;
	const struct moecomm_tensor *tensors; /* [n_tensors], host array, read before return */
	int n_tensors;                   /* 1 … 8 */
	int64_t rows;                    /* of every rank; ignored when rows_per_rank is set */
	const int64_t *rows_per_rank;    /* NULL or host array [world_size] */
	const int32_t *count;            /* NULL or device scalar: valid rows of this rank, 0 … its rows */
	int32_t *ret_counts;             /* NULL or device array [world_size]: every rank's valid rows */
	int ids_tensor;                  /* index of the tensor of int32 expert ids to mask; -1: none */
};
#define MOECOMM_DISPATCH_ARGS_INIT \
	{sizeof(struct moecomm_dispatch_args), 0, NULL, 0, 0, NULL, NULL, NULL, -1}

/* Gathers every rank's rows on every rank, up to 8 tensors in one launch; bytes arrive bit for bit. */
enum moecomm_status moecomm_dispatch(
	moecomm_group *group, const struct moecomm_dispatch_args *args, void *stream);

struct moecomm_combine_args {
	size_t size;                     /* sizeof(struct moecomm_combine_args) */
	int channel;
	enum moecomm_dtype dtype;        /* of all tensors here */
	int64_t hidden;                  /* D, elements a row, ≥ 1 */
	const void *input;               /* [Σ rows, D]: this rank's part of every rank's rows */
	void *output;                    /* [rows of this rank, D] */
	int64_t rows;
	const int64_t *rows_per_rank;
	const int32_t *counts;           /* NULL or device array [world_size]: valid rows, as dispatch left them */
	/* combine_rmsnorm only; NULL and 0 elsewhere */
	const void *residual;            /* [rows of this rank, D] */
	void *residual_output;           /* [rows of this rank, D]; may be `residual` */
	const void *gamma;               /* [D]; on a rank without rows too */
	float eps;
};
#define MOECOMM_COMBINE_ARGS_INIT \
	{sizeof(struct moecomm_combine_args), 0, MOECOMM_BF16, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0.0f}

/*
 * Sums the ranks' parts and leaves each rank its own rows: output = round(((p0 + p1) + p2) + …) in
 * fp32, in rank order, rounded once to nearest even. A NaN result is the type's canonical quiet NaN
 * (0x7fff, 0x7fff, 0x7fffffff). The same bits whatever batch, grid, path and rank.
 */
enum moecomm_status moecomm_combine(
	moecomm_group *group, const struct moecomm_combine_args *args, void *stream);

/*
 * Combine, then residual add and RMSNorm in one launch. With s the fp32 sum of combine before its
 * rounding: x = s + residual; residual_output = round(x);
 * output = round((x · r) · gamma) with r = 1 / sqrt(mean(x²) + eps), x not rounded in between, every
 * operation in fp32, the sum of squares in the fixed order of docs/numerics.md.
 */
enum moecomm_status moecomm_combine_rmsnorm(
	moecomm_group *group, const struct moecomm_combine_args *args, void *stream);

/*
 * ids [rows, topk] int32, device memory: rows at or past *count (device scalar) become -1, in place.
 * Local: no peer, no channel.
 */
enum moecomm_status moecomm_mask_expert_ids(moecomm_group *group, int32_t *ids, int64_t rows,
	int64_t topk, const int32_t *count, void *stream);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
