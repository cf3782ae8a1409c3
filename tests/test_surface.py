"""Whatever a public function is given, it takes it or answers with a LadderError that says what, where and what to do."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import ladder
from ladder.errors import LadderError
from ladder.scheduler import Tiling

Call = Callable[[Any], object]


class Odd:
    pass


#: values that are right in few places
VALUES: tuple[Any, ...] = (
    *(None, True, 3, -1, 0, 1.5, float("nan"), float("inf"), 10**30, 10**400, 1j),
    *("", "yes", "2", b"ab", [], [1, 2, 3], (), (1, 2), {}, {"a": 1}, {1}),
    *(np.int64(2), np.float32(2), np.bool_(True), np.array(3), np.ones(3), np.zeros((0,))),
    *(np.full((2, 2), np.nan), np.array([None, "a"], object), np.array(["a", "b"])),
    *(Odd(), Odd, lambda *given: given, [[1], [1, 2]]),
)

INT4 = ladder.types["int4"]
W4 = INT4.grouped(32)
H200 = ladder.devices["h200"]


@cache
def plan_of(m: int | None, **more: Any) -> Any:
    return ladder.schedule(ladder.matmul(m, 32, 64, activation="float16", weight=W4, **more))


@cache
def weights() -> ladder.Quantized:
    return ladder.quantize(np.random.default_rng(0).normal(size=(32, 64)), W4)


X = np.ones((4, 64), np.float16)


def keywords(function: Callable[..., object], **right: Any) -> dict[str, Call]:
    """One call for each argument, which it gets with all others right."""

    def call(name: str, value: object) -> object:
        return function(**{**right, name: value})

    return {f"{function.__qualname__}({name})": partial(call, name) for name in right}


def schedule_calls() -> dict[str, Call]:
    plan = plan_of(4)
    calls: dict[str, Call] = {
        "schedule(op)": ladder.schedule,
        "schedule(device)": lambda v: ladder.schedule(plan.op, v),
        "schedule(placement)": lambda v: ladder.schedule(plan.op, placement=v),
        "with_(m_range from)": lambda v: plan.with_(m_range=(v, 8)),
        "with_(m_range to)": lambda v: plan.with_(m_range=(0, v)),
        "with_(epilogue item)": lambda v: plan.with_(epilogue=(v,)),
    }
    for field in dataclasses.fields(ladder.Plan):
        calls[f"Plan.with_({field.name})"] = lambda v, n=field.name: plan.with_(**{n: v})
        calls[f"verify({field.name})"] = lambda v, n=field.name: dataclasses.replace(
            plan, **{n: v}
        ).verify()
        if field.name not in ("op", "device"):
            calls[f"schedule({field.name})"] = lambda v, n=field.name: ladder.schedule(
                plan.op, **{n: v}
            )
    for place in range(5):
        calls[f"Tiling[{place}]"] = lambda v, p=place: plan.with_(
            tiling=Tiling(*(v if index == p else 1 for index in range(5)))
        )
    return calls


def plan_calls() -> dict[str, Call]:
    one, several, biased = plan_of(4), plan_of(None), plan_of(4, bias=True)
    added = plan_of(4, epilogue=("silu_gate", "residual"))
    q = weights()
    calls: dict[str, Call] = {
        "PlanSet": ladder.PlanSet,
        "PlanSet item": lambda v: ladder.PlanSet((v,)),
        "plan_for": several.plan_for,
        "cost": one.cost,
        "run(bias)": lambda v: biased.run(X, q, v),
        "run(residual)": lambda v: added.run(X, q, residual=v),
        "reference(residual)": lambda v: added.op.reference(X, q, residual=v),
        "reference(x)": lambda v: one.op.reference(v, q),
        "reference(weight)": lambda v: one.op.reference(X, v),
        "reference(bias)": lambda v: one.op.reference(X, q, v),
        "compile": ladder.compile,
        "compile item": lambda v: ladder.compile([v]),
        "pack": one.packing.pack,
        "unpack": one.packing.unpack,
        "unpack item": lambda v: one.packing.unpack({"weight": v, "scales": v}),
        "pack_arrays": one.packing.pack_arrays,
        "pack_arrays(scales)": lambda v: one.packing.pack_arrays(q.codes, scales=v),
        "pack_arrays(other)": lambda v: one.packing.pack_arrays(q.codes, other=v),
        "unpack_arrays": one.packing.unpack_arrays,
        "unpack_arrays item": lambda v: one.packing.unpack_arrays({"weight": v, "scales": v}),
        "MatMul": lambda v: ladder.MatMul(v, v, v, v, v, v, v),
        "Packed(packing)": lambda v: ladder.Packed(v, one.packing.pack(q)),
        "Packed(arrays)": lambda v: ladder.Packed(one.packing, v),
        "Packed.load": lambda v: ladder.Packed.load(v, one.packing),
        "Kernel": lambda v: ladder.Kernel(v, one, one.packing),
        "load(driver)": lambda v: ladder.load("no_such_folder", driver=v),
    }
    for name, plan in (("Plan", one), ("PlanSet", several)):
        calls[f"{name}.run(x)"] = lambda v, p=plan: p.run(v, q)
        calls[f"{name}.run(q)"] = lambda v, p=plan: p.run(X, v)
        calls[f"{name}.run(bias)"] = lambda v, p=plan: p.run(X, q, v)
        calls[f"{name}.from_json"] = type(plan).from_json
    for name in ("cache", "settings", "driver"):
        calls[f"compile({name})"] = lambda v, n=name: v is None or ladder.compile(one, **{n: v})
    right = {"m": 4, "n": 32, "k": 64, "activation": "float16", "weight": W4}
    calls |= keywords(ladder.matmul, **right, out="float16", bias=False, epilogue=())
    calls["matmul(epilogue item)"] = lambda v: ladder.matmul(**right, epilogue=(v,))
    return calls | quantize_calls() | dequantize_calls() | experiment_calls()


def quantize_calls() -> dict[str, Call]:
    op = ladder.quantize_activations(4, 64)
    plan = ladder.schedule(op)
    calls: dict[str, Call] = {
        "QuantizeActivations": lambda v: ladder.QuantizeActivations(v, v, v, v),
        "quantize reference": op.reference,
        "QuantizePlan.run": plan.run,
        "QuantizePlan.cost": plan.cost,
        "QuantizePlan.from_json": ladder.QuantizePlan.from_json,
        "QuantizeKernel": lambda v: ladder.QuantizeKernel(v, plan),
        "schedule quantize(device)": lambda v: ladder.schedule(op, v),
    }
    for field in dataclasses.fields(plan):
        calls[f"QuantizePlan.with_({field.name})"] = lambda v, n=field.name: plan.with_(**{n: v})
        calls[f"schedule quantize({field.name})"] = lambda v, n=field.name: ladder.schedule(
            op, **{n: v} if n not in ("op", "device") else {}
        )
    right = {"m": 4, "k": 64, "source": "float16", "target": "int8"}
    return calls | keywords(ladder.quantize_activations, **right)


def dequantize_calls() -> dict[str, Call]:
    op = ladder.dequantize(32, 64, weight=W4)
    plan = ladder.schedule(op)
    calls: dict[str, Call] = {
        "Dequantize": lambda v: ladder.Dequantize(v, v, v, v),
        "dequantize reference": op.reference,
        "DequantizePlan.run": plan.run,
        "DequantizePlan.from_json": ladder.DequantizePlan.from_json,
        "DequantizeKernel": lambda v: ladder.DequantizeKernel(v, plan),
        "schedule dequantize(device)": lambda v: ladder.schedule(op, v),
    }
    for field in dataclasses.fields(plan):
        calls[f"DequantizePlan.with_({field.name})"] = lambda v, n=field.name: plan.with_(**{n: v})
        calls[f"schedule dequantize({field.name})"] = lambda v, n=field.name: ladder.schedule(
            op, **{n: v} if n not in ("op", "device") else {}
        )
    right = {"n": 32, "k": 64, "weight": W4, "compute": "float16"}
    return calls | keywords(ladder.dequantize, **right)


def experiment_calls() -> dict[str, Call]:
    from ladder.experiments import Sweep, kendall_tau, read, totals, write

    right: dict[str, Any] = {
        "shapes": [(32, 64)],
        "weights": ["int4"],
        "ms": [1],
        "groups": [32],
        "activations": ["float16"],
        "sources": ["global"],
        "placements": ["register"],
        "devices": ["h200"],
        "fixed": [{}],
        "compute": "float16",
        "scale": "float16",
        "zero": None,
        "seed": 0,
        "name": "odd",
    }
    calls = keywords(Sweep, **right)
    for name in ("shapes", "weights", "ms", "groups", "devices", "fixed"):
        calls[f"Sweep({name} item)"] = lambda v, n=name: Sweep(**{**right, n: [v]})
    calls["fixed value"] = lambda v: hash(Sweep(**{**right, "fixed": [{"family": v}]}))
    return calls | {
        "read rows": read,
        "write rows": lambda v: write([], v),
        "totals": lambda v: totals([], [v]),
        "kendall_tau": lambda v: kendall_tau([v, 1.0], [1.0, 2.0]),
    }


def type_calls() -> dict[str, Call]:
    q = weights()
    nvfp4 = ladder.quantize(np.ones((16, 64)), "nvfp4")
    calls: dict[str, Call] = {
        "types[]": ladder.types.__getitem__,
        "types.get": ladder.types.get,
        "in types": ladder.types.__contains__,
        "types.register": ladder.types.register,
        "types.register alias": lambda v: ladder.types.register(INT4, v),
        "devices[]": ladder.devices.__getitem__,
        "values item": lambda v: ladder.TType("z", 1, [0, v]),
        "encoding of a function": lambda v: ladder.TType("z", 1, encoding=lambda code: v),
        "TType(encoding)": lambda v: ladder.TType("z", 1, encoding=v),
        "decode": INT4.decode,
        "encode": INT4.encode,
        "encode(saturate)": lambda v: INT4.encode([1.0], saturate=v),
        "check_codes": INT4.check_codes,
        "scale_shape": lambda v: W4.scale_shape(v, v),
        "group_extents": lambda v: W4.group_extents(v, v),
        "bits_per_weight": lambda v: W4.bits_per_weight(v, v),
        "grouped pair": lambda v: INT4.grouped((v, v)),
        "quantize(weights)": lambda v: ladder.quantize(v, W4),
        "quantize(type)": lambda v: ladder.quantize(np.ones((2, 32)), v),
        "second scale": lambda v: ladder.Quantized(
            "nvfp4", nvfp4.codes, nvfp4.scales, global_scale=v
        ),
        "zeros": lambda v: ladder.Quantized(INT4.grouped(32, zero="float"), q.codes, q.scales, v),
        "ComputeType": lambda v: ladder.matmul(
            4, 32, 64, activation=ladder.ComputeType(v, v), weight=W4
        ),
        "scales of losslessness": lambda v: ladder.losslessness(
            W4, "float16", scale_on="operand", scales=v
        ),
    }
    group = {"group": 32, "scale": "float16", "zero": None, "second": None}
    parts = {"codes": q.codes, "scales": q.scales, "zeros": None, "global_scale": None}
    return (
        calls
        | keywords(INT4.grouped, **group)
        | keywords(ladder.GroupedType, **{**group, "group": (1, 32)}, element=INT4, label="")
        | keywords(ladder.TType, name="zz", bits=1, values=[0, 1])
        | keywords(ladder.Quantized, type=W4, **parts)
        | keywords(ladder.losslessness, weight=W4, compute="float16", scale_on="operand")
    )


def device_calls() -> dict[str, Call]:
    calls: dict[str, Call] = {
        "load_device": ladder.load_device,
        "level": H200.level,
        "pipe": H200.pipe,
        "instruction": H200.instruction,
        "has": H200.has,
        "instructions(kind)": lambda v: H200.instructions(kind=v),
        "instructions(a)": lambda v: H200.instructions(a=v),
        "Device.with_(other)": lambda v: H200.with_(other=v),
        "load": ladder.load,
    }
    for name in ("threads", "registers", "shared_bytes"):
        right = {"threads": 32, "registers": 32, "shared_bytes": 0}
        calls[f"blocks_resident({name})"] = lambda v, n=name, r=right: H200.blocks_resident(
            **{**r, n: v}
        )
    for field in dataclasses.fields(H200):
        calls[f"Device.with_({field.name})"] = lambda v, n=field.name: H200.with_(**{n: v})
    return calls


def kernel_calls() -> dict[str, Call]:
    kernel = ladder.compile(plan_of(4))
    packed = kernel.pack(weights())
    added = ladder.compile(plan_of(4, epilogue=("residual",)))
    there = added.pack(weights())
    return {
        "call(residual)": lambda v: added(X, there, residual=v, device="emulator"),
        "call(x)": lambda v: kernel(v, packed, device="emulator"),
        "call(packed)": lambda v: kernel(X, v, device="emulator"),
        "call(bias)": lambda v: kernel(X, packed, bias=v, device="emulator"),
        "call(out)": lambda v: kernel(X, packed, out=v, device="emulator"),
        "call(device)": lambda v: kernel(X, packed, device=v),
        "call(x) on a device": lambda v: kernel(v, packed),
        "bind(x)": lambda v: kernel.bind(v, packed),
        "bind(packed)": lambda v: kernel.bind(X, v),
        "kernel.pack": kernel.pack,
        "kernel.unpack": kernel.unpack,
        "kernel.pack_arrays": kernel.pack_arrays,
        "kernel.unpack_arrays": kernel.unpack_arrays,
        "Packed.to": packed.to,
    }


@cache
def graph() -> Any:
    from ladder.graph.draft import Draft
    from ladder.graph.operators import Linear
    from ladder.graph.tensor import TensorType

    draft = Draft()
    x = draft.input("x", TensorType((4, 64), "float16"))
    w = draft.constant("w", np.random.default_rng(0).normal(size=(32, 64)))
    draft.outputs = [draft.add(Linear(), (x, w), "y")]
    return draft.graph()


def graph_calls() -> dict[str, Call]:
    found = graph()
    low = found.assign(W4)
    model = ladder.compile_graph(low)
    calls: dict[str, Call] = {
        "from_onnx": ladder.from_onnx,
        "from_torch": ladder.from_torch,
        "from_torch(inputs)": lambda v: ladder.from_torch(v, v),
        "assign": found.assign,
        "assign item": lambda v: found.assign([v]),
        "propagate": found.propagate,
        "propagate(sizes)": lambda v: found.propagate(sizes={"s": v}),
        "run": found.run,
        "node": found.node,
        "verify": lambda v: ladder.verify(found, v),
        "Graph.load": ladder.Graph.load,
        "compile_graph": ladder.compile_graph,
        "compile_graph(device)": lambda v: ladder.compile_graph(low, v),
        "Model(x)": model,
        "Model(mode)": lambda v: model(X, mode=v),
        "Model.load": ladder.Model.load,
    }
    right = {
        "weight": "int4",
        "group": 32,
        "scale": "float16",
        "zero": None,
        "activation": "float16",
        "out": "",
    }
    return calls | keywords(ladder.Rule, **right, name="*", min_size=0, max_size=None)


def check(calls: dict[str, Call]) -> None:
    silent = []
    for name, call in calls.items():
        for value in VALUES:
            try:
                call(value)
            except LadderError as error:
                if not (error.what and error.at and error.hint):
                    silent.append((name, str(error)))
    assert not silent


@pytest.mark.parametrize(
    "calls", [schedule_calls, plan_calls, type_calls, device_calls, graph_calls]
)
def test_bad_values_get_an_error_with_what_at_and_hint(calls, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    check(calls())


@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs the compile extra")
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_bad_values_get_an_error_from_a_kernel_too(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    check(kernel_calls())
