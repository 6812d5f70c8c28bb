extern "C" __global__ void mySoftmax(const float* in_ptr, float* out_ptr, int n_cols) {
  const float* x = in_ptr + (long long)blockIdx.x * n_cols;  // one warp owns one row
  float* y = out_ptr + (long long)blockIdx.x * n_cols;
  float m = x[0], sum = 0.0f;
  for (int c = threadIdx.x; c < n_cols; c += 32) m = fmaxf(m, x[c]);
  for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, d));
  for (int c = threadIdx.x; c < n_cols; c += 32) sum += expf(x[c] - m);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
  for (int c = threadIdx.x; c < n_cols; c += 32) y[c] = expf(x[c] - m) / sum;
}
