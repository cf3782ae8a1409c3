"""Decode programs: found by search from a value table, proven over all codes, priced by what their operations cost.

Read in this order: ``values`` (what has to come out), ``lanes`` and ``geometry`` (where), ``program`` (the answer, a
value), ``derive`` (the way there, one page); then its steps. Forms: ``form``, ``forms``, ``holes`` and ``exact`` (how
a code becomes a lane), ``complete`` (forms that go together). Placement: ``cover``, ``ring`` and ``moves`` (which
bits lie where), ``work`` (a bound on searching), ``cost``. Operations: ``build``, ``fragment`` and ``assemble``.
Decodes without a mask form: ``identity``, ``special``, ``tables``; for warpgroups: ``single``. Proof: ``machine``
(what operations do), ``reference``, ``taint``, ``prove``. What is shipped: ``store``, ``serial``, ``generate``; for
people: ``text``, ``table``.

A new way to decode is a candidate: another form belongs to ``forms``, a program that no mask gives to ``special`` or
``tables``, which ``derive.lookups`` lists. Programs are compared by :func:`~ladder.decode.cost.cycles` and proven
whoever made them.
"""
