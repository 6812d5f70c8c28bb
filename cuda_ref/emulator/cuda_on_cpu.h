// CUDA threads on the CPU: what a .cu file needs in order to be compiled by g++ or clang++.
//
// A CUDA thread is a fiber: a stack of its own, entered and left by a hand-written switch.
// Blocks run one after another. Inside a block threads run in index order, each until it waits
// or returns, so every run gives the same bits. __syncthreads() waits for all threads of the
// block that have not returned, as on sm_70 and newer.
//
// This stands before the kernel's source, launch.h after it. Nothing of libc is visible to the
// kernel, as under NVRTC: no INFINITY, no headers. A name that is not here is a compile error.
#pragma once

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// Shared memory is the library's thread-local segment: one object holds every __shared__ of a
// file, templates and inline functions included, and its exact range can be poisoned.
#define __shared__ thread_local
// The builder writes `extern __shared__ T name[];` as this, since `extern` needs a definition.
#define CUDA_DYNAMIC_SHARED(T, name) T* const name = (T*)::cuda_on_cpu::dynamic_shared
#define __syncthreads() ::cuda_on_cpu::sync_threads(__COUNTER__ - cuda_first_site, __LINE__)
#ifdef CUDA_ON_CPU_TRACE
#define CUDA_QUIET __attribute__((noinline, no_sanitize("thread")))
#define CUDA_CALLER __builtin_return_address(0)
#else
#define CUDA_QUIET
#define CUDA_CALLER nullptr
#endif

typedef __SIZE_TYPE__ size_t;
namespace cuda_on_cpu {
#ifdef CUDA_ON_CPU_TRACE
enum Access { READ, WRITE, ATOMIC };
static void trace_access(const volatile void* address, int bytes, Access access, const void* pc);
static void trace_copy(void* to, const void* from, int bytes, const void* pc);
static void trace_barrier(int site, int line);
static void trace_release(int line);
static void trace_returned();
static void trace_warp(unsigned mask, bool orders);
static void trace_lane(const void* pc);
#else
#define trace_access(...)
#define trace_barrier(...)
#define trace_release(...)
#define trace_returned()
#define trace_warp(...)
#define trace_lane(...)
#endif
}  // namespace cuda_on_cpu

// g++ traces no store of a struct that a function returns, so the traced build assigns by hand.
#ifdef CUDA_ON_CPU_TRACE
#define CUDA_ASSIGN(name)                                                                         \
  CUDA_QUIET name& operator=(const name& from) {                                                  \
    cuda_on_cpu::trace_copy(this, &from, sizeof(name), CUDA_CALLER);                              \
    return *(name*)__builtin_memcpy(this, &from, sizeof(name));                                   \
  }
#else
#define CUDA_ASSIGN(name)
#endif
#define CUDA_VECTORS(T, name)                                                                     \
  struct __align__(2 * sizeof(T)) name##2 { T x, y; CUDA_ASSIGN(name##2) };                       \
  struct name##3 { T x, y, z; CUDA_ASSIGN(name##3) };                                             \
  struct __align__(16) name##4 { T x, y, z, w; CUDA_ASSIGN(name##4) };                            \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                               \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                       \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_VECTORS(float, float)
