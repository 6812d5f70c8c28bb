// Runs the kernel whose source stands above, cuda_kernel, block after block.
#pragma once

#undef __noinline__  // libraries spell an attribute so
#undef __align__
#include <link.h>
#include <sys/mman.h>

#define CUDA_VISIBLE __attribute__((visibility("default"), no_sanitize("thread")))

namespace cuda_on_cpu {

// An odd stride: stacks a power of two apart would all fall into the same cache sets.
enum { STACK_BYTES = 128 * 1024 + 192, CANARY = 0x5ca1ab1e };
static unsigned char* stacks;
static unsigned char *shared_first, *shared_last;  // the static __shared__ of this file
static thread_local volatile char in_shared_segment;
static void** arguments;
static size_t stack_bytes;
static int dynamic_bytes;
static bool in_block;

#ifdef CUDA_ON_CPU_TRACE
}  // namespace cuda_on_cpu
#include "diagnose.h"
namespace cuda_on_cpu {
#else
#define trace_block(number)
#endif

// A type as numpy names it: "f4", "i8"; "V16" for a struct of 16 bytes.
template <class T, char letter = 'V', int bytes = sizeof(T)>
struct Named {
  static void write(char*& text) { text += __builtin_sprintf(text, "%c%d ", letter, bytes); }
};
#define CUDA_NAMED(T, letter) template <> struct Typed<T> : Named<T, letter> {};
template <class T> struct Typed : Named<T> {};
template <> struct Typed<void> : Named<void, 'V', 1> {};
CUDA_NAMED(float, 'f') CUDA_NAMED(double, 'f') CUDA_NAMED(bool, 'b') CUDA_NAMED(char, 'i')
CUDA_NAMED(signed char, 'i') CUDA_NAMED(short, 'i') CUDA_NAMED(int, 'i') CUDA_NAMED(long, 'i')
CUDA_NAMED(long long, 'i') CUDA_NAMED(unsigned char, 'u') CUDA_NAMED(unsigned short, 'u')
CUDA_NAMED(unsigned, 'u') CUDA_NAMED(unsigned long, 'u') CUDA_NAMED(unsigned long long, 'u')
// A pointer has a star before it, one to what is not written also "const".
template <class T> struct Typed<const T> : Typed<T> {};
template <class T> struct Typed<volatile T> : Typed<T> {};
template <class T> struct Typed<T*> {
  static void write(char*& text) { *text++ = '*', Typed<T>::write(text); }
};
template <class T> struct Typed<const T*> {
  static void write(char*& text) {
    text += __builtin_sprintf(text, "const*");
    Typed<T>::write(text);
  }
};

template <class... P>
CUDA_QUIET static void describe(void (*)(P...), char* text) {
  (Typed<P>::write(text), ...);
}

// Braces, since they alone promise that the arguments are read from left to right.
struct Call {
  template <class... P>
  CUDA_QUIET Call(void (*kernel)(P...), P... given) { kernel(given...); }
};
template <class... P>
CUDA_QUIET static void call(void (*kernel)(P...), void** argument) {
  Call{kernel, *(P*)*argument++...};
}

CUDA_QUIET static void fiber_main() {
  call(cuda_kernel, arguments);
  --live;
  warps[current / LANES].live &= ~(1u << current % LANES);
  trace_returned();
  if (waiting && waiting == live) release_barrier();
  run_next();
}

// The thread-local segment of this library, and of no other.
static int find_shared(dl_phdr_info* object, size_t, void*) {
  bool ours = false;
  const ElfW(Phdr)* segment = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type == PT_TLS) segment = &part;
    ours |= part.p_type == PT_LOAD &&
            (size_t)&launcher - object->dlpi_addr - part.p_vaddr < part.p_memsz;
  }
  if (!ours) return 0;
  shared_first = (unsigned char*)object->dlpi_tls_data;
  shared_last = shared_first + segment->p_memsz;
  return 1;
}

CUDA_QUIET static unsigned char* bottom_of(int thread) {
  return stacks + (size_t)(thread + 1) * STACK_BYTES;
}

