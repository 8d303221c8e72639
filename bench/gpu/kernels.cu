/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define THREADS 256

/* Well mixed 32 bits of a place; splitmix64's finaliser. */
__host__ __device__ static inline uint32_t noise(uint64_t key, uint64_t i)
{
	uint64_t z = key + i * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)((z ^ (z >> 31)) >> 16);
}

/* Exactly representable in every type: 7 bits of mantissa, exponents 2^-3 to 2^0. */
__device__ static inline float element(uint64_t key, uint64_t i)
{
	uint32_t n = noise(key, i);
	float magnitude = (1.0f + (float)(n & 127u) / 128.0f) / (float)(1u << (n >> 7 & 3u));

	return n >> 9 & 1u ? -magnitude : magnitude;
}

template <typename T>
__device__ static inline float widen(T v);
template <>
__device__ inline float widen<float>(float v)
{
	return v;
}
template <>
__device__ inline float widen<__half>(__half v)
{
	return __half2float(v);
}
template <>
__device__ inline float widen<__nv_bfloat16>(__nv_bfloat16 v)
{
	return __bfloat162float(v);
}

template <typename T>
__device__ static inline T narrow(float v);
template <>
__device__ inline float narrow<float>(float v)
{
	return v;
}
template <>
__device__ inline __half narrow<__half>(float v)
{
	return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float v)
{
	return __float2bfloat16_rn(v);
}

/* Distance of neighbours in the type, relative. */
template <typename T>
__device__ static inline double ulp();
template <>
__device__ inline double ulp<float>()
{
	return 1.0 / (1 << 23);
}
template <>
__device__ inline double ulp<__half>()
{
	return 1.0 / (1 << 10);
}
template <>
__device__ inline double ulp<__nv_bfloat16>()
{
	return 1.0 / (1 << 7);
}

static int grid_for(uint64_t n)
{
	uint64_t ctas = (n + THREADS - 1) / THREADS;

	return ctas < 1 ? 1 : ctas > 1056 ? 1056 : (int)ctas;
}

#define FOR_EACH(i, n)                                                                             \
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < (n);                \
		i += (uint64_t)gridDim.x * blockDim.x)

#define BY_TYPE(dtype, call)                                                                       \
	do {                                                                                       \
		if ((dtype) == BENCH_FP32) {                                                       \
			typedef float T;                                                           \
			call;                                                                      \
		} else if ((dtype) == BENCH_FP16) {                                                \
			typedef __half T;                                                          \
			call;                                                                      \
		} else {                                                                           \
			typedef __nv_bfloat16 T;                                                   \
			call;                                                                      \
		}                                                                                  \
	} while (0)

__global__ static void fill_bytes(unsigned char *to, uint64_t n, uint64_t key)
{
	FOR_EACH(i, n)
	to[i] = (unsigned char)(noise(key, i >> 2) >> 8 * (i & 3));
}

cudaError_t bench_fill_bytes(void *to, uint64_t n_bytes, uint64_t key, cudaStream_t stream)
{
	fill_bytes<<<grid_for(n_bytes), THREADS, 0, stream>>>((unsigned char *)to, n_bytes, key);
	return cudaGetLastError();
}

template <typename T>
__global__ static void fill_elements(T *to, uint64_t n, uint64_t key)
{
	FOR_EACH(i, n)
	to[i] = narrow<T>(element(key, i));
}

cudaError_t bench_fill_elements(void *to, uint64_t n, int dtype, uint64_t key, cudaStream_t stream)
{
	BY_TYPE(dtype, (fill_elements<T><<<grid_for(n), THREADS, 0, stream>>>((T *)to, n, key)));
	return cudaGetLastError();
}

__global__ static void check_bytes(
	const unsigned char *block, uint64_t n, uint64_t key, unsigned long long *wrong)
{
	unsigned long long bad = 0;

	FOR_EACH(i, n)
	bad += block[i] != (unsigned char)(noise(key, i >> 2) >> 8 * (i & 3));
	if (bad)
		atomicAdd(wrong, bad);
}

cudaError_t bench_check_bytes(const void *block, uint64_t n_bytes, uint64_t key,
	unsigned long long *wrong, cudaStream_t stream)
{
	check_bytes<<<grid_for(n_bytes), THREADS, 0, stream>>>(
		(const unsigned char *)block, n_bytes, key, wrong);
	return cudaGetLastError();
}

