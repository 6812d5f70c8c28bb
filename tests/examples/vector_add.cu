extern "C" __global__ void add(const float* x_ptr, const float* y_ptr, float* out_ptr, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out_ptr[i] = x_ptr[i] + y_ptr[i];
}
