"""What a kernel is called with: arrays that lie anyhow, and what is refused before a launch."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import LaunchError, PackingError, ShapeError
from ladder.runtime.kernel import Kernel


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
    with pytest.raises(LaunchError, match="out and x share memory"):
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
    from ladder.runtime.variant import Variant

    (variant,) = kernel.variants
    lowered = fakes.lowered(parameters=parameters)
    changed = Variant(variant.plan, lowered, variant.cubins)
    return Kernel([changed], kernel.plan, kernel.packing, driver=driver)


def test_a_kernel_with_an_argument_that_no_call_gives_is_refused(fakes):
    from ladder.codegen.kernel import Parameter

    parameters = (*fakes.PARAMETERS, Parameter("z", "buffer", "float16", "zeros"))
    with pytest.raises(LaunchError, match="zeros"):
        _with_parameters(fakes, fakes.kernel(), parameters, None)
