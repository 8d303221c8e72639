/* SPDX-License-Identifier: Apache-2.0 */
/* Combine, plain and fused: bit for bit the documented recipe, and close to fp64. */
#include "reference.h"
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define POISON 0xcd

/* How the values of a case are drawn. */
enum values {
	ANY_BITS,  /* every pattern of the type: NaN, infinities, subnormals, zeros of both signs */
	MODERATE,  /* within ±4 */
	RESIDUALS, /* parts within ±4, residuals up to ±75,000 */
};

struct shape {
	enum mc_dtype dtype;
	uint64_t hidden;
	uint32_t rows[MC_MAX_WORLD_SIZE];
	int32_t counts[MC_MAX_WORLD_SIZE]; /* [0] < 0: exact */
	enum values values;
	bool norm, alias;
	uint32_t misalign;
	uint64_t seed;
	bool flush; /* the caller has flush-to-zero on */
};

enum stream {
	PART = 1,
	RESIDUAL = 100,
	GAMMA = 200,
};

/* Element i of a stream, as the bits of a type; the same on every rank. */
static uint32_t element(const struct shape *s, uint32_t stream, uint32_t to, uint64_t i)
{
	uint64_t state = s->seed ^ (uint64_t)stream << 48 ^ (uint64_t)to << 40 ^ i;
	uint64_t draw = world_random(&state);
	float v = ((float)(draw >> 40) / 0x1p23f - 1.0f) * 4.0f;
	uint32_t bits;

	if (s->values == ANY_BITS)
		return s->dtype == MC_DTYPE_FP32 ? (uint32_t)draw : (uint32_t)draw & 0xffff;
	if (s->values == RESIDUALS && stream == RESIDUAL && s->dtype != MC_DTYPE_FP16)
		v *= 75000.0f / 4.0f;
	else if (s->values == RESIDUALS && stream == RESIDUAL)
		v *= 60000.0f / 4.0f; /* the type ends at 65504 */
	memcpy(&bits, &v, sizeof(bits));
	/* cut off: these inputs needn't be rounded */
	if (s->dtype == MC_DTYPE_BF16)
		return bits >> 16;
	if (s->dtype == MC_DTYPE_FP16) {
		_Bool negative = v < 0;
		double a = fabs((double)v), ulp = ref_ulp(MC_DTYPE_FP16, a);
		uint32_t n = (uint32_t)(a / ulp), e = 0;

		for (; n >= 2048; n >>= 1) /* not reached: a has 11 bits by its ulp */
			e++;
		if (n < 1024)
			return (uint32_t)negative << 15 | n;
		e = (uint32_t)(ilogb(a) + 15);
		return (uint32_t)negative << 15 | e << 10 | (n & 1023);
	}
	return bits;
}

static void put(enum mc_dtype dtype, uint8_t *array, uint64_t i, uint32_t bits)
{
	uint32_t size = dtype == MC_DTYPE_FP32 ? 4 : 2;

	memcpy(array + i * size, &bits, size);
}

static float value(const struct shape *s, uint32_t stream, uint32_t to, uint64_t i)
{
	return (float)ref_value(s->dtype, element(s, stream, to, i));
}

/* Stated bounds of docs/numerics.md against fp64. */
static void check_bounds(struct world *world, uint32_t rank, const struct shape *s, uint64_t row,
	const uint8_t *output, const uint8_t *residual, float eps)
{
	const double u = 0x1p-24;
	uint64_t d = s->hidden;
	double n_ops = 8 + 5 + (double)((d + 8191) / 8192) + 5 + 1, k = world->n * u;
	double squares = 0, errors = 0, gamma_n = k / (1 - k), mean, r, rho;
	bool right = true;

	for (int pass = 0; pass < 2; pass++) {
		mean = squares / (double)d;
		r = pass ? 1.0 / sqrt(mean + (double)eps) : 0;
		rho = pass ? sqrt(errors / (double)d) * r : 0;
		for (uint64_t i = 0; i < d; i++) {
			uint64_t at = row * d + i;
			double res = value(s, RESIDUAL, rank, at), x = res, e = fabs(res), y, bound,
			       got;

			for (uint32_t p = 0; p < world->n; p++) {
				double v = value(s, PART + p, rank, at);

				x += v;
				e += fabs(v);
			}
			e *= gamma_n;
			if (!pass) {
				squares += x * x;
				errors += e * e;
				continue;
			}
			got = ref_value(s->dtype, ref_bits(s->dtype, residual, at));
			bound = e + ref_ulp(s->dtype, fabs(x) + e) / 2;
			right = right &&
				(fabs(got - x) <= bound || isinf(ref_round(s->dtype, fabs(x) + e)));
			y = x * r * (double)value(s, GAMMA, 0, i);
			bound = e * r * fabs((double)value(s, GAMMA, 0, i)) +
				fabs(y) * ((n_ops + 2) / 2 * u + 4 * u + rho + 2 * rho * rho);
			bound += ref_ulp(s->dtype, fabs(y) + bound) / 2;
			got = ref_value(s->dtype, ref_bits(s->dtype, output, at));
			right = right && fabs(got - y) <= bound;
		}
	}
	WORLD_CHECK(world, right);
}