CUDA_VECTORS(int, int)
CUDA_VECTORS(unsigned, uint)
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// The switch: callee-saved registers go to the old stack, the new stack's come back. It jumps
// instead of returning, since all fibers go on at one address and a jump to it is predicted.
#if defined(__x86_64__)
asm(".text\n.p2align 4\n.type cuda_on_cpu_switch,@function\ncuda_on_cpu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
#elif defined(__aarch64__)
asm(".text\n.p2align 4\n.type cuda_on_cpu_switch,%function\ncuda_on_cpu_switch:\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
    "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
    "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nbr x30\n");
#else
#error "the CUDA emulator runs on x86-64 and aarch64"
#endif
extern "C" __attribute__((visibility("hidden"))) void cuda_on_cpu_switch(void** from, void* to);

namespace cuda_on_cpu {
enum { MAX_THREADS = 1024, LANES = 32, MAX_SHARED = 227 * 1024, GUARD = 4096 };
enum Failure { FINE, STUCK, STACK, LANE, STOPPED, MEMORY };  // run.py has the sentences

struct Fiber {
  void* stack_pointer;
  uint3 index;
};
struct Warp {
  unsigned live, waiting;  // one bit a lane
  unsigned long long given[LANES], taken[LANES];
  int source[LANES];
};

static uint3 thread_index, block_index;
static dim3 block_size, grid_size;
static Fiber fibers[MAX_THREADS];
static Warp warps[MAX_THREADS / LANES];
static unsigned short ready[MAX_THREADS], at_barrier[MAX_THREADS];
static int barrier_line[MAX_THREADS];
static int current, live, first_ready, ready_count, waiting;
static int skipped_site = -1;  // this __syncthreads() is passed through, to see what it is for
static int failure, failed_thread, failed_at;
static void* launcher;
alignas(16) static unsigned char dynamic_room[GUARD + MAX_SHARED + GUARD];  // a near miss is seen
static unsigned char* const dynamic_shared = dynamic_room + GUARD;

CUDA_QUIET static void fail(int why, int where) {
  failure = why, failed_thread = current, failed_at = where;
  void* abandoned;
  cuda_on_cpu_switch(&abandoned, launcher);  // never comes back: the launch is over
}

CUDA_QUIET static void make_ready(int thread) {
  int at = first_ready + ready_count++;
  ready[at < MAX_THREADS ? at : at - MAX_THREADS] = thread;
}

// Goes to the next thread that can run; without one, back to the launcher.
CUDA_QUIET static void run_next() {
  void** from = &fibers[current].stack_pointer;
  if (ready_count == 0) {
    if (live) failure = STUCK, failed_thread = current, failed_at = barrier_line[current];
    cuda_on_cpu_switch(from, launcher);
    return;
  }
  current = ready[first_ready];
  first_ready = first_ready + 1 < MAX_THREADS ? first_ready + 1 : 0;
  --ready_count;
  thread_index = fibers[current].index;
  cuda_on_cpu_switch(from, fibers[current].stack_pointer);
}

CUDA_QUIET static void release_barrier() {
  trace_release(barrier_line[at_barrier[waiting - 1]]);
  for (int i = 0; i < waiting; ++i) make_ready(at_barrier[i]);
  waiting = 0;
}

CUDA_QUIET __attribute__((noinline)) static void sync_threads(int site, int line) {
  trace_barrier(site, line);
  if (site == skipped_site) return;
  barrier_line[current] = line;
  at_barrier[waiting++] = current;
  if (waiting == live) release_barrier();
  run_next();
}

// Waits until every live lane of `mask` is here. The last one to arrive hands out the values.
CUDA_QUIET __attribute__((noinline)) static void sync_lanes(unsigned mask, bool orders) {
  Warp& warp = warps[current / LANES];
  int base = current & -LANES;
  if (!(mask >> (current % LANES) & 1)) fail(LANE, mask);
  warp.waiting |= 1u << current % LANES;
  unsigned needed = mask & warp.live;
  if ((warp.waiting & needed) == needed) {
    warp.waiting &= ~needed;
    trace_warp(needed, orders);
    for (int lane = 0; lane < LANES; ++lane)
      if (needed >> lane & 1) {
        int from = warp.source[lane];
        warp.taken[lane] = needed >> from & 1 ? warp.given[from] : ~0ull;  // ~0 is a NaN
        make_ready(base + lane);
      }
  }
  run_next();
}

template <class T>
CUDA_QUIET T shuffle(unsigned mask, T value, int source, const void* pc) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
  Warp& warp = warps[current / LANES];
  int lane = current % LANES;
  trace_lane(pc);
  warp.source[lane] = source;
  __builtin_memcpy(&warp.given[lane], &value, sizeof(T));
  sync_lanes(mask, false);
  __builtin_memcpy(&value, &warp.taken[lane], sizeof(T));
  return value;
}

// The lane that a shuffle of `width` lanes reads, its own where `to` leaves the segment.
CUDA_QUIET inline int partner(int to, int width) {
  int lane = current % LANES, first = lane & -width;
  return to >= first && to < first + width ? to : lane;
}

template <class T, class F>
CUDA_QUIET T atomic(T* address, F change, const void* pc) {
  trace_access(address, sizeof(T), ATOMIC, pc);
  T old = *address;
  *address = change(old);
  return old;
}

template <class To, class From>
CUDA_QUIET inline To bits(From value) {
  To same;
  static_assert(sizeof(To) == sizeof(From), "");
  __builtin_memcpy(&same, &value, sizeof(To));
  return same;
}

}  // namespace cuda_on_cpu

