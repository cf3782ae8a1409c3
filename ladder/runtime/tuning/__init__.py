"""Measure the plans that the scheduler finds best, and keep what was found.

``problem`` (an operator on a device, and its candidates), ``record`` and ``journal`` (what is written, and how it survives
being killed), ``database`` (what the scheduler is handed), ``worker`` (processes that may crash or hang), ``kernels``
(compiled ahead, or brought along), ``measure`` and ``gpu`` (a time, after the numbers were found right), ``tuner`` (the
loop), ``report``, ``shapes`` (the layers of known models).
"""
