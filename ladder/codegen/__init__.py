"""From a plan to CUDA text and machine code; of all modules only :mod:`~ladder.codegen.tvm_api` imports TVM.

The path of a plan, in this order: ``lower`` (the entry, where the plan is checked), ``context`` (what the stages of
one kernel share), ``arrange`` (a family as an order of stages), ``walk`` and ``block`` (the main loop of skinny and
ring family), ``consume`` (that of the specialised family), ``stages`` (what is emitted), ``tvm_api`` (TensorIR to
CUDA text), ``listing`` (the same function for the emulator), ``kernel`` (what lowering hands over), ``toolchain``
with ``nvrtc_headers`` (CUDA text to cubin), ``machine_code`` (what the cubin must hold).

Stages, in the order in which a block of K meets them: ``load_ring``, or ``pipeline`` where one warp loads;
``activations``, ``metadata``; ``decode``, into shared memory by ``shared_decode``; ``zero_point``,
``scale_registers``; ``multiply`` or ``warpgroup``; ``group_scale``; ``finish`` and ``store_fragments``, with
``epilogue``.

They are written with ``emit`` (a small face of TVM's builder), ``widen`` and ``intrinsics`` (the device text), whose
meanings are in ``semantics``. ``quantize`` lowers the operator that quantises activations.
"""