/* Sums of one element: as the op promises, in fp64, and of magnitudes. */
__device__ static inline float sums(
	const struct bench_combine_check &c, uint64_t i, double *ret_exact, double *ret_magnitude)
{
	uint64_t place = c.first_row * c.hidden + i;
	float sum = element(c.keys[0], place);
	double exact = sum, magnitude = fabs(exact);

	for (int s = 1; s < c.world_size; s++) {
		float v = element(c.keys[s], place);

		sum = __fadd_rn(sum, v);
		exact += v;
		magnitude += fabs((double)v);
	}
	*ret_exact = exact;
	*ret_magnitude = magnitude;
	return sum;
}

template <typename T>
__global__ static void check_sum(
	const T *output, struct bench_combine_check c, unsigned long long *wrong)
{
	unsigned long long bad = 0;

	FOR_EACH(i, c.rows * c.hidden)
	{
		double exact, magnitude, got = widen<T>(output[i]);
		float sum = sums(c, i, &exact, &magnitude);
		/* half an ulp of the result, and the fp32 additions' own error */
		double bound = 0.5 * ulp<T>() * fabs(exact) +
			       (c.world_size - 1) * ulp<float>() * magnitude;

		if (!c.exact) /* a library may round at every step */
			bound = c.world_size * ulp<T>() * magnitude;
		else if (got != (double)widen<T>(narrow<T>(sum)))
			bad++;
		if (!(fabs(got - exact) <= bound) &&
			!(c.exact && got != (double)widen<T>(narrow<T>(sum))))
			bad++;
	}
	if (bad)
		atomicAdd(wrong, bad);
}

/* A CTA a row: the mean square needs all of it. */
template <typename T>
__global__ static void check_fused(
	const T *output, struct bench_combine_check c, unsigned long long *wrong)
{
	__shared__ double partial[THREADS];
	const T *residual_output = (const T *)c.residual_output;
	unsigned long long bad = 0;

	for (uint64_t row = blockIdx.x; row < c.rows; row += gridDim.x) {
		double square = 0, exact, magnitude;

		for (uint64_t d = threadIdx.x; d < c.hidden; d += THREADS) {
			uint64_t i = row * c.hidden + d;
			float x = __fadd_rn(
				sums(c, i, &exact, &magnitude), element(c.residual_key, i));

			square += (double)x * (double)x;
		}
		partial[threadIdx.x] = square;
		__syncthreads();
		for (int n = THREADS / 2; n > 0; n /= 2) {
			if (threadIdx.x < n)
				partial[threadIdx.x] += partial[threadIdx.x + n];
			__syncthreads();
		}
		double r = 1.0 / sqrt(partial[0] / (double)c.hidden + (double)c.eps);

		__syncthreads();
		for (uint64_t d = threadIdx.x; d < c.hidden; d += THREADS) {
			uint64_t i = row * c.hidden + d;
			float x = __fadd_rn(
				sums(c, i, &exact, &magnitude), element(c.residual_key, i));
			double want = (double)x * r * (double)element(c.gamma_key, d);
			double got = widen<T>(output[i]);
			double got_residual = widen<T>(residual_output[i]);
			/* one rounding of the result; rounding at each step costs what a library
			 * costs */
			double bound = ((c.exact ? 0.5 : 4.0) * ulp<T>() + 8.0 * ulp<float>()) *
					       fabs(want) +
				       1e-7;
			double residual_bound =
				c.exact ? 0.0 : 2.0 * c.world_size * ulp<T>() * (magnitude + 2.0);

			if (!c.exact)
				bound += residual_bound * r * fabs((double)element(c.gamma_key, d));
			bad += !(fabs(got - want) <= bound);
			bad += !(fabs(got_residual - (double)widen<T>(narrow<T>(x))) <=
				 residual_bound);
		}
	}
	if (bad)
		atomicAdd(wrong, bad);
}

cudaError_t bench_check_combine(const void *output, const struct bench_combine_check *check,
	unsigned long long *wrong, cudaStream_t stream)
{
	int n_ctas = check->fused ? (check->rows > 1056 ? 1056 : (int)check->rows)
				  : grid_for(check->rows * check->hidden);

	if (check->fused)
		BY_TYPE(check->dtype, (check_fused<T><<<n_ctas, THREADS, 0, stream>>>(
					      (const T *)output, *check, wrong)));
	else
		BY_TYPE(check->dtype, (check_sum<T><<<n_ctas, THREADS, 0, stream>>>(
					      (const T *)output, *check, wrong)));
	return cudaGetLastError();
}

