// Matrix product C = A B, thread model: 256 threads share one 16 x 16 tile of C.
//
//   a_ptr  float32, m x k      b_ptr  float32, k x n      c_ptr  float32, m x n
//   stride_xy  elements from one x to the next; any layout
//
// Thread (i, j) owns one element of the tile and one running sum over k = 0, 1, 2 .. Each step
// stages 16 columns of A and 16 rows of B in shared memory, so that an element of A or B is
// read from global memory once a tile, not once a thread. Two barriers a step.

#define TILE 16  // 16 * 16 threads = 8 warps

extern "C" __global__ void
__launch_bounds__(TILE * TILE)
matmulTiled(
    const float* a_ptr, const float* b_ptr,
    float* c_ptr, int m, int n, int k,
    long long stride_am, long long stride_ak,
    long long stride_bk, long long stride_bn,
    long long stride_cm, long long stride_cn)
{
  __shared__ float a_tile[TILE][TILE];
  __shared__ float b_tile[TILE][TILE];

  // [tile]
  // One block a tile, row by row over C.
  const int tiles_n = (n + TILE - 1) / TILE;
  const int i = threadIdx.y, j = threadIdx.x;
  const int tile = blockIdx.x;
  const int row = tile / tiles_n * TILE + i;
  const int col = tile % tiles_n * TILE + j;

  float acc = 0.0f;
  for (int k0 = 0; k0 < k; k0 += TILE) {
    // [load]
    // One element of A and B a thread, else 0.
    const int ak = k0 + j, bk = k0 + i;
    float a = 0.0f, b = 0.0f;
    if (row < m && ak < k)
      a = a_ptr[row * stride_am +
                ak * stride_ak];
    if (bk < k && col < n)
      b = b_ptr[bk * stride_bk +
                col * stride_bn];
    a_tile[i][j] = a;
    b_tile[i][j] = b;
    // Both tiles are written before a read.
    __syncthreads();

    // [multiply]
    for (int p = 0; p < TILE; ++p)
      acc = fmaf(a_tile[i][p],
                 b_tile[p][j], acc);
    // All have read before a tile is replaced.
    __syncthreads();
  }

  // [store]
  if (row < m && col < n)
    c_ptr[row * stride_cm +
          col * stride_cn] = acc;
}
