extern "C" __global__ void wrong(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x] + undeclared;
}