static void check_row(struct world *world, uint32_t rank, const struct shape *s, uint64_t row,
	const uint8_t *output, const uint8_t *residual, float eps)
{
	float *x = malloc(s->hidden * sizeof(float)), r;
	bool right = true;

	for (uint64_t i = 0; i < s->hidden; i++) {
		uint64_t at = row * s->hidden + i;
		volatile float acc = value(s, PART, rank, at);

		for (uint32_t p = 1; p < world->n; p++)
			acc = acc + value(s, PART + p, rank, at);
		if (s->norm)
			acc = acc + value(s, RESIDUAL, rank, at);
		x[i] = acc;
		right = right && ref_is_rounded(s->dtype,
					 ref_bits(s->dtype, s->norm ? residual : output, at), x[i]);
	}
	if (s->norm) {
		r = ref_rms(x, s->hidden, eps);
		for (uint64_t i = 0; i < s->hidden; i++) {
			volatile float y = x[i] * r;

			y = y * value(s, GAMMA, 0, i);
			right = right &&
				ref_is_rounded(s->dtype,
					ref_bits(s->dtype, output, row * s->hidden + i), y);
		}
	}
	WORLD_CHECK(world, right);
	free(x);
}

/* Runs one combine; returns the output (and residual output) for further checks when asked to. */
static void run_shape(
	struct world *world, uint32_t rank, const struct shape *s, uint8_t *ret_output)
{
	uint32_t size = s->dtype == MC_DTYPE_FP32 ? 4 : 2, m = s->misalign;
	uint64_t total = 0, n_own = s->rows[rank] * s->hidden, n_valid, j = 0;
	bool counted = s->counts[0] >= 0;
	uint8_t *in, *out, *res_in, *res_out, *gamma;
	struct mc_combine op = {.dtype = s->dtype, .hidden = s->hidden};
	struct mc_fault fault;

	for (uint32_t r = 0; r < world->n; r++) {
		op.rows[r] = s->rows[r];
		total += s->rows[r];
	}
	n_valid = (counted ? (uint64_t)s->counts[rank] : s->rows[rank]) * s->hidden;
	in = malloc(total * s->hidden * size + 16);
	out = malloc(n_own * size + 32);
	res_in = malloc(n_own * size + 32);
	res_out = s->alias ? res_in : malloc(n_own * size + 32);
	gamma = malloc(s->hidden * size + 16);
	memset(out, POISON, n_own * size + 32);
	memset(res_out, POISON, n_own * size + 32);
	for (uint32_t r = 0; r < world->n; r++)
		for (uint64_t i = 0; i < s->rows[r] * s->hidden; i++)
			put(s->dtype, in + m, j++, element(s, PART + rank, r, i));
	for (uint64_t i = 0; i < n_own; i++)
		put(s->dtype, res_in + m, i, element(s, RESIDUAL, rank, i));
	for (uint64_t i = 0; i < s->hidden; i++)
		put(s->dtype, gamma + m, i, element(s, GAMMA, 0, i));
	op.input = in + m;
	op.output = n_own ? out + m : NULL;
	op.counts = counted ? s->counts : NULL;
	if (s->norm) {
		op.residual = n_own ? res_in + m : NULL;
		op.residual_output = n_own ? res_out + m : NULL;
		op.gamma = gamma + m;
		op.eps = 1e-6f;
	}
#if defined(__x86_64__)
	if (s->flush)
		_mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
	WORLD_CHECK(world, world_combine(world, rank, 0, &op, &fault) == MC_FAULT_NONE);
#if defined(__x86_64__)
	if (s->flush) {
		WORLD_CHECK(world, (_mm_getcsr() & 0x8040u) == 0x8040u);
		_mm_setcsr(_mm_getcsr() & ~0x8040u);
	}
#endif
	for (uint64_t row = 0; row < n_valid / s->hidden; row++) {
		check_row(world, rank, s, row, out + m, res_out + m, op.eps);
		if (s->norm && s->values != ANY_BITS)
			check_bounds(world, rank, s, row, out + m, res_out + m, op.eps);
	}
	for (uint64_t b = 0; b < n_own * size + 32; b++)
		if (b < m || b >= m + n_valid * size)
			if (!WORLD_CHECK(world, out[b] == POISON))
				break;
	if (ret_output) {
		memcpy(ret_output, out + m, n_own * size);
		memcpy(ret_output + n_own * size, res_out + m, n_own * size);
	}
	free(in);
	free(out);
	free(res_in);
	if (!s->alias)
		free(res_out);
	free(gamma);
}

