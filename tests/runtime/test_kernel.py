from __future__ import annotations

import sys

import numpy as np
import pytest

from ladder.errors import EmulationError, LaunchError, ShapeError
from ladder.runtime.driver import cuda_driver
from ladder.runtime.kernel import Kernel


def test_a_call_passes_every_argument_by_the_kernels_own_order(
    kernel, packed, x, torch, driver, reference
):
    tensor = torch.on(x)
    y = kernel(tensor, packed)
    (launch,) = driver.launches
    assert launch.values == {
        "y": y.data_ptr(),
        "x": tensor.data_ptr(),
        "m": 3,
        "weight": packed["weight"].data_ptr(),
        "scales": packed["scales"].data_ptr(),
        "x_stride_m": 16,
        "x_stride_k": 1,
    }
    assert launch.geometry == ((1, 2, 1), (128, 1, 1), 1024, None)
    assert (y.shape, str(y.dtype)) == ((3, 8), "torch.float32")
    np.testing.assert_allclose(y.array, reference(x), rtol=1e-2)


@pytest.mark.parametrize("m, blocks", [(1, 1), (16, 1), (17, 2), (160, 10)])
def test_the_grid_grows_with_the_rows(kernel, packed, torch, driver, fakes, m, blocks):
    kernel(torch.on(np.ones((m, fakes.K), np.float16)), packed)
    assert driver.launches[0].geometry[0] == (blocks, 2, 1)


@pytest.mark.parametrize("shape", [(3, 2, 16), (1, 3, 2, 16), (16,), (1, 1, 16)])
def test_leading_axes_are_rows(kernel, packed, torch, reference, shape):
    """C46: every element of the batch is computed."""
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float16)
    y = kernel(torch.on(x), packed)
    assert y.shape == (*shape[:-1], 8)
    np.testing.assert_allclose(y.array, reference(x), rtol=1e-2, atol=1e-2)


def test_rows_choose_the_kernel(fakes, driver, weights, torch):
    kernel = fakes.kernel(driver, [fakes.Plan(m_range=(0, 16)), fakes.Plan(m_range=(17, 64))])
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    for m in (1, 16, 17, 64):
        kernel(torch.on(np.ones((m, 16), np.float16)), packed)
    assert [launch.name for launch in driver.launches] == ["k0", "k0", "k1", "k1"]
    with pytest.raises(ShapeError, match="x has 65 rows, the kernels take 0 to 16, 17 to 64"):
        kernel(torch.on(np.ones((65, 16), np.float16)), packed)


def test_no_rows_give_an_empty_result_without_a_launch(kernel, packed, torch, driver):
    y = kernel(torch.on(np.ones((0, 16), np.float16)), packed)
    assert y.shape == (0, 8)
    assert kernel.bind(torch.on(np.ones((2, 0, 16), np.float16)), packed)().shape == (2, 0, 8)
    assert not driver.launches


def test_the_launch_follows_the_tensors_device_and_its_stream(fakes, weights, torch, x):
    """C75, C85: code, device and stream are those of the tensor."""
    driver = fakes.Driver(((8, 9), (9, 0)))
    torch.streams.update({0: 111, 1: 222})
    cubins = {"sm_89": fakes.cubin(b"ada"), "sm_90a": fakes.cubin(b"hopper")}
    kernel = fakes.kernel(driver, cubins=cubins)
    for index in (1, 0):
        kernel(torch.on(x, index), kernel.pack(weights).to(torch.device("cuda", index)))
    found = [(launch.device, launch.stream, launch.code) for launch in driver.launches]
    assert found == [(1, 222, b"hopper"), (0, 111, b"ada")]


