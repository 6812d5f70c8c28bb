// Row softmax, thread model: 256 threads share one row.
//
//   in_ptr, out_ptr        float32, one row of n_cols columns a block; column stride 1
//   in_stride, out_stride  elements from one row to the next
//
// A row is read three times and written once: 16 bytes of traffic an element, where 8 would do.
// The maximum and the sum are each folded by halves through shared memory. Five barriers are
// written; with 256 threads each thread runs 19.

#define THREADS 256  // 8 warps; the tree halves it 8 times
#define NEG_INF __int_as_float(0xff800000)

extern "C" __global__ void
__launch_bounds__(THREADS)
softmaxRows(
    const float* in_ptr, float* out_ptr,
    long long in_stride, long long out_stride,
    int n_cols)
{
  __shared__ float scratch[THREADS];

  // [load]
  // Thread t owns columns t, t + 256, ..
  const int t = threadIdx.x;
  const float* x =
      in_ptr + blockIdx.x * in_stride;
  float* y = out_ptr + blockIdx.x * out_stride;

  // [row max]
  // First walk: 4 bytes an element.
  float m = NEG_INF;
  for (int c = t; c < n_cols; c += blockDim.x)
    m = fmaxf(m, x[c]);
  scratch[t] = m;
  // All maxima are written before a fold.
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0;
       s >>= 1) {
    if (t < s)
      scratch[t] =
          fmaxf(scratch[t], scratch[t + s]);
    // A level is written before the next.
    __syncthreads();
  }
  m = scratch[0];
  // All have read the maximum before a sum is
  // written over it.
  __syncthreads();

  // [exp and sum]
  // Second walk: 4 bytes an element.
  float sum = 0.0f;
  for (int c = t; c < n_cols; c += blockDim.x)
    sum += expf(x[c] - m);
  scratch[t] = sum;
  // All sums are written before a fold.
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0;
       s >>= 1) {
    if (t < s)
      scratch[t] += scratch[t + s];
    // A level is written before the next.
    __syncthreads();
  }
  sum = scratch[0];

  // [scale and store]
  // Third walk: 4 bytes read and 4 written an
  // element. Keeping the exponentials costs
  // 8 more, so they are computed again.
  for (int c = t; c < n_cols; c += blockDim.x)
    y[c] = expf(x[c] - m) / sum;
}
