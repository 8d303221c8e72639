/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: moecomm-worker --group NAME --rank R --world-size W [OPTION…]\n"
	"\n"
	"One rank of a small decoder with mixture-of-experts layers, on the bytes of a text. Start "
	"W of\n"
	"them, each with its own rank; they meet in the group through moecommd.\n"
	"\n"
	"  --group NAME       group to join\n"
	"  --rank R           this rank, 0 … W-1\n"
	"  --world-size W     number of ranks (1 … 64)\n"
	"  --layers N         layers of the model (4)\n"
	"  --tokens T         tokens a rank and round (16)\n"
	"  --rounds N         rounds (50); 0: until stopped\n"
	"  --hidden D         width of the model, 16 or more (128)\n"
	"  --experts E        experts a layer; expert e belongs to rank e mod W (8)\n"
	"  --topk K           experts a token (2)\n"
	"  --ragged           ranks take different numbers of tokens, some none, changing by "
	"round\n"
	"  --check            compare every layer with an fp64 reference; the last line says "
	"'verified'\n"
	"  --progress         a line a second\n"
	"  --rejoin           when an op fails, form the group's next epoch and go on\n"
	"  --input FILE       text to read (a licence text of the system)\n"
	"  --seed S           of the weights; the same on all ranks (1)\n"
	"  --socket PATH      the daemon's socket\n"
	"  --wait MS          how long to wait for a daemon that is not there yet (0)\n"
	"  --backend NAME     auto, host or cuda (auto)\n"
	"  --device N         CUDA device (the rank's own: rank modulo devices)\n"
	"  --shared-gpu       several ranks may share a GPU\n"
	"  --op-timeout MS    deadline of one op (the library's default)\n"
	"  --join-timeout MS  how long to wait for the other ranks (the library's default)\n"
	"  --pause MS         rest after each round (0)\n"
	"  --job NAME         tells two jobs that use one group name apart\n"
	"  --help\n"
	"\n"
	"Exit status: 0 fine, 1 --check found a difference, 2 usage, 3 a call failed (the sentence "
	"says\n"
	"which, and which rank is to blame).\n";

enum {
	OPT_GROUP = 256,
	OPT_RANK,
	OPT_WORLD_SIZE,
	OPT_LAYERS,
	OPT_TOKENS,
	OPT_ROUNDS,
	OPT_HIDDEN,
	OPT_EXPERTS,
	OPT_TOPK,
	OPT_RAGGED,
	OPT_CHECK,
	OPT_PROGRESS,
	OPT_REJOIN,
	OPT_INPUT,
	OPT_SEED,
	OPT_SOCKET,
	OPT_WAIT,
	OPT_BACKEND,
	OPT_DEVICE,
	OPT_SHARED_GPU,
	OPT_OP_TIMEOUT,
	OPT_JOIN_TIMEOUT,
	OPT_PAUSE,
	OPT_JOB,
	OPT_HELP,
};

static const struct option long_options[] = {
	{"group", required_argument, NULL, OPT_GROUP},
	{"rank", required_argument, NULL, OPT_RANK},
	{"world-size", required_argument, NULL, OPT_WORLD_SIZE},
	{"layers", required_argument, NULL, OPT_LAYERS},
	{"tokens", required_argument, NULL, OPT_TOKENS},
	{"rounds", required_argument, NULL, OPT_ROUNDS},
	{"hidden", required_argument, NULL, OPT_HIDDEN},
	{"experts", required_argument, NULL, OPT_EXPERTS},
	{"topk", required_argument, NULL, OPT_TOPK},
	{"ragged", no_argument, NULL, OPT_RAGGED},
	{"check", no_argument, NULL, OPT_CHECK},
	{"progress", no_argument, NULL, OPT_PROGRESS},
	{"rejoin", no_argument, NULL, OPT_REJOIN},
	{"input", required_argument, NULL, OPT_INPUT},
	{"seed", required_argument, NULL, OPT_SEED},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"wait", required_argument, NULL, OPT_WAIT},
	{"backend", required_argument, NULL, OPT_BACKEND},
	{"device", required_argument, NULL, OPT_DEVICE},
	{"shared-gpu", no_argument, NULL, OPT_SHARED_GPU},
	{"op-timeout", required_argument, NULL, OPT_OP_TIMEOUT},
	{"join-timeout", required_argument, NULL, OPT_JOIN_TIMEOUT},
	{"pause", required_argument, NULL, OPT_PAUSE},
	{"job", required_argument, NULL, OPT_JOB},
	{"help", no_argument, NULL, OPT_HELP},
	{NULL, 0, NULL, 0},
};

