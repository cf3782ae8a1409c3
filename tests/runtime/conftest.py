"""Stand-ins for a GPU, its driver, torch, a plan and a packing: device memory is host memory, launches are recorded."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from ladder.codegen.kernel import CeilDiv, Launch, LoweredKernel, Parameter
from ladder.codegen.toolchain import Cubin
from ladder.errors import PackingError
from ladder.runtime.arrays import numpy_dtype
from ladder.runtime.kernel import Kernel
from ladder.runtime.variant import Variant
from ladder.ttype import float16, float32

N, K = 8, 16


@dataclass(frozen=True)
class FakePacking:
    """Weights [n, k] of small integers, one to a 32-bit word, and a float16 scale to each row."""

    n: int = N
    k: int = K
    version: int = 1

    def shapes(self):
        return {"weight": ((self.n, self.k), "uint32"), "scales": ((self.n,), "float16")}

    def pack(self, weights):
        if weights.shape != (self.n, self.k):
            raise PackingError(f"weights are {weights.shape}")
        return {"weight": weights.astype(np.uint32), "scales": np.full(self.n, 0.5, np.float16)}

    def unpack(self, arrays):
        return arrays["weight"].astype(np.uint8)

    def to_json(self):
        return {"format": "fake.packing/1", "n": self.n, "k": self.k, "version": self.version}


@dataclass(frozen=True)
class FakePlan:
    m_range: tuple = (1, None)
    access: str = "scalar"
    bias: bool = False
    packing: FakePacking = field(default_factory=FakePacking)
    arch: str = "sm_90a"
    activation_scale: bool = False
    residual: bool = False

    @property
    def device(self):
        return SimpleNamespace(arch=self.arch)

    @property
    def op(self):
        return SimpleNamespace(
            n=self.packing.n,
            k=self.packing.k,
            activation=float16,
            out=float32,
            stored=float32,
            bias=self.bias,
            activation_scale=self.activation_scale,
            out_n=self.packing.n,
            residual=self.residual,
        )

    def to_json(self):
        return {
            "format": "fake.plan/1",
            "m_range": list(self.m_range),
            "access": self.access,
            "bias": self.bias,
            "arch": self.arch,
            "packing": self.packing.to_json(),
        }

    @classmethod
    def from_json(cls, data):
        return cls(tuple(data["m_range"]), data["access"], data["bias"], arch=data["arch"])


PARAMETERS = (
    Parameter("y_ptr", "buffer", "float32", "y"),
    Parameter("x_ptr", "buffer", "float16", "x"),
    Parameter("m", "scalar", "int32", "m"),
    Parameter("w_ptr", "buffer", "uint32", "weight"),
    Parameter("s_ptr", "buffer", "float16", "scales"),
    Parameter("sm", "scalar", "int64", "x_stride_m"),
    Parameter("sk", "scalar", "int32", "x_stride_k"),
)


@dataclass(frozen=True)
class Record:
    """One launch as the driver saw it."""

    device: int
    name: str
    code: bytes
    geometry: tuple
    stream: int
    pdl: bool
    values: dict


class FakeDriver:
    """Devices of given capabilities; launches compute ``y = (x @ w.T) * scale`` through the raw addresses."""

    def __init__(self, capabilities=((9, 0),)):
        self.capabilities = capabilities
        self.parameters = PARAMETERS
        self.memory = {}
        self.launches = []
        self.loads = []

    def version(self):
        return "13.0"

    def device_count(self):
        return len(self.capabilities)

    def device_name(self, device):
        return f"Fake {device}"

    def compute_capability(self, device):
        return self.capabilities[device]

    def load(self, device, code, name, shared_bytes):
        self.loads.append((device, code, name, shared_bytes))
        return (device, code, name)

    def prepare(self, device, function, geometry):
        loaded_on, code, name = function
        assert loaded_on == device

        def launch(stream, arguments, *, pdl):
            values = read_arguments(arguments, self.parameters)
            self.launches.append(Record(device, name, code, geometry, stream, pdl, values))
            compute(values)

        return launch

    def device_of(self, pointer):
        return self.memory[pointer][0]

    def allocate(self, device, nbytes):
        block = np.empty(max(nbytes, 1) + 64, np.uint8)
        pointer = block.ctypes.data + (-block.ctypes.data % 64)
        self.memory[pointer] = (device, block)
        return pointer

    def free(self, device, pointer):
        assert self.memory.pop(pointer)[0] == device

    def to_device(self, device, target, source, nbytes):
        assert self.memory[target][0] == device
        ctypes.memmove(target, source, nbytes)

    def to_host(self, device, target, source, nbytes):
        assert self.memory[source][0] == device
        ctypes.memmove(target, source, nbytes)


def read_arguments(arguments, parameters):
    """Read the values back as the driver would: through the array of pointers, by each parameter's size."""
    pointers = (ctypes.c_void_p * len(parameters)).from_address(arguments.address)
    kinds = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}
    return {
        p.role: (ctypes.c_uint64 if p.kind == "buffer" else kinds[p.dtype]).from_address(at).value
        for p, at in zip(parameters, pointers, strict=True)
    }


