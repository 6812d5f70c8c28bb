// The seam to the compiler: -fsanitize=thread calls __tsan_readN or __tsan_writeN before an access
// to memory, and here they are answered, without its run-time library. The names are those of g++
// and clang++; one that a newer compiler adds is an undefined symbol when the library loads.
#pragma once

extern "C" {
#define CUDA_HOOK(name, bytes, access)                                                         \
  CUDA_VISIBLE void __tsan_##name(void* p) {                                                   \
    cuda_on_cpu::trace_access(p, bytes, cuda_on_cpu::access, __builtin_return_address(0));     \
  }
// A struct whose type promises less alignment than size moves in words, as on a card.
#define CUDA_RANGE(name, parameters, bytes, access)                                             \
  CUDA_VISIBLE void __tsan_##name parameters {                                                  \
    for (int step = (bytes) % 4 ? 1 : 4, i = 0; i < (bytes); i += step)                         \
      cuda_on_cpu::trace_access(p + i, step, cuda_on_cpu::access, __builtin_return_address(0)); \
  }
#define CUDA_HOOKS(bytes)                                                   \
  CUDA_HOOK(read##bytes, bytes, READ) CUDA_HOOK(write##bytes, bytes, WRITE) \
  CUDA_RANGE(unaligned_read##bytes, (char* p), bytes, READ)                 \
  CUDA_RANGE(unaligned_write##bytes, (char* p), bytes, WRITE)
CUDA_HOOKS(1) CUDA_HOOKS(2) CUDA_HOOKS(4) CUDA_HOOKS(8) CUDA_HOOKS(16)
CUDA_RANGE(read_range, (char* p, long bytes), bytes, READ)
CUDA_RANGE(write_range, (char* p, long bytes), bytes, WRITE)
CUDA_VISIBLE void* __tsan_memcpy(void* to, const void* from, size_t bytes) {  // clang copies so
  cuda_on_cpu::trace_copy(to, from, bytes, __builtin_return_address(0));
  return __builtin_memcpy(to, from, bytes);
}
CUDA_VISIBLE void __tsan_func_entry(void*) {}
CUDA_VISIBLE void __tsan_func_exit() {}
CUDA_VISIBLE void __tsan_init() {}
}