CUDA_QUIET static void run_block(int threads, long long number) {
  __builtin_memset(shared_first, 0xff, shared_last - shared_first);  // 0xffffffff is a NaN
  __builtin_memset(dynamic_shared, 0xff, dynamic_bytes);
  live = threads, waiting = first_ready = ready_count = 0;
  for (int w = 0; w * LANES < threads; ++w) {
    int lanes = threads - w * LANES;
    warps[w].live = lanes < LANES ? (1u << lanes) - 1 : ~0u;
    warps[w].waiting = 0;
  }
  for (int t = 0; t < threads; ++t) {
    unsigned char* bottom = bottom_of(t);
    *(unsigned*)bottom = CANARY;
    void** top = (void**)((size_t)(bottom + STACK_BYTES) & -16) - 24;
    // Where the first switch goes: the word above six registers, or the slot of x30.
#if defined(__x86_64__)
    top[6] = (void*)fiber_main;
#else
    top[11] = (void*)fiber_main;
#endif
    fibers[t].stack_pointer = top;
    make_ready(t);
  }
  trace_block(number);
  current = ready[0], first_ready = 1, --ready_count;
  thread_index = fibers[current].index;
  in_block = true;
  cuda_on_cpu_switch(&launcher, fibers[current].stack_pointer);
  in_block = false;
  for (int t = 0; t < threads && !failure; ++t)
    if (*(unsigned*)bottom_of(t) != CANARY)
      failure = STACK, failed_thread = t, failed_at = 0;
}

// Subnormals become zero while a kernel runs, as CuPy's -ftz=true makes them on a card.
static unsigned long flush_to_zero(unsigned long set, bool restore) {
#if defined(__x86_64__)
  unsigned long before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(restore ? set : before | 0x8040);
#else
  unsigned long before, now;
  asm volatile("mrs %0, fpcr" : "=r"(before));
  now = restore ? set : before | 1ul << 24;
  asm volatile("msr fpcr, %0" ::"r"(now));
#endif
  return before;
}

}  // namespace cuda_on_cpu

extern "C" {
CUDA_VISIBLE int cuda_barrier_sites = cuda_sites;

CUDA_VISIBLE const char* cuda_signature() {
  static char text[4096];
  cuda_on_cpu::describe(cuda_kernel, text);
  return text;
}

// Returns a Failure; where[] is then the thread, what Failure says about it, and the block.
CUDA_VISIBLE int cuda_launch(void** arguments, const unsigned* grid,
                                                       const unsigned* block, int shared_bytes,
                                                       int skip_site, long long* where) {
  using namespace cuda_on_cpu;
  int threads = block[0] * block[1] * block[2];
  // One stack more than threads: the lowest is room for what overflows the stack of thread 0.
  size_t needed = (size_t)(threads + 1) * STACK_BYTES;
  if (stack_bytes < needed) {
    if (stacks) munmap(stacks, stack_bytes);
    stack_bytes = needed;
    void* fresh = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stacks = fresh == MAP_FAILED ? nullptr : (unsigned char*)fresh;
    if (!stacks) return stack_bytes = 0, MEMORY;
  }
  in_shared_segment = 1;  // the segment exists from its first use
  dl_iterate_phdr(find_shared, nullptr);
  for (int t = 0; t < threads; ++t)
    fibers[t].index = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};
  cuda_on_cpu::arguments = arguments;
  block_size = {block[0], block[1], block[2]};
  grid_size = {grid[0], grid[1], grid[2]};
  dynamic_bytes = shared_bytes;
  skipped_site = skip_site;
  failure = FINE;
  unsigned long mode = flush_to_zero(0, false);
  uint3& b = block_index;
  long long number = 0;
  for (b.z = 0; b.z < grid[2] && !failure; ++b.z)
    for (b.y = 0; b.y < grid[1] && !failure; ++b.y)
      for (b.x = 0; b.x < grid[0] && !failure; ++b.x) run_block(threads, number++);
  flush_to_zero(mode, true);
  where[0] = failed_thread, where[1] = failed_at, where[2] = number - 1;
  return failure;
}
}