static const enum mc_dtype dtypes[] = {MC_DTYPE_BF16, MC_DTYPE_FP16, MC_DTYPE_FP32};

static void shapes_on_rank(struct world *world, uint32_t rank, void *data)
{
	static const uint64_t hiddens[] = {1, 7, 255, 257, 1024, 2049, 7168};
	uint64_t state = *(uint64_t *)data;

	for (uint32_t n = 0; n < 84; n++) {
		struct shape s = {.dtype = dtypes[n % 3],
			.hidden = hiddens[n / 3 % 7],
			.values = (enum values)(n % 4 % 3),
			.norm = n & 1,
			.alias = n & 2,
			.misalign = n % 5 == 0 ? n % 16 : 0,
			.flush = n % 7 == 0,
			.seed = world_random(&state)};
		bool counted = n % 3 == 2;

		for (uint32_t r = 0; r < world->n; r++) {
			uint64_t draw = world_random(&state);

			s.rows[r] = n % 13 == 0 ? 0 : n % 6 == 0 ? 2 : (uint32_t)(draw % 4);
			s.counts[r] = counted ? (int32_t)((draw >> 32) % (s.rows[r] + 1)) : -1;
		}
		run_shape(world, rank, &s, NULL);
	}
}

static void shapes(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 5, 8};
	struct world_options options = {.max_rows = 3, .combine_row_bytes = 7168 * 4};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t seed = 21 + i;
		struct world world;

		world_make(&world, sizes[i], &options);
		world_run(&world, i % 2 ? WORLD_PROCESSES : WORLD_THREADS, shapes_on_rank, &seed);
		world_free(&world);
	}
}

/*
 * Norms of aligned rows without a NaN, which would hide every sum: from one group of squares to 64,
 * with a short last one, fewer than lanes, just more, and twice as many.
 */
static void norms_on_rank(struct world *world, uint32_t rank, void *data)
{
	static const uint64_t hiddens[] = {
		8, 264, 1024, 7168, 8192, 8200, 10240, 12288, 14344, 16384};
	uint64_t state = *(uint64_t *)data;

	for (uint32_t h = 0; h < sizeof(hiddens) / sizeof(hiddens[0]); h++)
		for (uint32_t n = 0; n < 4; n++) {
			struct shape s = {.dtype = dtypes[n % 2],
				.hidden = hiddens[h],
				.values = n < 2 ? MODERATE : RESIDUALS,
				.norm = true,
				.seed = world_random(&state)};

			for (uint32_t r = 0; r < world->n; r++) {
				s.rows[r] = (uint32_t)(world_random(&state) % 4);
				s.counts[r] = -1;
			}
			run_shape(world, rank, &s, NULL);
		}
}

static void norms(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 8};
	struct world_options options = {.max_rows = 3, .combine_row_bytes = 16384 * 2};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t seed = 71 + i;
		struct world world;

		world_make(&world, sizes[i], &options);
		world_run(&world, i % 2 ? WORLD_PROCESSES : WORLD_THREADS, norms_on_rank, &seed);
		world_free(&world);
	}
}

