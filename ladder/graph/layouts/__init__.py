"""How values of a graph lie in memory: layouts as values on edges, decided together by cost.

Read in this order: ``arrangement`` (a layout of a tensor, and what views make of it), ``access`` (what operators read and
write), ``domains`` (the layouts that are worth a thought), ``eliminate`` (the exact choice), ``propagate`` (all of it),
``solution`` (the answer, and its words), ``execute`` (the proof: a graph run on the memory that was decided).
"""
