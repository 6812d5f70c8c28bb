"""The block model: Triton kernels and their launchers."""