/* Options that take a whole number, with their bounds. */
static const struct number {
	int option;
	const char *name;
	long long min, max;
	size_t offset;
	size_t size;
} numbers[] = {
#define NUMBER(option, name, field, min, max)                                                      \
	{                                                                                          \
		option, name, min, max, offsetof(struct options, field),                           \
			sizeof(((struct options *)0)->field)                                       \
	}
	NUMBER(OPT_RANK, "rank", rank, 0, 63),
	NUMBER(OPT_WORLD_SIZE, "world-size", world_size, 1, 64),
	NUMBER(OPT_LAYERS, "layers", layers, 1, 1000),
	NUMBER(OPT_TOKENS, "tokens", tokens, 1, 65536),
	NUMBER(OPT_ROUNDS, "rounds", rounds, 0, INT64_MAX / 2),
	NUMBER(OPT_HIDDEN, "hidden", hidden, 16, 65536),
	NUMBER(OPT_EXPERTS, "experts", experts, 1, 65536),
	NUMBER(OPT_TOPK, "topk", topk, 1, 64),
	NUMBER(OPT_SEED, "seed", seed, 0, INT64_MAX),
	NUMBER(OPT_WAIT, "wait", wait_ms, 0, 86400000),
	NUMBER(OPT_DEVICE, "device", device, 0, 1023),
	NUMBER(OPT_OP_TIMEOUT, "op-timeout", op_timeout_ms, 1, 86400000),
	NUMBER(OPT_JOIN_TIMEOUT, "join-timeout", join_timeout_ms, 1, 86400000),
	NUMBER(OPT_PAUSE, "pause", pause_ms, 0, 3600000),
};

static int set_number(struct options *options, const struct number *n, const char *text)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || end == text || *end || value < n->min || value > n->max) {
		fprintf(stderr, "moecomm-worker: --%s %s: need a whole number from %lld to %lld\n",
			n->name, text, n->min, n->max);
		return WORKER_USAGE;
	}
	if (n->size == sizeof(int))
		*(int *)((char *)options + n->offset) = (int)value;
	else
		*(int64_t *)((char *)options + n->offset) = value;
	return -1;
}

static int set_backend(struct options *options, const char *text)
{
	if (!strcmp(text, "auto")) {
		options->backend = MOECOMM_BACKEND_AUTO;
	} else if (!strcmp(text, "host")) {
		options->backend = MOECOMM_BACKEND_HOST;
	} else if (!strcmp(text, "cuda")) {
		options->backend = MOECOMM_BACKEND_CUDA;
	} else {
		fprintf(stderr, "moecomm-worker: --backend %s: need auto, host or cuda\n", text);
		return WORKER_USAGE;
	}
	return -1;
}

static int check_together(const struct options *options)
{
	const char *problem = NULL;

	if (!options->group)
		problem = "--group is missing";
	else if (options->rank < 0)
		problem = "--rank is missing";
	else if (options->world_size < 1)
		problem = "--world-size is missing";
	else if (options->rank >= options->world_size)
		problem = "--rank must be below --world-size";
	else if (options->topk > options->experts)
		problem = "--topk is larger than --experts";
	if (!problem)
		return -1;
	fprintf(stderr, "moecomm-worker: %s; --help lists all options\n", problem);
	return WORKER_USAGE;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
	struct options options = {
		.rank = -1,
		.device = -1,
		.layers = 4,
		.tokens = 16,
		.rounds = 50,
		.hidden = 128,
		.experts = 8,
		.topk = 2,
		.seed = 1,
	};
	int option, r = -1;

	while (r < 0 && (option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
			if (numbers[i].option == option)
				r = set_number(&options, &numbers[i], optarg);
		switch (option) {
		case OPT_GROUP:
			options.group = optarg;
			break;
		case OPT_JOB:
			options.job = optarg;
			break;
		case OPT_SOCKET:
			options.socket = optarg;
			break;
		case OPT_INPUT:
			options.input = optarg;
			break;
		case OPT_BACKEND:
			r = set_backend(&options, optarg);
			break;
		case OPT_SHARED_GPU:
			options.shared_gpu = true;
			break;
		case OPT_RAGGED:
			options.ragged = true;
			break;
		case OPT_CHECK:
			options.check = true;
			break;
		case OPT_PROGRESS:
			options.progress = true;
			break;
		case OPT_REJOIN:
			options.rejoin = true;
			break;
		case OPT_HELP:
			fputs(usage, stdout);
			return WORKER_OK;
		case '?':
			fprintf(stderr, "moecomm-worker: --help lists all options\n");
			return WORKER_USAGE;
		}
	}
	if (r < 0 && optind < argc) {
		fprintf(stderr, "moecomm-worker: what is '%s'? --help lists all options\n",
			argv[optind]);
		return WORKER_USAGE;
	}
	if (r < 0)
		r = check_together(&options);
	if (r < 0)
		*ret_options = options;
	return r;
}