def test_numpy_arrays_go_to_the_gpu_and_back(kernel, weights, x, driver, reference):
    packed = kernel.pack(weights)
    y = kernel(x, packed)
    np.testing.assert_allclose(y, reference(x), rtol=1e-2)
    out = np.zeros((3, 8), np.float32)
    assert kernel(x[::-1], packed, out=out) is out
    np.testing.assert_allclose(out, reference(x)[::-1], rtol=1e-2)
    assert packed.to("cuda", driver=driver) is packed.to("cuda:0", driver=driver)
    assert kernel(x[:0], packed).shape == (0, 8)
    assert len(driver.memory) == len(packed)  # only the weight stays
    with pytest.raises(LaunchError, match="out is float16"):
        kernel(x, packed, out=np.zeros((3, 8), np.float16))
    with pytest.raises(LaunchError, match="no device is called 'gpu'"):
        kernel(x, packed, device="gpu")


def test_numpy_without_a_gpu_names_what_is_missing_and_what_to_do(fakes, weights, x, monkeypatch):
    """C76: one error that says what is missing, what was tried and what to do."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    cuda_driver.cache_clear()
    kernel = fakes.kernel()
    with pytest.raises(LaunchError) as caught:
        kernel(x, kernel.pack(weights))
    text = str(caught.value)
    assert "the CUDA bindings for Python are missing" in text
    assert "plan.run(x, q)" in text
    assert "pip install 'ladder[cuda]'" in text
    assert text.count("\n") == 2


def test_a_bound_call_only_launches(kernel, packed, x, torch, driver, reference):
    tensor, out = torch.on(x), torch.on(np.zeros((3, 8), np.float32))
    step = kernel.bind(tensor, packed, out=out)
    assert not driver.launches
    assert step() is out
    np.testing.assert_allclose(out.array, reference(x), rtol=1e-2)
    tensor.array[...] = x * 2
    torch.streams[0] = 77
    step()
    np.testing.assert_allclose(out.array, reference(x * 2), rtol=1e-2)
    assert [launch.stream for launch in driver.launches] == [0, 77]
    assert len(driver.loads) == 1


def test_the_first_launch_after_packing_is_a_plain_one(fakes, driver, weights, torch, x):
    """Weights may still be on their way: only later launches may run ahead of what is before them."""
    kernel = fakes.kernel(driver, attributes=("pdl",))
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    step = kernel.bind(torch.on(x), packed)
    plain = kernel.bind(torch.on(x), packed, pdl=False)
    for call in (step, step, plain, lambda: kernel(torch.on(x), packed)):
        call()
    packed.fresh = True
    kernel(torch.on(x), packed)
    assert [launch.pdl for launch in driver.launches] == [False, True, False, True, False]


def test_a_bound_call_refuses_host_arrays(kernel, weights, x):
    with pytest.raises(LaunchError, match="x is on cpu"):
        kernel.bind(x, kernel.pack(weights))


def test_weights_come_back_from_wherever_they_are(kernel, packed, weights, driver):
    np.testing.assert_array_equal(kernel.unpack(packed), weights)
    np.testing.assert_array_equal(
        kernel.unpack(kernel.pack(weights).to("cuda", driver=driver)), weights
    )


def test_the_emulator_gets_the_kernels_arguments_flat(fakes, weights, monkeypatch, reference):
    import ladder.emulator

    kernel = fakes.kernel()
    (variant,) = kernel.variants
    listing = fakes.replace(variant.lowered, listing={"steps": []})
    kernel = type(kernel)([fakes.replace(variant, lowered=listing)], kernel.plan, kernel.packing)
    big = np.random.default_rng(3).standard_normal((3, 21)).astype(np.float16)
    seen = {}

    def run(listing, arguments, grid, block, *, cluster):
        seen.update(arguments, grid=grid, block=block, cluster=cluster)
        x = np.lib.stride_tricks.as_strided(arguments["x_ptr"], (3, 16), (42, 2))
        product = x.astype(np.float64) @ arguments["w_ptr"].reshape(8, 16).T.astype(np.float64)
        assert np.isnan(arguments["y_ptr"]).all()
        arguments["y_ptr"][:] = (product * 0.5).reshape(-1)

    monkeypatch.setattr(ladder.emulator, "run", run, raising=False)
    y = kernel(big[:, :16], kernel.pack(weights), device="emulator")
    np.testing.assert_allclose(y, reference(big[:, :16]), rtol=1e-6)
    assert list(seen)[:7] == [p.name for p in fakes.PARAMETERS]
    assert seen["cluster"] == (1, 1, 1)
    assert (seen["m"], seen["sm"], seen["sk"], seen["grid"]) == (3, 21, 1, (1, 2, 1))
    assert seen["x_ptr"].shape == (2 * 21 + 16,)


def test_the_emulator_says_what_it_lacks(fakes, weights, x, torch, monkeypatch):
    import ladder.emulator

    kernel = fakes.kernel()
    with pytest.raises(EmulationError, match="holds no instruction listing"):
        kernel(x, kernel.pack(weights), device="emulator")
    with pytest.raises(EmulationError, match="the emulator takes NumPy arrays"):
        kernel(torch.on(x), kernel.pack(weights), device="emulator")
    monkeypatch.delattr(ladder.emulator, "run", raising=False)
    (variant,) = kernel.variants
    listing = fakes.replace(variant.lowered, listing={"steps": []})
    kernel = type(kernel)([fakes.replace(variant, lowered=listing)], kernel.plan, kernel.packing)
    with pytest.raises(EmulationError, match="no emulator"):
        kernel(x, kernel.pack(weights), device="emulator")


def test_threads_do_not_share_a_prepared_launch(kernel, packed, x, torch):
    from concurrent.futures import ThreadPoolExecutor

    kernel(torch.on(x), packed)
    mine = kernel.launcher.prepared(0, 0, 3)
    assert kernel.launcher.prepared(0, 0, 3) is mine
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(kernel.launcher.prepared, 0, 0, 3).result() is not mine


def test_a_repeated_call_is_remembered_by_where_its_arrays_lie(
    kernel, packed, x, torch, driver, reference, monkeypatch
):
    import ladder.runtime.kernel as module

    checked = []
    real = module.check_call
    monkeypatch.setattr(module, "check_call", lambda *a: checked.append(1) or real(*a))
    tensor, out = torch.on(x), torch.on(np.zeros((3, 8), np.float32))
    for factor in (1, 2):
        tensor.array[...] = x * factor
        kernel(tensor, packed, out=out)
        np.testing.assert_allclose(out.array, reference(x * factor), rtol=1e-2)
    assert len(checked) == 1
    kernel(tensor[:2], packed, out=out[:2])  # the same addresses, another shape
    kernel(torch.on(x), packed, out=out)
    assert len(checked) == 3
    with pytest.raises(ShapeError):
        kernel(tensor, packed, out=out[:2])


def test_a_remembered_call_keeps_nothing_alive(kernel, weights, x, torch):
    import gc
    import weakref

    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    tensor = torch.on(x)
    kernel(tensor, packed)
    kept = weakref.ref(packed), weakref.ref(tensor)
    del packed, tensor
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_arrays_are_packed_and_unpacked_where_they_lie():
    """The real packing, with arrays of a library that is not asked to be NumPy."""
    from ladder.graph.matmul import matmul
    from ladder.registry import types
    from ladder.runtime.packed import Packed
    from ladder.scheduler.choose import choose_packing
    from ladder.ttype import quantize

    weight = types["int4"].grouped(32, scale="float16", zero="integer")
    op = matmul(1, 32, 64, activation="float16", weight=weight)
    packing = choose_packing(op, frozenset())
    q = quantize(np.random.default_rng(0).standard_normal((32, 64)), weight)
    kernel = object.__new__(Kernel)
    kernel.packing = packing
    packed = kernel.pack_arrays(q.codes, scales=q.scales, zeros=q.zeros)
    assert packed == Packed(packing, packing.pack(q)) == kernel.pack(q)
    parts = kernel.unpack_arrays(packed)
    np.testing.assert_array_equal(parts["codes"], q.codes)
    np.testing.assert_array_equal(parts["zeros"], q.zeros)
    assert kernel.unpack(packed) == q
