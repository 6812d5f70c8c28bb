// Row softmax, thread model, as an expert writes it: one block a row, the row in registers.
//
//   in_ptr, out_ptr        float32, one row of n_cols columns a block; column stride 1
//   in_stride, out_stride  elements from one row to the next
//
// A row is read once and written once: 8 bytes of traffic an element. Where row and columns allow
// it, four neighbouring columns move in one 128-bit access. A fold is ten warp shuffles and one
// barrier. softmaxOnePass<N> holds 4 N columns a thread; softmaxLooping takes rows that fit no
// block's registers and reads them twice.

#define FULL_WARP 0xffffffffu
#define NEG_INF __int_as_float(0xff800000)
#define LOWEST __int_as_float(0xff7fffff)

// All threads get the maximum (or the sum) of the block. `scratch` holds one value a warp and is
// written once in a kernel, so no barrier guards a second use.
__device__ __forceinline__ float
block_max(float v, float* scratch)
{
  const int lane = threadIdx.x % 32;
  for (int d = 16; d > 0; d >>= 1)
    v = fmaxf(
        v, __shfl_xor_sync(FULL_WARP, v, d));
  if (lane == 0) scratch[threadIdx.x / 32] = v;
  // Each warp's value is there before a read.
  __syncthreads();
  v = lane < blockDim.x / 32 ? scratch[lane]
                             : NEG_INF;
  for (int d = 16; d > 0; d >>= 1)
    v = fmaxf(
        v, __shfl_xor_sync(FULL_WARP, v, d));
  return v;
}

__device__ __forceinline__ float
block_sum(float v, float* scratch)
{
  const int lane = threadIdx.x % 32;
  for (int d = 16; d > 0; d >>= 1)
    v += __shfl_xor_sync(FULL_WARP, v, d);
  if (lane == 0) scratch[threadIdx.x / 32] = v;
  // Each warp's value is there before a read.
  __syncthreads();
  v = lane < blockDim.x / 32 ? scratch[lane]
                             : 0.0f;
  for (int d = 16; d > 0; d >>= 1)
    v += __shfl_xor_sync(FULL_WARP, v, d);
  return v;
}

__device__ __forceinline__ bool
in_quads(const float* x, const float* y,
         int n_cols)
{
  return n_cols % 4 == 0 &&
         ((size_t)x | (size_t)y) % 16 == 0;
}

template <int N>
__device__ __forceinline__ void
softmax_row(const float* x, float* y,
            int n_cols)
{
  __shared__ float max_of[32], sum_of[32];

  // [load]
  // In quads, thread t owns columns 4 t ..
  // 4 t + 3 of each 4 * threads columns,
  // else columns t, t + threads, ..
  const int t = threadIdx.x;
  const int threads = blockDim.x;
  const bool quads = in_quads(x, y, n_cols);
  float v[4 * N];
#pragma unroll
  for (int p = 0; p < N; ++p) {
    const int c = 4 * (p * threads + t);
    float4 q = make_float4(NEG_INF, NEG_INF,
                           NEG_INF, NEG_INF);
    if (quads && c < n_cols)
      q = *(const float4*)(x + c);
    v[4 * p] = q.x;
    v[4 * p + 1] = q.y;
    v[4 * p + 2] = q.z;
    v[4 * p + 3] = q.w;
  }
  if (!quads) {
#pragma unroll
    for (int i = 0; i < 4 * N; ++i)
      if (i * threads + t < n_cols)
        v[i] = x[i * threads + t];
  }

  // [row max]
  float m = v[0];
#pragma unroll
  for (int i = 1; i < 4 * N; ++i)
    m = fmaxf(m, v[i]);
  m = block_max(m, max_of);

  // [exp and sum]
  // Columns past the end hold -inf and add 0.
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) {
    v[i] = expf(v[i] - m);
    sum += v[i];
  }
  sum = block_sum(sum, sum_of);

  // [scale and store]
  // One division a thread, then products.
  const float scale = 1.0f / sum;
#pragma unroll
  for (int p = 0; p < N; ++p) {
    const int c = 4 * (p * threads + t);
    if (quads && c < n_cols)
      *(float4*)(y + c) =
          make_float4(v[4 * p] * scale,
                      v[4 * p + 1] * scale,
                      v[4 * p + 2] * scale,
                      v[4 * p + 3] * scale);
  }
  if (!quads) {
#pragma unroll
    for (int i = 0; i < 4 * N; ++i)
      if (i * threads + t < n_cols)
        y[i * threads + t] = v[i] * scale;
  }
}

#define SOFTMAX_ONE_PASS(N)                   \
  extern "C" __global__ void                  \
  __launch_bounds__(1024)                     \
  softmaxOnePass##N(                          \
      const float* in_ptr, float* out_ptr,    \
      long long in_stride,                    \
      long long out_stride,                   \
      int n_cols)                             \
  {                                           \
    softmax_row<N>(                           \
        in_ptr + blockIdx.x * in_stride,      \
        out_ptr + blockIdx.x * out_stride,    \
        n_cols);                              \
  }
SOFTMAX_ONE_PASS(1)
SOFTMAX_ONE_PASS(2)
SOFTMAX_ONE_PASS(4)
SOFTMAX_ONE_PASS(8)


// Moves the maximum m up to `top`, and the sum of exp(value - m) with it.
__device__ __forceinline__ void
move_up(float top, float* m, float* sum)
{
  *sum *= expf(*m - top);
  *m = top;
}

extern "C" __global__ void
__launch_bounds__(1024)
softmaxLooping(
    const float* in_ptr, float* out_ptr,
    long long in_stride, long long out_stride,
    int n_cols)
{
  __shared__ float max_of[32], sum_of[32];
  const int t = threadIdx.x;
  const int threads = blockDim.x;
  const float* x =
      in_ptr + blockIdx.x * in_stride;
  float* y = out_ptr + blockIdx.x * out_stride;
  const int quads =
      in_quads(x, y, n_cols) ? n_cols / 4 : 0;
  const float4* x4 = (const float4*)x;
  float4* y4 = (float4*)y;

  // First read: maximum and sum together. The
  // lowest finite start keeps -inf from NaN.
  float m = LOWEST, sum = 0.0f;
#pragma unroll 4
  for (int c = t; c < quads; c += threads) {
    const float4 q = x4[c];
    move_up(fmaxf(fmaxf(fmaxf(m, q.x), q.y),
                  fmaxf(q.z, q.w)), &m, &sum);
    sum += expf(q.x - m) + expf(q.y - m) +
           expf(q.z - m) + expf(q.w - m);
  }
#pragma unroll 4
  for (int c = 4 * quads + t; c < n_cols;
       c += threads) {
    const float v = x[c];
    move_up(fmaxf(m, v), &m, &sum);
    sum += expf(v - m);
  }
  const float top = block_max(m, max_of);
  move_up(top, &m, &sum);
  const float scale =
      1.0f / block_sum(sum, sum_of);

  // Second read, and the write.
#pragma unroll 4
  for (int c = t; c < quads; c += threads) {
    const float4 q = x4[c];
    y4[c] = make_float4(
        expf(q.x - top) * scale,
        expf(q.y - top) * scale,
        expf(q.z - top) * scale,
        expf(q.w - top) * scale);
  }
#pragma unroll 4
  for (int c = 4 * quads + t; c < n_cols;
       c += threads)
    y[c] = expf(x[c] - top) * scale;
}
