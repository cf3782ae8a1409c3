"""Run compiled kernels: artifact folders, launches through the CUDA driver, packed weights, the cache of kernels and choices.

In the order in which a call meets them: ``build`` (plan to kernel), ``cache``, ``artifact``, ``load``; ``packed`` (weights),
``arrays`` and ``buffer`` (whose memory), ``arguments`` (checks), ``argument_block``, ``launcher``, ``driver``; ``compiled``
and the kernels tie them together, ``emulate`` runs the same call on the CPU. Nothing here imports TVM, nor CUDA before a launch.
"""