/* Four elements a step where the address allows: what a careful engine writes by hand. */
template <typename T>
__global__ static void add(
	T *__restrict__ out, const T *__restrict__ a, const T *__restrict__ b, uint64_t n)
{
	struct alignas(sizeof(T) * 4) four {
		T v[4];
	};

	FOR_EACH(i, n / 4)
	{
		struct four x = ((const struct four *)a)[i], y = ((const struct four *)b)[i];

		for (int k = 0; k < 4; k++)
			x.v[k] = narrow<T>(widen<T>(x.v[k]) + widen<T>(y.v[k]));
		((struct four *)out)[i] = x;
	}
	if (blockIdx.x == 0 && threadIdx.x < n % 4) {
		uint64_t i = n / 4 * 4 + threadIdx.x;

		out[i] = narrow<T>(widen<T>(a[i]) + widen<T>(b[i]));
	}
}

cudaError_t bench_add(
	void *out, const void *a, const void *b, uint64_t n, int dtype, cudaStream_t stream)
{
	BY_TYPE(dtype, (add<T><<<grid_for(n / 4), THREADS, 0, stream>>>(
			       (T *)out, (const T *)a, (const T *)b, n)));
	return cudaGetLastError();
}

#define NORM_THREADS 1024
template <typename T>
__global__ static void rmsnorm(T *__restrict__ out, const T *__restrict__ in,
	const T *__restrict__ gamma, uint64_t hidden, float eps)
{
	__shared__ float partial[NORM_THREADS / 32];
	const T *row = in + blockIdx.x * hidden;
	float square = 0, r;

	for (uint64_t d = threadIdx.x; d < hidden; d += NORM_THREADS) {
		float x = widen<T>(row[d]);

		square += x * x;
	}
	for (int n = 16; n > 0; n /= 2)
		square += __shfl_xor_sync(~0u, square, n);
	if (threadIdx.x % 32 == 0)
		partial[threadIdx.x / 32] = square;
	__syncthreads();
	square = partial[threadIdx.x % 32];
	for (int n = 16; n > 0; n /= 2)
		square += __shfl_xor_sync(~0u, square, n);
	r = rsqrtf(square / (float)hidden + eps);
	for (uint64_t d = threadIdx.x; d < hidden; d += NORM_THREADS)
		out[blockIdx.x * hidden + d] = narrow<T>(widen<T>(row[d]) * r * widen<T>(gamma[d]));
}

cudaError_t bench_rmsnorm(void *out, const void *in, const void *gamma, uint64_t rows,
	uint64_t hidden, float eps, int dtype, cudaStream_t stream)
{
	BY_TYPE(dtype, (rmsnorm<T><<<(unsigned)rows, NORM_THREADS, 0, stream>>>(
			       (T *)out, (const T *)in, (const T *)gamma, hidden, eps)));
	return cudaGetLastError();
}

__global__ static void empty()
{
}

cudaError_t bench_empty(int ctas, int threads, cudaStream_t stream)
{
	empty<<<ctas, threads, 0, stream>>>();
	return cudaGetLastError();
}

__device__ static inline uint64_t global_ns()
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

__device__ static inline unsigned load_flag(const unsigned *p)
{
	unsigned v;

	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

__device__ static inline void store_flag(unsigned *p, unsigned v)
{
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

__global__ static void ping_pong(
	unsigned *mine, unsigned *peers, unsigned n, int first, unsigned *failed)
{
	uint64_t end = global_ns() + 2000000000ull;

	for (unsigned i = 1; i <= n; i++) {
		if (first)
			store_flag(peers, i);
		while (load_flag(mine) != i) {
			if (global_ns() > end) {
				*failed = 1;
				return;
			}
		}
		if (!first)
			store_flag(peers, i);
	}
}

cudaError_t bench_ping_pong(unsigned *mine, unsigned *peers, unsigned n, int first,
	unsigned *failed, cudaStream_t stream)
{
	ping_pong<<<1, 1, 0, stream>>>(mine, peers, n, first, failed);
	return cudaGetLastError();
}

__global__ static void push(uint4 *to, uint64_t n, unsigned value)
{
	FOR_EACH(i, n)
	to[i] = make_uint4(value, (unsigned)i, value, (unsigned)i);
}

cudaError_t bench_push(void *to, uint64_t n_bytes, int ctas, unsigned value, cudaStream_t stream)
{
	push<<<ctas, 512, 0, stream>>>((uint4 *)to, n_bytes / 16, value);
	return cudaGetLastError();
}