def memory_at(pointer, count, dtype):
    dtype = np.dtype(dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(raw, dtype)


def compute(v):
    m, sm, sk = v["m"], v["x_stride_m"], v["x_stride_k"]
    x = memory_at(v["x"], (m - 1) * sm + (K - 1) * sk + 1, np.float16)
    rows = np.array([[x[i * sm + j * sk] for j in range(K)] for i in range(m)], np.float32)
    w = memory_at(v["weight"], N * K, np.uint32).reshape(N, K).astype(np.float32)
    s = memory_at(v["scales"], N, np.float16).astype(np.float32)
    memory_at(v["y"], m * N, np.float32)[:] = (rows @ w.T * s).reshape(-1)


def lowered(name="k", parameters=PARAMETERS, **launch):
    geometry = {"grid": (CeilDiv(16), 2, 1), "block": (128, 1, 1), "shared_bytes": 1024, **launch}
    return LoweredKernel(name, f"// {name}", parameters, Launch(**geometry), None, "sm_90a")


def cubin(code=b"elf"):
    return Cubin(code, "", 32, 0, 0, 0.0, "fake 1.0")


def make_kernel(driver=None, plans=(FakePlan(),), cubins=None, packing=None, **launch):
    cubins = {"sm_90a": cubin()} if cubins is None else cubins
    variants = [Variant(plan, lowered(f"k{i}", **launch), cubins) for i, plan in enumerate(plans)]
    return Kernel(variants, plans[0], packing or FakePacking(), driver=driver)


class TorchDtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class TorchDevice:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Tensor:
    """A NumPy array that says it lies on a GPU."""

    requires_grad = False

    def __init__(self, array, device):
        self.array, self.device = array, device
        self.dtype = getattr(sys.modules["torch"], array.dtype.name)

    def data_ptr(self):
        return self.array.ctypes.data

    @property
    def shape(self):
        return self.array.shape

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def detach(self):
        return self

    def clone(self, memory_format):
        assert memory_format == "contiguous"
        return Tensor(aligned(self.array), self.device)

    def cpu(self):
        return Tensor(self.array, TorchDevice("cpu"))

    def to(self, device):
        return Tensor(aligned(self.array), device)

    def view(self, dtype):
        return Tensor(self.array.view(numpy_dtype(dtype.name)), self.device)

    def __getitem__(self, where):
        return Tensor(self.array[where], self.device)


Tensor.__module__ = TorchDevice.__module__ = "torch"


def fake_torch(monkeypatch):
    """Put a module ``torch`` in the place of the real one."""
    torch = ModuleType("torch")
    for name in ("float16", "bfloat16", "float32", "uint32", "int32", "uint8", "int16", "int8"):
        setattr(torch, name, TorchDtype(name))
    torch.streams = {}
    torch.Tensor, torch.device, torch.contiguous_format = Tensor, TorchDevice, "contiguous"
    torch.from_numpy = lambda array: Tensor(array, TorchDevice("cpu"))
    torch.empty = lambda shape, dtype, device: Tensor(
        aligned(np.full(shape, 7, dtype.name)), device
    )
    torch.cuda = SimpleNamespace(
        current_stream=lambda index: SimpleNamespace(cuda_stream=torch.streams.get(index, 0))
    )
    torch.on = lambda array, index=0: Tensor(aligned(array), TorchDevice("cuda", index))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def aligned(array):
    block = np.empty(array.nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.fixture
def torch(monkeypatch):
    return fake_torch(monkeypatch)


@pytest.fixture
def driver():
    return FakeDriver()


@pytest.fixture
def fakes():
    return SimpleNamespace(
        Driver=FakeDriver,
        Packing=FakePacking,
        Plan=FakePlan,
        PARAMETERS=PARAMETERS,
        N=N,
        K=K,
        kernel=make_kernel,
        lowered=lowered,
        cubin=cubin,
        aligned=aligned,
        replace=replace,
        read_arguments=read_arguments,
    )


@pytest.fixture
def weights():
    return np.random.default_rng(0).integers(0, 16, (N, K)).astype(np.uint8)


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((3, K)).astype(np.float16)


@pytest.fixture
def reference(weights):
    def expected(x):
        product = x.astype(np.float64) @ weights.astype(np.float64).T * 0.5
        assert np.abs(product).max() > 1  # an oracle of zeros proves nothing
        return product

    return expected


@pytest.fixture
def kernel(fakes, driver):
    return fakes.kernel(driver)


@pytest.fixture
def packed(kernel, weights, torch):
    return kernel.pack(weights).to(torch.device("cuda", 0))
