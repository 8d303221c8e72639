/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files, without libFuzzer: replay FILE-OR-DIRECTORY…
 * What a fuzzer once found stays found. It fails when there is no input at all.
 */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#pragma weak LLVMFuzzerInitialize

static unsigned n_run;

static int run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t n = 0;

	if (!file) {
		fprintf(stderr, "cannot open %s: %s\n", path, strerror(errno));
		return -1;
	}
	for (;;) {
		uint8_t *more = realloc(data, n + 65536);
		size_t got;

		if (!more) {
			fprintf(stderr, "out of memory at %s\n", path);
			free(data);
			fclose(file);
			return -1;
		}
		data = more;
		got = fread(data + n, 1, 65536, file);
		n += got;
		if (got == 0)
			break;
	}
	fclose(file);
	/* exactly as large as the input, so that a sanitizer sees a read past its end */
	if (n > 0) {
		uint8_t *exact = realloc(data, n);

		if (exact)
			data = exact;
	}
	/* the last path printed is the one to blame for a crash */
	printf("%s (%zu bytes)\n", path, n);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, n);
	free(data);
	n_run++;
	return 0;
}

static int run_path(const char *path)
{
	struct dirent **names = NULL;
	struct stat status;
	int n, r = 0;

	if (stat(path, &status) < 0) {
		fprintf(stderr, "cannot look at %s: %s\n", path, strerror(errno));
		return -1;
	}
	if (!S_ISDIR(status.st_mode))
		return run_file(path);
	n = scandir(path, &names, NULL, alphasort);
	if (n < 0) {
		fprintf(stderr, "cannot list %s: %s\n", path, strerror(errno));
		return -1;
	}
	for (int i = 0; i < n; i++) {
		char file[4096];

		if (names[i]->d_name[0] != '.' && r == 0) {
			snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
			r = run_path(file);
		}
		free(names[i]);
	}
	free(names);
	return r;
}

int main(int argc, char **argv)
{
	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++)
		if (run_path(argv[i]) < 0)
			return 1;
	if (n_run == 0) {
		fprintf(stderr, "usage: %s FILE-OR-DIRECTORY… (found no input)\n", argv[0]);
		return 2;
	}
	printf("%u inputs\n", n_run);
	return 0;
}
