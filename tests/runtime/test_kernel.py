from __future__ import annotations

import sys

import numpy as np
import pytest

from ladder.errors import EmulationError, LaunchError, PackingError, ShapeError
from ladder.runtime.driver import cuda_driver
from ladder.runtime.kernel import Kernel


@pytest.fixture
def kernel(fakes, driver):
    return fakes.kernel(driver)


@pytest.fixture
def packed(kernel, weights, torch):
    return kernel.pack(weights).to(torch.device("cuda", 0))


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


def _padded(x, torch):
    big = torch.on(np.concatenate([x, np.full((3, 5), 99, np.float16)], axis=1))
    return big[:, :16]


STRIDED = {
    "row stride": _padded,
    "transposed": lambda x, torch: _transposed(torch.on(np.ascontiguousarray(x.T))),
    "stepped rows": lambda x, torch: torch.on(np.repeat(x, 2, axis=0))[::2],
    "stride 0": lambda x, torch: _expanded(torch.on(x[:1])),
}


def _transposed(tensor):
    return type(tensor)(tensor.array.T, tensor.device)


def _expanded(tensor):
    return type(tensor)(np.broadcast_to(tensor.array, (3, 16)), tensor.device)


@pytest.mark.parametrize("pattern", STRIDED)
def test_strides_are_read_as_they_are(kernel, packed, x, torch, driver, reference, pattern):
    """C47: the same as a contiguous copy gives, without the copy where the kernel takes strides."""
    tensor = STRIDED[pattern](x, torch)
    y = kernel(tensor, packed)
    np.testing.assert_allclose(y.array, reference(tensor.array), rtol=1e-2, atol=1e-2)
    assert driver.launches[0].values["x"] == tensor.data_ptr()


@pytest.mark.parametrize(
    "pattern, reason",
    [
        ("row stride", "row stride 21, no multiple of 8"),
        ("transposed", "inner stride 3, not 1"),
    ],
)
def test_a_vector_kernel_gets_a_copy_and_says_so(
    fakes, driver, weights, torch, x, reference, pattern, reason
):
    """C47: where the kernel cannot read the strides, one announced copy."""
    kernel = fakes.kernel(driver, [fakes.Plan(access="vector")])
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    tensor = STRIDED[pattern](x, torch)
    with pytest.warns(RuntimeWarning, match=f"x is copied at every call: it has {reason}"):
        y = kernel(tensor, packed)
    np.testing.assert_allclose(y.array, reference(tensor.array), rtol=1e-2, atol=1e-2)
    with pytest.raises(LaunchError, match="x would be copied"), pytest.warns(RuntimeWarning):
        kernel.bind(tensor, packed)


def test_a_vector_kernel_refuses_a_misaligned_address(fakes, driver, weights, torch, reference):
    """C48: two bytes off; copied to aligned storage."""
    kernel = fakes.kernel(driver, [fakes.Plan(access="vector")])
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    flat = torch.on(np.linspace(-1, 1, 33).astype(np.float16))[1:]
    tensor = type(flat)(flat.array.reshape(2, 16), flat.device)
    with pytest.warns(RuntimeWarning, match="no multiple of 16 bytes"):
        y = kernel(tensor, packed)
    np.testing.assert_allclose(y.array, reference(tensor.array), rtol=1e-2, atol=1e-2)
    assert driver.launches[0].values["x"] % 16 == 0


def test_a_kernel_that_reads_the_strides_is_preferred_to_a_copy(fakes, driver, weights, torch, x):
    kernel = fakes.kernel(driver, [fakes.Plan(access="vector"), fakes.Plan(access="scalar")])
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    kernel(torch.on(x), packed)
    kernel(_padded(x, torch), packed)
    assert [launch.name for launch in driver.launches] == ["k0", "k1"]


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


def test_tensors_on_two_devices_are_named(kernel, packed, weights, torch, x, fakes):
    """C85: the error names the tensor and both devices."""
    with pytest.raises(LaunchError, match="weight is on cuda:0, x on cuda:1"):
        kernel(torch.on(x, 1), packed)
    with pytest.raises(LaunchError, match="weight is on cpu, x on cuda:0"):
        kernel(torch.on(x), kernel.pack(weights))
    with pytest.raises(LaunchError, match="weight is on cuda:0, x on cpu"):
        kernel(torch.on(x).cpu(), packed)
    with pytest.raises(LaunchError, match="out is on cuda:1, x on cuda:0"):
        kernel(torch.on(x), packed, out=torch.on(np.zeros((3, 8), np.float32), 1))
    with pytest.raises(LaunchError, match="x is on cpu, the kernel runs on a GPU"):
        kernel(torch.on(x).cpu(), kernel.pack(weights))
    with pytest.raises(LaunchError, match="x is on cuda:0, device='cuda:1' was asked for"):
        kernel(torch.on(x), packed, device="cuda:1")


