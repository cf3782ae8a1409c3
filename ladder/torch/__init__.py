"""Graphs on torch tensors: low-bit layers by this package's kernels, every other operator by torch.

``tasks`` (a graph as kernel calls and islands between them), ``functions`` (operators as torch functions), ``places`` (how a
kernel call runs: on a GPU, in the emulator, by its plan), ``memory`` (one arena for the kernels' outputs), ``executor``.
"""
