"""Triton kernels for CUDA in half precision, one file each.

The same steps in plain torch stand in `quoth.encoder.steps` and `quoth.encoder.attention`.

Each is a torch operator with a gradient of its own (`torch.library`), which compiled graphs take as it is. The modules
are imported when a tensor on a GPU first needs them: Triton comes with torch for CUDA, and not otherwise.
"""