/* Every 16-bit pattern as a sum's first part, with -0 and NaN rules in play. */
static void bits_on_rank(struct world *world, uint32_t rank, void *data)
{
	static _Thread_local uint16_t in[3 * 65536], out[65536];
	struct mc_fault fault;

	(void)data;
	for (int t = 0; t < 2; t++) {
		struct mc_combine op = {.dtype = dtypes[t],
			.hidden = 4096,
			.input = in,
			.output = out,
			.rows = {16, 16, 16}};
		bool right = true;

		/* rank 0 brings the pattern, the others -0: the sum is the pattern itself */
		for (uint32_t i = 0; i < 3 * 65536; i++)
			in[i] = rank == 0 ? (uint16_t)i : 0x8000;
		if (!WORLD_CHECK(
			    world, world_combine(world, rank, 0, &op, &fault) == MC_FAULT_NONE))
			return;
		for (uint32_t i = 0; i < 65536; i++)
			right = right && out[i] == (isnan(ref_value(op.dtype, i)) ? 0x7fff : i);
		WORLD_CHECK(world, right);
	}
}

static void bits(void **state)
{
	struct world_options options = {.max_rows = 16, .combine_row_bytes = 8192};
	struct world world;

	(void)state;
	world_make(&world, 3, &options);
	world_run(&world, WORLD_PROCESSES, bits_on_rank, NULL);
	world_free(&world);
}

/* Rows longer than what is kept on the stack are summed twice; they must come out alike. */
static void long_rows_on_rank(struct world *world, uint32_t rank, void *data)
{
	(void)data;
	for (uint32_t n = 0; n < 6; n++) {
		struct shape s = {.dtype = dtypes[n % 3],
			.hidden = n < 3 ? 8193 : 20011,
			.values = RESIDUALS,
			.norm = true,
			.alias = n & 1,
			.counts = {-1},
			.rows = {2, 0, 3},
			.seed = n};

		run_shape(world, rank, &s, NULL);
	}
}

static void long_rows(void **state)
{
	struct world_options options = {.max_rows = 3, .combine_row_bytes = 20011 * 4};
	struct world world;

	(void)state;
	world_make(&world, 3, &options);
	world_run(&world, WORLD_PROCESSES, long_rows_on_rank, NULL);
	world_free(&world);
}

/* Rank 0's first row alone, and the same row among 256. */
static void batch_on_rank(struct world *world, uint32_t rank, void *data)
{
	static _Thread_local uint8_t alone[2 * 96 * 4], among[2 * 256 * 96 * 4];

	(void)data;
	for (uint32_t n = 0; n < 6; n++) {
		struct shape s = {.dtype = dtypes[n % 3],
			.hidden = 96,
			.values = MODERATE,
			.norm = n >= 3,
			.counts = {-1},
			.rows = {1, 0},
			.seed = n};
		uint32_t row_bytes = 96 * mc_dtype_bytes(s.dtype);

		run_shape(world, rank, &s, alone);
		s.rows[0] = 256;
		s.rows[1] = 256;
		run_shape(world, rank, &s, among);
		if (rank == 0) {
			WORLD_CHECK(world, memcmp(alone, among, row_bytes) == 0);
			WORLD_CHECK(
				world, !s.norm || memcmp(alone + row_bytes, among + 256 * row_bytes,
							  row_bytes) == 0);
		}
	}
}

static void batch(void **state)
{
	struct world_options options = {.max_rows = 256, .combine_row_bytes = 96 * 4};
	struct world world;

	(void)state;
	world_make(&world, 2, &options);
	world_run(&world, WORLD_THREADS, batch_on_rank, NULL);
	world_free(&world);
}

/* More peers than a warp has lanes: plain and with norm, whole vectors and not, counted and not. */
static void many_on_rank(struct world *world, uint32_t rank, void *data)
{
	(void)data;
	for (uint32_t n = 0; n < 8; n++) {
		struct shape s = {.dtype = dtypes[n % 3],
			.hidden = n % 4 < 2 ? 16 : 9,
			.values = MODERATE,
			.norm = n & 1,
			.seed = n};

		for (uint32_t r = 0; r < world->n; r++) {
			s.rows[r] = 1 + (r + n) % 2;
			s.counts[r] = n < 4 ? -1 : (int32_t)(r % 2);
		}
		run_shape(world, rank, &s, NULL);
	}
}

static void many_ranks(void **state)
{
	struct world_options options = {.max_rows = 2, .combine_row_bytes = 64};
	struct world world;

	(void)state;
	world_make(&world, 36, &options);
	world_run(&world, WORLD_THREADS, many_on_rank, NULL);
	world_free(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes),
		cmocka_unit_test(norms),
		cmocka_unit_test(bits),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(batch),
		cmocka_unit_test(many_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