def test_shapes_and_types_are_refused_with_both_values(kernel, packed, torch, x, fakes):
    with pytest.raises(ShapeError, match=r"x is \[3, 15\], the operator takes \[..., 16\]"):
        kernel(torch.on(x[:, :15]), packed)
    with pytest.raises(LaunchError, match="x is float32, the kernel takes float16"):
        kernel(torch.on(x.astype(np.float32)), packed)
    with pytest.raises(LaunchError, match="out is float16, the kernel takes float32"):
        kernel(torch.on(x), packed, out=torch.on(np.zeros((3, 8), np.float16)))
    with pytest.raises(ShapeError, match=r"out is \[3, 7\], the result \[3, 8\]"):
        kernel(torch.on(x), packed, out=torch.on(np.zeros((3, 7), np.float32)))
    with pytest.raises(LaunchError, match="out has strides"):
        kernel(torch.on(x), packed, out=torch.on(np.zeros((3, 16), np.float32))[:, ::2])
    with pytest.raises(LaunchError, match="a bias was given, the operator has none"):
        kernel(torch.on(x), packed, bias=torch.on(np.zeros(8, np.float32)))
    with pytest.raises(LaunchError, match="the weight is a dict"):
        kernel(torch.on(x), {"weight": 1})
    with pytest.raises(LaunchError, match=r"builtins\.list is no array"):
        kernel([1.0], packed)


def test_a_weight_of_another_packing_is_refused(kernel, fakes, torch, x, weights):
    other = fakes.kernel(packing=fakes.Packing(version=2))
    packed = other.pack(weights).to(torch.device("cuda", 0))
    with pytest.raises(PackingError, match="the weight was packed as"):
        kernel(torch.on(x), packed)


def test_out_must_not_overlap_x(kernel, packed, torch, x):
    memory = torch.on(np.zeros(3 * 16 * 2, np.float16))
    x_part = type(memory)(memory.array[: 3 * 16].reshape(3, 16), memory.device)
    out = type(memory)(memory.array[:48].view(np.float32).reshape(3, 8), memory.device)
    with pytest.raises(LaunchError, match="out overlaps x"):
        kernel(x_part, packed, out=out)


def test_bias_is_checked_and_passed(fakes, driver, weights, torch, x):
    from ladder.codegen.kernel import Parameter

    parameters = (*fakes.PARAMETERS, Parameter("b", "buffer", "float32", "bias"))
    driver.parameters = parameters
    kernel = fakes.kernel(driver, [fakes.Plan(bias=True)])
    kernel = _with_parameters(fakes, kernel, parameters, driver)
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    bias = torch.on(np.ones(8, np.float32))
    kernel(torch.on(x), packed, bias=bias)
    assert driver.launches[0].values["bias"] == bias.data_ptr()
    with pytest.raises(LaunchError, match="the operator adds a bias, none was given"):
        kernel(torch.on(x), packed)
    with pytest.raises(ShapeError, match=r"bias is \[7\], the operator takes \[8\]"):
        kernel(torch.on(x), packed, bias=torch.on(np.ones(7, np.float32)))
    with pytest.raises(LaunchError, match="bias is on cuda:1, x on cuda:0"):
        kernel(torch.on(x), packed, bias=torch.on(np.ones(8, np.float32), 1))
    with pytest.raises(LaunchError, match="bias has stride 2"):
        kernel(torch.on(x), packed, bias=torch.on(np.ones(16, np.float32))[::2])


def test_row_scales_are_checked_and_passed(fakes, driver, weights, torch, x):
    from ladder.codegen.kernel import Parameter

    parameters = (*fakes.PARAMETERS, Parameter("r", "buffer", "float32", "x_scale"))
    driver.parameters = parameters
    kernel = fakes.kernel(driver, [fakes.Plan(activation_scale=True)])
    kernel = _with_parameters(fakes, kernel, parameters, driver)
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    rows = len(x)
    scales = torch.on(np.ones(rows, np.float32))
    kernel(torch.on(x), packed, scales)
    assert driver.launches[0].values["x_scale"] == scales.data_ptr()
    with pytest.raises(LaunchError, match="the operator scales rows of x, no x_scale was given"):
        kernel(torch.on(x), packed)
    with pytest.raises(ShapeError, match=rf"x_scale is \[{rows + 1}\], x has rows \[{rows}\]"):
        kernel(torch.on(x), packed, torch.on(np.ones(rows + 1, np.float32)))
    with pytest.raises(LaunchError, match="x_scale is float16, the kernel takes float32"):
        kernel(torch.on(x), packed, torch.on(np.ones(rows, np.float16)))
    with pytest.raises(LaunchError, match="x_scale is on cuda:1, x on cuda:0"):
        kernel(torch.on(x), packed, torch.on(np.ones(rows, np.float32), 1))
    with pytest.raises(LaunchError, match="x_scale has strides"):
        kernel(torch.on(x), packed, torch.on(np.ones(2 * rows, np.float32))[::2])


def test_row_scales_that_nobody_asked_for_are_refused(fakes, driver, weights, torch, x):
    kernel = fakes.kernel(driver)
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    with pytest.raises(LaunchError, match="an x_scale was given, the operator has none"):
        kernel(torch.on(x), packed, torch.on(np.ones(len(x), np.float32)))


def _with_parameters(fakes, kernel, parameters, driver):
    from ladder.runtime.arguments import Variant
    from ladder.runtime.kernel import Kernel

    (variant,) = kernel.variants
    lowered = fakes.lowered(parameters=parameters)
    changed = Variant(variant.plan, lowered, variant.cubins)
    return Kernel([changed], kernel.plan, kernel.packing, driver=driver)


def test_a_kernel_with_an_argument_that_no_call_gives_is_refused(fakes):
    from ladder.codegen.kernel import Parameter

    parameters = (*fakes.PARAMETERS, Parameter("z", "buffer", "float16", "zeros"))
    with pytest.raises(LaunchError, match="zeros"):
        _with_parameters(fakes, fakes.kernel(), parameters, None)


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
