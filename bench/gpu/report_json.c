/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/moecomm.h"

#ifndef MC_COMMIT
#define MC_COMMIT "unknown"
#endif

static void text(json_object *to, const char *key, const char *value)
{
	json_object_object_add(to, key, json_object_new_string(value));
}

static void number(json_object *to, const char *key, int64_t value)
{
	json_object_object_add(to, key, json_object_new_int64(value));
}

static void real(json_object *to, const char *key, double value)
{
	char shown[32];

	snprintf(shown, sizeof(shown), "%.4f", value);
	json_object_object_add(to, key, json_object_new_double_s(value, shown));
}

static void version(json_object *to, const char *key, int major, int minor, int patch)
{
	char shown[48];

	if (patch < 0)
		snprintf(shown, sizeof(shown), "%d.%d", major, minor);
	else
		snprintf(shown, sizeof(shown), "%d.%d.%d", major, minor, patch);
	text(to, key, shown);
}

/* "580.159.04", as the driver's management library says it; "" where there is none. */
static void driver_version(json_object *to)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*begin)(void), (*end)(void), (*get_version)(char *, unsigned);
	char shown[80] = "";

	if (library) {
		*(void **)&begin = dlsym(library, "nvmlInit_v2");
		*(void **)&end = dlsym(library, "nvmlShutdown");
		*(void **)&get_version = dlsym(library, "nvmlSystemGetDriverVersion");
		if (begin && end && get_version && begin() == 0) {
			if (get_version(shown, sizeof(shown)) != 0)
				shown[0] = 0;
			end();
		}
		dlclose(library);
	}
	text(to, "driver", shown);
}

static json_object *machine(const struct bench_options *options, const struct bench_shared *shared)
{
	const struct bench_machine *m = &shared->machine;
	json_object *o = json_object_new_object(), *gpus = json_object_new_array();
	struct utsname host;

	text(o, "gpu", m->gpu_name);
	number(o, "n_gpus", m->n_devices);
	for (int rank = 0; rank < options->world_size; rank++)
		json_object_array_add(gpus, json_object_new_string(m->gpu_uuid[rank]));
	json_object_object_add(o, "gpu_of_rank", gpus);
	json_object_object_add(o, "gpus_shared", json_object_new_boolean(m->gpus_shared));
	driver_version(o);
	version(o, "cuda_driver", m->cuda_driver / 1000, m->cuda_driver % 1000 / 10, -1);
	version(o, "cuda_runtime", m->cuda_runtime / 1000, m->cuda_runtime % 1000 / 10, -1);
	if (m->nccl_version)
		version(o, "nccl", m->nccl_version / 10000, m->nccl_version / 100 % 100,
			m->nccl_version % 100);
	if (uname(&host) == 0)
		text(o, "kernel", host.release);
	number(o, "arena_bytes", (int64_t)m->arena_bytes);
	return o;
}

static json_object *floors(const struct bench_shared *shared)
{
	const struct bench_floors *f = &shared->floors;
	json_object *o = json_object_new_object();

	if (f->have_empty) {
		real(o, "empty_one_us", f->empty_one_us);
		real(o, "empty_graph100_us", f->empty_long_us);
		real(o, "empty_enqueue_us", f->empty_enqueue_us);
	}
	if (f->have_latency)
		real(o, "one_way_us", f->one_way_us);
	if (f->have_push) {
		real(o, "push_gbps", f->push_gbps);
		real(o, "push_16_ctas_gbps", f->push_16_gbps);
	}
	if (f->why[0])
		text(o, "note", f->why);
	return o;
}

static json_object *series(
	const struct bench_options *options, const struct bench_shared *shared, int size)
{
	json_object *all = json_object_new_array();

	for (int s = 0; s < BENCH_N_SERIES; s++) {
		for (int form = 0; form < BENCH_N_FORMS; form++) {
			struct bench_figure f = bench_figure_of(
				options, shared, size, (enum bench_series)s, (enum bench_form)form);
			json_object *o;

			if (!f.there)
				continue;
			o = json_object_new_object();
			text(o, "series", bench_series_name((enum bench_series)s));
			text(o, "form", bench_form_name((enum bench_form)form));
			real(o, "us", f.median_us);
			real(o, "us_min", f.min_us);
			real(o, "us_max", f.max_us);
			real(o, "algbw_gbps",
				(double)bench_op_bytes(options, size) / f.median_us / 1e3);
			number(o, "replays", f.replays);
			number(o, "wrong", (int64_t)f.wrong);
			number(o, "checked", (int64_t)f.checked);
			json_object_object_add(o, "best_nccl",
				json_object_new_boolean((int)bench_best_nccl(options, shared, size,
								(enum bench_form)form) == s));
			json_object_array_add(all, o);
		}
	}
	return all;
}

int bench_json_write(const struct bench_options *options, const struct bench_shared *shared)
{
	json_object *root = json_object_new_object(), *points = json_object_new_array();
	char date[32];
	time_t now = time(NULL);
	int r;

	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
	number(root, "schema", BENCH_JSON_SCHEMA);
	text(root, "bench", bench_kind_name(options->kind));
	text(root, "date", date);
	text(root, "version", moecomm_version());
	text(root, "commit", MC_COMMIT);
	number(root, "world_size", options->world_size);
	number(root, "hidden", options->hidden);
	number(root, "row_bytes", options->row_bytes);
	text(root, "dtype", bench_dtype_name(options->dtype));
	number(root, "repeats", options->repeats);
	number(root, "graph_ops", BENCH_GRAPH_OPS);
	number(root, "history_calls", options->history);
	number(root, "seed", (int64_t)options->seed);
	json_object_object_add(root, "machine", machine(options, shared));
	json_object_object_add(root, "floors", floors(shared));
	if (shared->nccl_note[0])
		text(root, "nccl_note", shared->nccl_note);
	for (int size = 0; size < options->n_sizes; size++) {
		json_object *point = json_object_new_object();

		number(point, "tokens", options->sizes[size]);
		number(point, "bytes", (int64_t)bench_op_bytes(options, size));
		real(point, "enqueue_us", shared->enqueue_us[size]);
		json_object_object_add(point, "figures", series(options, shared, size));
		json_object_array_add(points, point);
	}
	json_object_object_add(root, "points", points);
	r = json_object_to_file_ext(options->json_path, root,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
	if (r)
		fprintf(stderr, "moecomm-bench: cannot write %s: %s\n", options->json_path,
			json_util_get_last_err() ? json_util_get_last_err() : "unknown error");
	json_object_put(root);
	return r ? -EIO : 0;
}

int bench_plot(const char *json_path, const char *plot_path)
{
	static const char *const places[] = {
		"../share/moecomm/plot.py", "../libexec/moecomm/plot.py"};
	char self[PATH_MAX], script[PATH_MAX + 64] = "";
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int status = 0;
	pid_t pid;

	self[n > 0 ? n : 0] = 0;
	if (strrchr(self, '/'))
		*strrchr(self, '/') = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(script, sizeof(script), "%s/%s", self, places[i]);
		if (access(script, R_OK) == 0)
			break;
		script[0] = 0;
	}
#ifdef MC_PLOT_SOURCE
	if (!script[0])
		snprintf(script, sizeof(script), "%s", MC_PLOT_SOURCE);
#endif
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		execlp("python3", "python3", script, json_path, plot_path, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
		WEXITSTATUS(status)) {
		fprintf(stderr,
			"moecomm-bench: no picture was drawn; on any machine with gnuplot or "
			"matplotlib: "
			"python3 plot.py %s %s\n",
			json_path, plot_path);
		return -1;
	}
	return 0;
}
