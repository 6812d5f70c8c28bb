// One planted fault for each tool of compute-sanitizer, which must report it by the kernel's name.
// Each is launched as one block of 64 threads on an array of 64 floats.

// memcheck: every thread writes past the end of the array, the first of them by one element.
extern "C" __global__ void planted_memcheck(float* x) {
  x[blockDim.x + threadIdx.x] = 1.0f;
}

// racecheck: a value of the other warp is read with no barrier after its write.
extern "C" __global__ void planted_racecheck(float* x) {
  __shared__ float scratch[64];
  scratch[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = scratch[63 - threadIdx.x];
}

// initcheck: the array is read as it was allocated.
extern "C" __global__ void planted_initcheck(float* x) {
  x[threadIdx.x] += 1.0f;
}

// synccheck: half of every warp leaves out a barrier that is the whole block's.
extern "C" __global__ void planted_synccheck(float* x) {
  if (threadIdx.x % 2) {
    x[threadIdx.x] *= 2.0f;
    __syncthreads();
  } else {
    x[threadIdx.x] += 1.0f;
  }
}
