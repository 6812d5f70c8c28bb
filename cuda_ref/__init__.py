"""The thread model: CUDA C++ kernels and cuBLAS through CuPy, on a card or on the emulator."""
