"""CUDA threads on the CPU: compiles a .cu file as it is and runs its kernel thread by thread."""
