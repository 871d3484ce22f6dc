"""Triton kernels for heads on CUDA in half precision; each file opens with its formula."""