static const uint3 &threadIdx = cuda_on_cpu::thread_index, &blockIdx = cuda_on_cpu::block_index;
static const dim3 &blockDim = cuda_on_cpu::block_size, &gridDim = cuda_on_cpu::grid_size;
static const int warpSize = 32;

CUDA_QUIET static inline void __syncwarp(unsigned mask = ~0u) {
  int lane = cuda_on_cpu::current % 32;
  cuda_on_cpu::warps[cuda_on_cpu::current / 32].source[lane] = lane;
  cuda_on_cpu::sync_lanes(mask, true);
}
#define CUDA_SHUFFLE(name, to)                                                                    \
  template <class T>                                                                              \
  CUDA_QUIET T name(unsigned mask, T value, int by, int width = 32) {                             \
    int lane = cuda_on_cpu::current % 32;                                                         \
    return cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::partner(to, width), CUDA_CALLER);       \
  }
CUDA_SHUFFLE(__shfl_sync, (lane & -width) + (by & (width - 1)))
CUDA_SHUFFLE(__shfl_xor_sync, lane ^ by)
CUDA_SHUFFLE(__shfl_down_sync, lane + by)
CUDA_SHUFFLE(__shfl_up_sync, lane - by)
#define CUDA_ATOMIC(name, result)                                                                 \
  template <class T>                                                                              \
  CUDA_QUIET T name(T* address, decltype(T() + T()) value) {                                      \
    return cuda_on_cpu::atomic(address, [=](T old) -> T { return result; }, CUDA_CALLER);         \
  }
CUDA_ATOMIC(atomicAdd, old + T(value))
CUDA_ATOMIC(atomicMax, old < T(value) ? T(value) : old)
CUDA_ATOMIC(atomicMin, T(value) < old ? T(value) : old)
CUDA_ATOMIC(atomicExch, (void(old), T(value)))
template <class T>
CUDA_QUIET T atomicCAS(T* address, decltype(T() + T()) expected, decltype(T() + T()) value) {
  auto change = [=](T old) { return old == T(expected) ? T(value) : old; };
  return cuda_on_cpu::atomic(address, change, CUDA_CALLER);
}

// Loads through the read-only cache are plain loads.
template <class T>
CUDA_QUIET T __ldg(const T* address) {
  trace_access(address, sizeof(T), cuda_on_cpu::READ, CUDA_CALLER);
  return *address;
}

// The C library's functions, rounded as it rounds them: exp, log, sin and cos differ from a
// card's by a few ULP. fmaf, sqrtf and division are exact on both.
#define CUDA_LIBRARY(name)                                                                        \
  extern "C" float name##f(float) noexcept;                                                       \
  extern "C" double name(double) noexcept;                                                        \
  static inline float name(float x) { return name##f(x); }
CUDA_LIBRARY(exp) CUDA_LIBRARY(exp2) CUDA_LIBRARY(log) CUDA_LIBRARY(log2) CUDA_LIBRARY(sqrt)
CUDA_LIBRARY(tanh) CUDA_LIBRARY(sin) CUDA_LIBRARY(cos) CUDA_LIBRARY(floor) CUDA_LIBRARY(ceil)
CUDA_LIBRARY(fabs) CUDA_LIBRARY(erf) CUDA_LIBRARY(expm1) CUDA_LIBRARY(log1p)
extern "C" float powf(float, float) noexcept;
extern "C" int printf(const char*, ...);
static inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float fmaxf(float a, float b) { return a != a ? b : a < b ? b : a; }
static inline float fminf(float a, float b) { return a != a ? b : b < a ? b : a; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline bool isnan(float x) { return x != x; }
static inline bool isinf(float x) { return __builtin_isinf(x); }
extern "C" int abs(int) noexcept;
#define CUDA_MIN_MAX(T)                                                                           \
  static inline T max(T a, T b) { return a < b ? b : a; }                                         \
  static inline T min(T a, T b) { return b < a ? b : a; }
CUDA_MIN_MAX(int) CUDA_MIN_MAX(unsigned) CUDA_MIN_MAX(long long) CUDA_MIN_MAX(size_t)
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fmul_rn(float a, float b) { volatile float p = a * b; return p; }
static inline float __fadd_rn(float a, float b) { volatile float s = a; return s + b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __int_as_float(int i) { return cuda_on_cpu::bits<float>(i); }
static inline float __uint_as_float(unsigned i) { return cuda_on_cpu::bits<float>(i); }
static inline int __float_as_int(float x) { return cuda_on_cpu::bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return cuda_on_cpu::bits<unsigned>(x); }
