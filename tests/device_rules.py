"""What every device must do, as tests over a fixture ``device``.

`tests/kernels/test_host_device.py` runs them on the host device and
`tests/gpu/test_device_cuda.py` on a GPU: a rule of CUDA's that the host device does not enforce
would let a program through in CI that fails on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from onegraph.kernels.catalogue import KernelArgumentError
from onegraph.kernels.common.layout import (
    COUNTERS,
    SCHEDULE_PARAMS,
    SCHEDULES,
    Counter,
    LoopEnding,
    LoopOrder,
    LoopReport,
)
from onegraph.kernels.device import (
    Device,
    DeviceArray,
    DeviceError,
    HostDevice,
    ModuleMixError,
)
from onegraph.kernels.device.base import Matmul, Product, Stream

UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
INVALIDATED = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS"
INVALID_VALUE = "CUDA_ERROR_INVALID_VALUE"
INVALID_HANDLE = "CUDA_ERROR_INVALID_HANDLE"
ILLEGAL_STATE = "CUDA_ERROR_ILLEGAL_STATE"
UNJOINED = "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
DESTROYED = "CUDA_ERROR_CONTEXT_IS_DESTROYED"
NOT_SUPPORTED = "CUDA_ERROR_NOT_SUPPORTED"

#: Two branches without a matrix product, as `reserve_branches` takes them.
TWO: list[list[Matmul]] = [[], []]


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def relu(device: Device, array: DeviceArray, module: str = "shared", blocks: int = 64) -> None:
    """``array = max(array, 0)`` by the smallest kernel of the catalogue."""
    device.run(
        "relu_epilogue",
        extra=array,
        out=array,
        n=array.size,
        grad=0,
        module=module,
        max_blocks=blocks,
    )


def values(array: DeviceArray) -> list[float]:
    return array.to_host_checkpoint().ravel().tolist()


@contextlib.contextmanager
def refused(name: str, op: str = ""):
    with pytest.raises(DeviceError, match=op or None) as caught:
        yield caught
    assert caught.value.name == name


# -------------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "u32", "u64", "u8"])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 7)])
def test_upload_and_read_back(device, dtype, shape):
    array = device.allocate(shape, dtype, "x")
    want = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(array.dtype)
    device.copy_htod(array, want)
    got = array.to_host_checkpoint()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    device.free(array)


def test_source_of_an_upload_may_be_overwritten_at_once(device):
    array, source = device.allocate((1000,), "f32"), np.arange(1000, dtype=np.float32)
    device.copy_htod(array, source)
    source[:] = -1
    assert values(array) == list(range(1000))


def test_pinned_source_of_an_upload_may_be_overwritten_at_once(device):
    pinned = device.allocate((1 << 20,), "f32", "pinned", pinned=True)
    pinned.host[:] = 7
    array = device.allocate((1 << 20,), "f32")
    device.copy_htod(array, pinned.host)
    pinned.host[:] = -1
    assert set(values(array)) == {7.0}


def test_copy_and_memset_on_the_device(device):
    a, b = device.upload(f32(1, 2, 3)), device.upload(f32(4, 5, 6))
    device.copy_dtod(a, b)
    device.memset(b)
    assert (values(a), values(b)) == ([4, 5, 6], [0, 0, 0])
    device.memset_sync(a)
    assert values(a) == [0, 0, 0]


def test_view_shares_memory(device):
    base = device.upload(np.arange(12, dtype=np.float32), "base")
    view = base.view(4, (2, 3))
    assert view.to_host_checkpoint().tolist() == [[4, 5, 6], [7, 8, 9]]
    device.memset(view.view(1, (2,)))
    assert values(base) == [0, 1, 2, 3, 4, 0, 0, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(("offset", "shape"), [(-1, (2,)), (0, (13,)), (12, (1,)), (6, (2, 4))])
def test_view_outside_its_base(device, offset, shape):
    base = device.allocate((12,), "f32", "base")
    with pytest.raises(ValueError, match=r"'base'.*do not lie in its 12"):
        base.view(offset, shape)


def test_more_memory_than_there_is(device):
    count = device.memory_free() // 2
    with refused("CUDA_ERROR_OUT_OF_MEMORY", "allocate huge") as caught:
        device.allocate((count,), "f32", "huge")
    assert f"{count * 4:,} bytes" in str(caught.value)
    assert values(device.upload(f32(1))) == [1]  # and the device goes on


def test_freed_twice_and_freed_view(device):
    array = device.allocate((4,), "f32", "x")
    with refused(INVALID_VALUE, "free x.*view"):
        device.free(array.view(0, (2,)))
    device.free(array)
    with refused(INVALID_VALUE, "free x.*already"):
        device.free(array)


@pytest.mark.parametrize(
    "use",
    [
        lambda d, x, y: d.copy_dtod(y, x),
        lambda d, x, y: d.copy_dtod(x, y),
        lambda d, x, _: d.memset(x),
        lambda d, x, _: d.memset(x.view(0, (2,))),
        lambda d, x, _: d.copy_htod(x, f32(1, 2)),
        lambda d, x, _: x.to_host_checkpoint(),
        lambda d, x, _: relu(d, x),
        lambda d, x, y: d.matmul(Matmul(1, 2, 1), y.view(0, (1,)), x, y),
    ],
)
def test_use_after_free(device, use):
    x, y = device.allocate((2,), "f32", "x"), device.upload(f32(1, 2), "y")
    device.free(x)
    with refused(ILLEGAL_ADDRESS, "'x' was freed"):
        use(device, x, y)


def test_prepared_launch_of_a_freed_array(device):
    x = device.upload(f32(1, 2), "x")
    launch = device.prepare("relu_epilogue", {"extra": x, "out": x, "n": 2, "grad": 0})
    device.free(x)
    with refused(ILLEGAL_ADDRESS, "launch relu_epilogue.*'x' was freed"):
        device.launch(launch)


def test_array_of_another_device(device):
    with refused(INVALID_VALUE, "another device"):
        device.memset(HostDevice().allocate((1,), "f32", "stranger"))


@pytest.mark.parametrize(
    "source", [np.zeros(3, np.float32), np.zeros(2, np.float64), np.zeros((2, 2), np.float32)]
)
def test_copies_that_do_not_fit(device, source):
    x = device.upload(f32(1, 2), "x")
    with refused(INVALID_VALUE, "copy_htod x"):
        device.copy_htod(x, source)
    with refused(INVALID_VALUE, "copy_dtoh x"):
        device.copy_dtoh(source, x)


def test_copy_to_a_strided_destination(device):
    x = device.upload(f32(1, 2), "x")
    with refused(INVALID_VALUE, "contiguous"):
        device.copy_dtoh(np.zeros(4, np.float32)[::2], x)


def test_copy_between_sizes(device):
    with refused(INVALID_VALUE, "a <- b"):
        device.copy_dtod(device.allocate((2,), "f32", "a"), device.allocate((3,), "f32", "b"))


def test_deprecated_read_backs(device):
    x = device.upload(f32(1, 2).reshape(2, 1))
    with pytest.warns(DeprecationWarning, match="to_host_checkpoint"):
        assert x.to_host().tolist() == [[1], [2]]
    with pytest.warns(DeprecationWarning, match="to_host_checkpoint"):
        assert x.to_vec() == [1, 2]


def test_pinned_memory_shows_what_a_kernel_writes(device):
    pinned = device.allocate((3,), "f32", "record", pinned=True)
    pinned.host[:] = (-1, 2, -3)
    relu(device, pinned)
    device.synchronize()
    assert pinned.host.tolist() == [0, 2, 0]
    assert pinned.view(1, (1,)).host.tolist() == [2]
    device.free(pinned)


def test_empty_arrays(device):
    for pinned in (False, True):
        x = device.allocate((0, 3), "f64", "empty", pinned=pinned)
        device.memset(x)
        device.copy_dtod(x, x.view(0, (0,)))
        assert x.to_host_checkpoint().shape == (0, 3)
        device.free(x)
    assert device.allocate((0,), "f32", pinned=True).host.shape == (0,)


# -------------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 3}, "extra takes a device array, got 3"),
        ({"out": "i32"}, "out takes f32"),
        ({"n": None}, "'n' is missing"),
        ({"n": 1.5}, r"n takes a i64, got 1\.5"),
        ({"grad": 1 << 31}, "grad = 2147483648 exceeds i32"),
        ({"m": 1}, "no parameter 'm'; it takes extra, out, n, grad"),
    ],
)
def test_argument_errors_name_the_parameter(device, change, message):
    x = device.allocate((2,), "f32", "x")
    args = {"extra": x, "out": x, "n": 2, "grad": 0}
    for name, value in change.items():
        if value is None:
            del args[name]
        else:
            args[name] = device.allocate((2,), value) if isinstance(value, str) else value
    with pytest.raises(KernelArgumentError, match=f"kernel relu_epilogue.*{message}"):
        device.run("relu_epilogue", **args)


def test_unknown_kernel(device):
    with pytest.raises(KeyError, match="no kernel 'nonsense'"):
        device.run("nonsense")


@pytest.mark.parametrize("blocks", [1, 2, 4096])
@pytest.mark.parametrize("n", [0, 1, 255, 257, 5000])
def test_any_number_of_blocks(device, n, blocks):
    want = np.arange(n, dtype=np.float32) - n // 2
    x = device.upload(want)
    relu(device, x, blocks=blocks)
    np.testing.assert_array_equal(x.to_host_checkpoint(), np.maximum(want, 0))


def test_relu_keeps_nan(device):
    x = device.upload(f32(np.nan, -np.inf, np.inf, -0.5))
    relu(device, x)
    np.testing.assert_array_equal(x.to_host_checkpoint(), f32(np.nan, 0, np.inf, 0))


A, B = f32(1, 2, 3, 4), f32(5, 6, 7, 8)


@pytest.mark.parametrize(
    ("trans_a", "trans_b", "want"),
    [
        (False, False, [19, 22, 43, 50]),
        (True, False, [26, 30, 38, 44]),
        (False, True, [17, 23, 39, 53]),
        (True, True, [23, 31, 34, 46]),
    ],
)
def test_matmul_transposed(device, trans_a, trans_b, want):
    out = device.allocate((2, 2), "f32")
    device.matmul(Matmul(2, 2, 2, trans_a, trans_b), device.upload(A), device.upload(B), out)
    assert values(out) == want


@pytest.mark.parametrize(
    ("epilogue", "extra", "want"),
    [
        ("none", None, [19, 22, 43, 50]),
        ("bias", f32(-20, 100), [-1, 122, 23, 150]),
        ("bias_relu", f32(-20, 100), [0, 122, 23, 150]),
        ("relu_grad", f32(0, 1, -1, 2), [0, 22, 0, 50]),
        ("relu_grad", f32(np.nan, np.inf, -0.0, 1e-30), [0, 22, 0, 50]),
    ],
)
def test_matmul_epilogues(device, epilogue, extra, want):
    out = device.allocate((2, 2), "f32")
    other = None if extra is None else device.upload(extra)
    spec = Matmul(2, 2, 2, epilogue=epilogue)
    device.matmul(spec, device.upload(A), device.upload(B), out, other)
    assert values(out) == want


def test_matmul_writes_the_bias_gradient(device):
    out, sums = device.allocate((2, 2), "f32"), device.allocate((2,), "f32")
    spec = Matmul(2, 2, 2, trans_a=True, epilogue="bias_grad")
    device.matmul(spec, device.upload(A), device.upload(B), out, sums)
    assert values(out) == [26, 30, 38, 44]
    assert values(sums) == [12, 14]


def test_bias_gradient_of_a_transposed_matrix_is_refused(device):
    x, sums = device.allocate((4,), "f32", "x"), device.allocate((2,), "f32")
    with refused(INVALID_VALUE, "matmul x.*bias_grad"):
        device.matmul(Matmul(2, 2, 2, trans_b=True, epilogue="bias_grad"), x, x, x, sums)


def test_matmul_lets_nan_through_the_relu(device):
    out = device.allocate((1, 2), "f32")
    a, b = device.upload(f32(1)), device.upload(f32(np.nan, -1))
    bias = device.upload(f32(0, 0))
    device.matmul(Matmul(1, 2, 1, epilogue="bias_relu"), a, b, out, bias)
    np.testing.assert_array_equal(out.to_host_checkpoint(), [[np.nan, 0]])


def test_a_group_of_matmuls_is_one_call_and_gives_what_each_gives(device):
    a, b, bias = device.upload(A), device.upload(B), device.upload(f32(-20, 100))
    outs = [device.allocate((2, 2), "f32", f"out{i}") for i in range(3)]
    sums = device.allocate((2,), "f32", "sums")
    before = device.ledger._current.get(("", "matmul"), 0)
    device.matmul_group(
        [
            Product(Matmul(2, 2, 2, epilogue="bias_relu"), a, b, outs[0], bias),
            Product(Matmul(2, 2, 2, trans_a=True, epilogue="bias_grad"), a, b, outs[1], sums),
            Product(Matmul(1, 4, 1), a.view(3, (1,)), b, outs[2]),
        ]
    )
    assert device.ledger._current["", "matmul"] == before + 1
    assert [values(out) for out in outs] == [[0, 122, 23, 150], [26, 30, 38, 44], [20, 24, 28, 32]]
    assert values(sums) == [12, 14]


def test_a_group_in_a_graph_is_one_node(device):
    a, b = device.upload(A), device.upload(B)
    outs = [device.allocate((2, 2), "f32", "out") for _ in range(2)]
    group = [Product(Matmul(2, 2, 2), a, b, out) for out in outs]
    with device.warm_up():
        device.matmul_group(group, module="graphed")
    for out in outs:
        device.memset(out)
    with device.capture("g") as graph:
        device.matmul_group(group, module="graphed")
    assert graph.node_count() == 1
    device.graph_launch(device.instantiate(graph))
    assert [values(out) for out in outs] == [[19, 22, 43, 50]] * 2


def test_rows_that_follow_one_another_are_one_product_of_a_group(device):
    """A launch takes four products: with six parts of one of them, nine are four."""
    x, w = device.upload(f32(*range(12))), device.upload(f32(1, -1, 0, 2))
    bias, out = device.upload(f32(10, 20)), device.allocate((6, 2), "f32", "out")
    others = [device.allocate((1, 2), "f32", f"other{i}") for i in range(4)]
    parts = [
        Product(
            Matmul(1, 2, 2, epilogue="bias"), x.view(2 * i, (2,)), w, out.view(2 * i, (2,)), bias
        )
        for i in range(6)
    ]
    rest = [Product(Matmul(1, 2, 2), x.view(0, (2,)), w, other) for other in others]
    device.matmul_group([*parts, *rest[:3]])
    assert values(out) == [10, 22, 12, 24, 14, 26, 16, 28, 18, 30, 20, 32]
    assert [values(other) for other in others[:3]] == [[0, 2]] * 3
    with refused(INVALID_VALUE, "2 to 4 products, got 5"):
        device.matmul_group([*parts, *rest])


def test_what_no_group_can_be(device):
    x, y = device.allocate((1,), "f32", "x"), device.allocate((1,), "f32", "y")
    one = Product(Matmul(1, 1, 1), x, x, y)
    for members in ([one], [one] * 5):
        with refused(INVALID_VALUE, f"2 to 4 products, got {len(members)}"):
            device.matmul_group(members)
    with refused(INVALID_VALUE, "matmul y, y: .*needs float32"):
        device.matmul_group([one, Product(Matmul(1, 2, 1), x, x, y)])
    with pytest.raises(ModuleMixError, match="matmul"):
        device.matmul_group([one, Product(Matmul(1, 1, 1), x, x, x)], module="graphed")


def test_matmul_over_nothing_is_its_epilogue(device):
    out, empty = device.allocate((1, 2), "f32"), device.allocate((0,), "f32")
    device.matmul(Matmul(1, 2, 0, epilogue="bias"), empty, empty, out, device.upload(f32(3, 4)))
    assert values(out) == [3, 4]


def test_matmul_operands_of_the_wrong_size(device):
    x = device.allocate((4,), "f32", "x")
    with refused(INVALID_VALUE, "matmul x"):
        device.matmul(Matmul(2, 3, 2), x, x, x)
    with refused(INVALID_VALUE, "matmul x"):
        device.matmul(Matmul(2, 2, 2, epilogue="bias"), x, x, x)


# -------------------------------------------------------------------- groups of launches


def relu_of(array: DeviceArray) -> dict[str, DeviceArray | int]:
    """The arguments of `relu`."""
    return {"extra": array, "out": array, "n": array.size, "grad": 0}


def test_a_group_of_launches_is_one_call_and_does_what_each_does(device):
    x = [device.upload(f32(*range(-i, 3))) for i in range(3)]
    group = device.prepare_group("relu_epilogue", [relu_of(a) for a in x])
    before = device.ledger._current.get(("", "launch"), 0)
    device.launch_group(group)
    assert device.ledger._current["", "launch"] == before + 1
    assert [values(a) for a in x] == [[0, 1, 2], [0, 0, 1, 2], [0, 0, 0, 1, 2]]
    assert device.launch_sites["relu_epilogue_group_3", "shared"] == {"eager"}
    device.copy_htod(x[0], f32(-5, 5, -5))
    device.launch_group(group)  # any number of times
    assert values(x[0]) == [0, 5, 0]


def test_members_may_read_the_same_and_write_parts_of_one_array(device):
    a, scale = device.upload(f32(1, 2)), device.upload(f32(10))
    out = device.allocate((5,), "f32", "out")
    device.memset(out)
    parts = [out.view(0, (2,)), out.view(2, (2,))]
    members = [
        {"a": a, "b": a, "scale": scale, "out": part, "n": 2, "scaled": scaled}
        for part, scaled in zip(parts, (0, 1), strict=True)
    ]
    device.launch_group(device.prepare_group("scaled_add", members))
    assert values(out) == [2, 4, 11, 22, 0]


def test_a_group_of_launches_in_a_graph_is_one_node(device):
    x = [device.upload(f32(-1, 1)) for _ in range(2)]
    group = device.prepare_group("relu_epilogue", [relu_of(a) for a in x], module="graphed")
    with device.warm_up():
        device.launch_group(group)
    with device.capture("g") as graph:
        device.launch_group(group)
    assert graph.node_count() == 1
    for a in x:
        device.copy_htod(a, f32(-2, 2))
    device.graph_launch(device.instantiate(graph))
    assert [values(a) for a in x] == [[0, 2]] * 2
    with refused(ILLEGAL_ADDRESS, "graph 'g' still uses"):
        device.free(x[1])


def test_a_group_of_launches_obeys_modules_and_lifetimes(device):
    x = [device.upload(f32(-1)) for _ in range(2)]
    members = [relu_of(a) for a in x]
    with pytest.raises(ModuleMixError, match=r"launch relu_epilogue_group_2.*graphed.*eager"):
        device.launch_group(device.prepare_group("relu_epilogue", members, module="graphed"))
    group = device.prepare_group("relu_epilogue", members, module="ungraphed")
    with pytest.raises(ModuleMixError, match=r"ungraphed.*captured"), device.capture("g"):
        device.launch_group(group)
    device.free(x[1])
    with refused(ILLEGAL_ADDRESS, "launch relu_epilogue_group_2.*was freed"):
        device.launch_group(group)


def test_a_group_of_launches_is_loaded_before_a_capture(device):
    members = [relu_of(device.upload(f32(-1))) for _ in range(2)]
    device.prepare("relu_epilogue", members[0], module="graphed")  # another kernel
    with refused(UNSUPPORTED, "load relu_epilogue_group_2"), device.capture("g"):
        device.prepare_group("relu_epilogue", members, module="graphed")


def test_what_no_group_of_launches_can_be(device):
    x, y = device.upload(f32(1, 2)), device.upload(f32(3, 4))
    for count in (0, 1, 9):
        with refused(INVALID_VALUE, f"2 to 8 members, got {count}"):
            device.prepare_group("relu_epilogue", [relu_of(x)] * count)
    with pytest.raises(KernelArgumentError, match="relu_epilogue: argument 'n' is missing"):
        device.prepare_group("relu_epilogue", [relu_of(x), {"extra": y, "out": y, "grad": 0}])
    with refused(NOT_SUPPORTED, "may fuse its multiplies and adds differently.*one by one"):
        device.prepare_group("gemm", [{}, {}])


def test_members_that_depend_on_each_other_are_refused(device):
    x, y = device.upload(f32(1, 2, 3, 4)), device.upload(f32(3, 4))
    low, middle, high = (x.view(at, (2,)) for at in range(3))
    reads = {"extra": low, "out": y, "n": 2, "grad": 1}
    for one, other in ((relu_of(low), relu_of(middle)), (relu_of(middle), reads)):
        for members in ([one, other], [other, one]):
            with refused(INVALID_VALUE, "writes 'array' by .*which another touches too"):
                device.prepare_group("relu_epilogue", members)
    device.launch_group(device.prepare_group("relu_epilogue", [relu_of(high), reads]))
    assert values(y) == [3, 4]


# -------------------------------------------------------------------- modules


def test_graphed_module_launched_outside_a_graph(device):
    x = device.upload(f32(-1))
    with pytest.raises(ModuleMixError, match=r"launch relu_epilogue.*graphed.*eager") as caught:
        relu(device, x, "graphed")
    assert caught.value.name == "CUDA_ERROR_NOT_PERMITTED"
    assert values(x) == [-1]


def test_ungraphed_module_launched_in_a_capture(device):
    x = device.upload(f32(-1))
    relu(device, x, "ungraphed")
    with (
        pytest.raises(ModuleMixError, match=r"ungraphed.*captured"),
        device.capture("g"),
    ):
        relu(device, x, "ungraphed")


def test_matmul_obeys_the_modules_too(device):
    x = device.upload(f32(2))
    with pytest.raises(ModuleMixError, match="matmul"):
        device.matmul(Matmul(1, 1, 1), x, x, device.allocate((1,), "f32"), module="graphed")


def test_warm_up_may_launch_the_graphed_module(device):
    x = device.upload(f32(-1, 2))
    with device.warm_up():
        relu(device, x, "graphed")
    assert values(x) == [0, 2]
    with device.capture("g"):
        relu(device, x, "graphed")
    relu(device, x, "ungraphed")
    sites = {m: s for (k, m), s in device.launch_sites.items() if k == "relu_epilogue"}
    assert sites == {"graphed": {"warm-up", "captured"}, "ungraphed": {"eager"}}


@pytest.mark.parametrize("module", ["shared", "graphed"])
def test_kernel_first_seen_while_capturing(device, module):
    x = device.upload(f32(-1))
    with refused(UNSUPPORTED, "load relu_epilogue"), device.capture("g"):
        relu(device, x, module)
    with device.warm_up():
        relu(device, x, module)
    with device.capture("g") as graph:
        relu(device, x, module)
    device.graph_launch(device.instantiate(graph))
    assert values(x) == [0]


def test_matmul_first_seen_while_capturing(device):
    x, out = device.upload(f32(2), "x"), device.allocate((1,), "f32", "out")
    with refused(UNSUPPORTED, "load gemm|plan"), device.capture("g"):
        device.matmul(Matmul(1, 1, 1), x, x, out)


def test_elements_of_a_large_batch_fit_the_relu(device):
    """[2^20, 4096] activations: more than 32 bits count."""
    x = device.allocate((1,), "f32")
    device.prepare("relu_epilogue", {"extra": x, "out": x, "n": 1 << 32, "grad": 0})


# -------------------------------------------------------------------- capture


def _on(device: Device, stream: Stream) -> None:
    with device.on(stream):
        pass


def _capture(device: Device) -> None:
    with device.capture("inner"):
        pass


FORBIDDEN: dict[str, Callable[[Device, dict], object]] = {
    "allocate": lambda d, w: d.allocate((1,), "f32"),
    "allocate array": lambda d, w: d.upload(f32(1)),
    "free": lambda d, w: d.free(w["x"]),
    "copy_htod": lambda d, w: d.copy_htod(w["x"], f32(1)),
    "copy_dtoh": lambda d, w: w["x"].to_host_checkpoint(),
    "memset_sync": lambda d, w: d.memset_sync(w["x"]),
    "synchronize": lambda d, w: d.synchronize(),
    "host": lambda d, w: d.host_op("think"),
    "create_event": lambda d, w: d.create_event(),
    "record_event": lambda d, w: d.record_event(w["event"]),
    "elapsed_ms": lambda d, w: d.elapsed_ms(w["event"], w["event"]),
    "create_stream": lambda d, w: d.create_stream(),
    "switch to stream": lambda d, w: _on(d, w["stream"]),
    "capture": lambda d, w: _capture(d),
    "reserve": lambda d, w: d.reserve_branches(TWO),
    "compose": lambda d, w: d.compose("c", [w["graph"]]),
    "instantiate": lambda d, w: d.instantiate(w["graph"]),
    "graph_launch": lambda d, w: d.graph_launch(w["exec"]),
    "set_graph_events": lambda d, w: d.set_graph_events(w["exec"], []),
}


@pytest.fixture
def world(device) -> dict:
    """One of everything that a forbidden call needs."""
    x = device.upload(f32(1), "x")
    with device.capture("earlier") as graph:
        device.memset(x)
    event = device.create_event("e")
    device.record_event(event)
    return {
        "x": device.upload(f32(1), "x"),
        "event": event,
        "stream": device.create_stream("side"),
        "graph": graph,
        "exec": device.instantiate(graph),
    }


@pytest.mark.parametrize("op", FORBIDDEN)
def test_forbidden_while_capturing(device, world, op):
    device.ledger.phase = "forward"
    with refused(UNSUPPORTED, op) as caught, device.capture("g"):
        FORBIDDEN[op](device, world)
    assert caught.value.phase == "forward"
    assert caught.value.op.startswith(op)
    device.ledger.phase = ""
    assert values(world["x"]) == [1]  # nothing was done, and the device goes on
    with device.capture("after") as graph:
        device.memset(world["x"])
    device.graph_launch(device.instantiate(graph))
    assert values(world["x"]) == [0]


@pytest.mark.parametrize("op", FORBIDDEN)
def test_swallowed_error_invalidates_the_capture(device, world, op):
    with (
        refused(INVALIDATED, "capture g.*refused inside"),
        device.capture("g") as graph,
        contextlib.suppress(DeviceError),
    ):
        FORBIDDEN[op](device, world)
    assert graph.closed
    relu(device, world["x"])
    assert values(world["x"]) == [1]


def test_any_exception_abandons_the_capture(device):
    x, graphs = device.upload(f32(-1)), []

    def fail_inside():
        with device.capture("g") as graph:
            graphs.append(graph)
            device.memset(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert graphs[0].closed
    assert values(x) == [-1]
    device.free(x)


def test_capture_records_and_does_not_run(device):
    x, y = device.upload(f32(-1, 2), "x"), device.upload(f32(9, 9), "y")
    relu(device, device.upload(f32(0)))  # loads the kernel
    with device.capture("g") as graph:
        relu(device, x)
        device.copy_dtod(y, x)
        device.memset(x)
    assert (values(x), values(y)) == ([-1, 2], [9, 9])
    assert [node.kind for node in graph.nodes] == ["kernel", "memcpy", "memset"]
    assert graph.node_count() == 3
    executable = device.instantiate(graph)
    device.graph_launch(executable)
    assert (values(x), values(y)) == ([0, 0], [0, 2])


def test_replay_reads_current_data(device):
    x, y = device.upload(f32(-1, 2), "x"), device.allocate((2,), "f32", "y")
    relu(device, device.upload(f32(0)))
    with device.capture("g") as graph:
        device.copy_dtod(y, x)
        relu(device, y)
    executable = device.instantiate(graph)
    for data, want in [((-1, 2), [0, 2]), ((3, -4), [3, 0]), ((5, 6), [5, 6])]:
        device.copy_htod(x, f32(*data))
        device.graph_launch(executable)
        assert values(y) == want


def test_matmul_in_a_graph(device):
    a, b = device.upload(A, "a"), device.upload(B, "b")
    out, spec = device.allocate((2, 2), "f32", "out"), Matmul(2, 2, 2)
    with device.warm_up():
        device.matmul(spec, a, b, out, module="graphed")
    device.memset(out)
    with device.capture("g") as graph:
        device.matmul(spec, a, b, out, module="graphed")
    device.graph_launch(device.instantiate(graph))
    assert values(out) == [19, 22, 43, 50]


def test_empty_capture(device):
    with device.capture("nothing") as graph:
        pass
    device.graph_launch(device.instantiate(graph))
    assert graph.node_count() == 0


def test_two_hundred_nodes(device):
    x = device.upload(f32(-1, 2))
    relu(device, device.upload(f32(0)))
    with device.capture("g") as graph:
        for _ in range(200):
            relu(device, x)
    assert graph.node_count() == 200
    device.graph_launch(device.instantiate(graph))
    assert values(x) == [0, 2]


def test_array_dropped_inside_a_capture(device):
    x, dropped = device.upload(f32(1)), device.upload(f32(2))
    with device.capture("g") as graph:
        device.memset(x)
        del dropped
    device.graph_launch(device.instantiate(graph))
    assert values(x) == [0]
    assert graph.node_count() == 1


# -------------------------------------------------------------------- branches


def test_branches_record_each_its_work_between_the_fork_and_the_join(device):
    x, y = device.upload(f32(-1, 2), "x"), device.upload(f32(3, -4), "y")
    z = device.upload(f32(0, 0), "z")
    relu(device, z)
    device.reserve_branches(TWO)
    with device.capture("g") as graph:
        device.copy_dtod(z, y)
        with device.branches(2) as branch:
            with branch(1):
                relu(device, y)
            with branch(0):
                relu(device, x)
                device.copy_dtod(z, x)
        device.copy_dtod(x, y)
    assert graph.node_count() == 5
    assert values(x) == [-1, 2]
    device.graph_launch(device.instantiate(graph))
    assert (values(x), values(y), values(z)) == ([3, 0], [3, 0], [0, 2])


def test_a_capture_forks_again_and_a_branch_may_be_empty(device):
    x, y = device.upload(f32(1)), device.upload(f32(2))
    device.reserve_branches([[], [], []])
    with device.capture("g") as graph:
        for count in (3, 2):
            with device.branches(count) as branch:
                with branch(0):
                    device.memset(x)
                with branch(1):
                    device.memset(y)
    assert graph.node_count() == 4
    device.graph_launch(device.instantiate(graph))
    assert (values(x), values(y)) == ([0], [0])


def test_a_forked_capture_is_a_child_like_any_other(device):
    x, y = device.upload(f32(1)), device.upload(f32(2))
    device.reserve_branches(TWO)
    with device.capture("forked") as forked, device.branches(2) as branch:
        with branch(0):
            device.memset(x)
        with branch(1):
            device.memset(y)
    with device.capture("after") as after:
        device.copy_dtod(x, y)
    parent = device.compose("parent", [forked, device.create_event("e"), after])
    device.graph_launch(device.instantiate(parent))
    assert parent.node_count() == 4
    assert values(x) == [0]


def test_only_a_capture_forks(device):
    device.reserve_branches(TWO)
    with refused(ILLEGAL_STATE, "fork into 2 branches.*only a capture forks"), device.branches(2):
        pass


def test_branches_are_reserved_before_the_capture(device):
    device.reserve_branches(TWO)
    with refused(UNSUPPORTED, "reserve 3 branches"), device.capture("g"), device.branches(3):
        pass
    with refused(UNSUPPORTED, "reserve 3 branches"), device.capture("g"):
        device.reserve_branches([[], [], []])


def _inside_one(device, x, branch):
    with branch(0), branch(1):
        pass


def _twice(device, x, branch):
    for _ in range(2):
        with branch(0):
            pass


def _beyond(device, x, branch):
    with branch(2):
        pass


def _fork_in_a_branch(device, x, branch):
    with branch(0), device.branches(2):
        pass


#: What is wrong between a fork and its join: what is done, the error, the call that it names.
MISUSES = {
    "work outside a branch": (lambda d, x, b: d.memset(x), ILLEGAL_STATE, "memset.*enter a branch"),
    "a branch in another": (_inside_one, ILLEGAL_STATE, "branch 1.*another branch is open"),
    "a branch again": (_twice, INVALID_VALUE, "branch 0.*each to be opened once"),
    "a branch too many": (_beyond, INVALID_VALUE, "branch 2.*branches 0 to 1"),
    "a fork in a branch": (_fork_in_a_branch, ILLEGAL_STATE, "fork into 2.*forked already"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_what_is_refused_in_branches(device, misuse):
    do, name, message = MISUSES[misuse]
    x = device.upload(f32(1), "x")
    device.reserve_branches(TWO)
    with refused(name, message), device.capture("g"), device.branches(2) as branch:
        do(device, x, branch)
    assert values(x) == [1]
    with (
        refused(INVALIDATED, "capture g.*refused inside"),
        device.capture("g"),
        device.branches(2) as branch,
        contextlib.suppress(DeviceError),
    ):
        do(device, x, branch)
    with device.capture("after") as graph, device.branches(2) as branch:
        for index in range(2):
            with branch(index):
                device.memset(x.view(0, (1 - index,)))
    device.graph_launch(device.instantiate(graph))  # and the device goes on
    assert values(x) == [0]


def test_fewer_than_two_branches(device):
    device.reserve_branches(TWO)
    with refused(INVALID_VALUE, "two branches at least"), device.capture("g"), device.branches(1):
        pass


def test_a_branch_after_the_join(device):
    device.reserve_branches(TWO)
    with refused(ILLEGAL_STATE, "branch 1.*are joined"), device.capture("g"):
        with device.branches(2) as branch:
            pass
        with branch(1):
            pass


@pytest.mark.parametrize("entered", [False, True])
def test_a_capture_does_not_end_before_the_join(device, entered):
    x, kept = device.upload(f32(1)), []
    device.reserve_branches(TWO)
    with refused(UNJOINED, "capture g.*its 2 branches are not joined"), device.capture("g"):
        kept.append(device.branches(2))
        branch = kept[0].__enter__()
        if entered:
            kept.append(branch(1))
            kept[1].__enter__()
            device.memset(x)
    kept.clear()  # what was left open ends late, and touches nothing
    device.memset(x)
    assert values(x) == [0]
    with device.capture("after") as graph:
        device.memset(x)
    device.graph_launch(device.instantiate(graph))


def test_an_exception_in_a_branch_abandons_the_capture(device):
    x = device.upload(f32(1))
    device.reserve_branches(TWO)

    def fail_inside():
        with device.capture("g"), device.branches(2) as branch, branch(1):
            device.memset(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert values(x) == [1]
    with device.capture("after") as graph, device.branches(2) as branch, branch(1):
        device.memset(x)
    device.graph_launch(device.instantiate(graph))
    assert values(x) == [0]


# -------------------------------------------------------------------- lanes


def test_lanes_wait_for_pieces_of_one_another(device):
    x, y = device.upload(f32(-1, 2), "x"), device.upload(f32(3, -4), "y")
    z = device.upload(f32(0, 0), "z")
    relu(device, z)
    device.reserve_branches(TWO, 2)
    with device.capture("g") as graph:
        device.copy_dtod(z, y)
        with device.lanes(2, 2) as lane:
            with lane(1, mark=0):
                relu(device, y)
            with lane(0):
                relu(device, x)
            with lane(0, [0], 1):
                device.copy_dtod(x, y)
            with lane(1, [1]):
                device.memset(y)
        device.copy_dtod(z, x)
    assert graph.node_count() == 6
    assert values(y) == [3, -4]
    device.graph_launch(device.instantiate(graph))
    assert (values(x), values(y), values(z)) == ([3, 0], [0, 0], [3, 0])


def test_marks_are_set_anew_in_each_fork(device):
    x, y = device.upload(f32(1)), device.upload(f32(2))
    device.reserve_branches(TWO, 1)
    with device.capture("g") as graph:
        for target in (x, y):
            with device.lanes(2, 1) as lane:
                with lane(0, mark=0):
                    device.memset(target)
                with lane(1, [0]):
                    device.memset(target)
    assert graph.node_count() == 4
    device.graph_launch(device.instantiate(graph))
    assert (values(x), values(y)) == ([0], [0])


def test_marks_are_reserved_before_the_capture(device):
    device.reserve_branches(TWO, 1)
    with refused(UNSUPPORTED, "reserve 2 marks"), device.capture("g"), device.lanes(2, 2):
        pass
    with refused(UNSUPPORTED, "reserve 3 branches"), device.capture("g"), device.lanes(3):
        pass


def _lane(*arguments):
    def misuse(device, x, lane):
        with lane(*arguments):
            pass

    return misuse


def _lane_in_a_lane(device, x, lane):
    with lane(0), lane(1):
        pass


def _mark_twice(device, x, lane):
    for _ in range(2):
        with lane(0, (), 0):
            pass


#: What is wrong between lanes' fork and their join.
LANE_MISUSES = {
    "work outside a lane": (lambda d, x, _: d.memset(x), ILLEGAL_STATE, "memset.*enter a branch"),
    "a lane in another": (_lane_in_a_lane, ILLEGAL_STATE, "lane 1.*another lane is open"),
    "a lane too many": (_lane(2), INVALID_VALUE, "lane 2.*there are lanes 0 to 1"),
    "no lane": (_lane(-1), INVALID_VALUE, "lane -1.*there are lanes 0 to 1"),
    "a mark that is not set": (_lane(0, [0]), INVALID_VALUE, "lane 0.*mark 0 is not set"),
    "a mark too many": (_lane(0, (), 1), INVALID_VALUE, "mark 1 is none of the 1 that there are"),
    "a mark again": (_mark_twice, INVALID_VALUE, "mark 0 is none .*each to be set once"),
    "branches in lanes": (
        lambda d, x, _: d.branches(2).__enter__(),
        ILLEGAL_STATE,
        "fork into 2 branches.*forked already",
    ),
}


@pytest.mark.parametrize("misuse", LANE_MISUSES)
def test_what_is_refused_in_lanes(device, misuse):
    do, name, message = LANE_MISUSES[misuse]
    x = device.upload(f32(1), "x")
    device.reserve_branches(TWO, 1)
    with refused(name, message), device.capture("g"), device.lanes(2, 1) as lane:
        do(device, x, lane)
    assert values(x) == [1]
    with device.capture("after") as graph, device.lanes(2, 1) as lane:
        with lane(1, (), 0):
            device.memset(x)
        with lane(0, [0]):
            device.memset(x)
    device.graph_launch(device.instantiate(graph))  # and the device goes on
    assert values(x) == [0]


def test_lanes_are_two_at_least_and_in_a_capture(device):
    device.reserve_branches(TWO)
    with refused(INVALID_VALUE, "two lanes at least"), device.capture("g"), device.lanes(1):
        pass
    with refused(ILLEGAL_STATE, "fork into 2 lanes.*only a capture forks"), device.lanes(2):
        pass


def test_a_lane_after_the_join(device):
    device.reserve_branches(TWO)
    with refused(ILLEGAL_STATE, "lane 1.*joined"), device.capture("g"):
        with device.lanes(2) as lane:
            pass
        with lane(1):
            pass


# -------------------------------------------------------------------- children side by side


def test_children_wait_for_those_that_they_are_told_to(device):
    x, y = device.upload(f32(1), "x"), device.upload(f32(2), "y")
    z = device.upload(f32(3), "z")
    graphs = []
    for target, source in ((x, None), (y, None), (z, x)):
        with device.capture("child") as graph:
            device.memset(target) if source is None else device.copy_dtod(target, source)
        graphs.append(graph)
    parent = device.compose("parent", graphs, [(), (), (0, 1)])
    assert parent.node_count() == 3
    device.graph_launch(device.instantiate(parent))
    assert (values(x), values(y), values(z)) == ([0], [0], [0])


@pytest.mark.parametrize("after", [[(), ()], [(), (), (2,)], [(), (), (3,)], [(), (-1,), ()]])
def test_an_order_that_does_not_fit_is_refused(device, after):
    x = device.upload(f32(1), "x")
    with device.capture("child") as graph:
        device.memset(x)
    with refused(INVALID_VALUE, "compose parent.*are not the places of items before each of the 3"):
        device.compose("parent", [graph] * 3, after)


def test_events_stand_in_a_row(device):
    x = device.upload(f32(1), "x")
    with device.capture("child") as graph:
        device.memset(x)
    with refused(INVALID_VALUE, "compose parent.*: events stand between items in a row"):
        device.compose("parent", [graph, device.create_event("e")], [(), ()])


# -------------------------------------------------------------------- lifetime of graphs


def test_free_under_a_live_graph(device):
    x = device.upload(f32(1, 2), "x")
    with device.capture("step") as graph:
        device.memset(x.view(0, (1,)))
    with refused(ILLEGAL_ADDRESS, "free x.*graph 'step' still uses it"):
        device.free(x)
    parent = device.compose("parent", [graph])
    executable = device.instantiate(parent)
    graph.close()
    with refused(ILLEGAL_ADDRESS, "graph 'parent' still uses it"):
        device.free(x)
    device.graph_launch(executable)
    assert values(x) == [0, 2]
    parent.close()
    device.free(x)
    with refused(INVALID_HANDLE, "graph_launch parent"):
        device.graph_launch(executable)


def test_closed_graphs_are_refused(device):
    with device.capture("g") as graph:
        pass
    graph.close()
    with refused(INVALID_HANDLE, "instantiate g"):
        device.instantiate(graph)
    with refused(INVALID_HANDLE, "compose c"):
        device.compose("c", [graph])


# -------------------------------------------------------------------- composition and events


def _phases(device: Device) -> tuple[DeviceArray, list]:
    """Two graphs over one array that give another result in the other order."""
    x, y = device.upload(f32(-1, 2), "x"), device.upload(f32(5, -6), "y")
    relu(device, device.upload(f32(0)))
    with device.capture("first") as first:
        device.copy_dtod(x, y)
    with device.capture("second") as second:
        relu(device, x)
        device.memset(y)
    return x, [first, second]


def test_children_run_in_order(device):
    x, graphs = _phases(device)
    parent = device.compose("parent", graphs)
    assert parent.node_count() == 3
    device.graph_launch(device.instantiate(parent))
    assert values(x) == [5, 0]


def test_composition_of_a_composition(device):
    x, graphs = _phases(device)
    start = device.create_event("start")
    inner = device.compose("inner", [start, *graphs])
    outer = device.compose("outer", [inner, start])
    assert outer.node_count() == 5
    executable = device.instantiate(outer)
    assert len(executable.events) == 1
    device.graph_launch(executable)
    assert values(x) == [5, 0]


def test_child_launched_alone_and_as_part(device):
    x, graphs = _phases(device)
    alone = [device.instantiate(g) for g in graphs]
    parent = device.instantiate(device.compose("parent", graphs))
    for executable in (*alone, parent):
        device.graph_launch(executable)
    assert values(x) == [0, 0]  # the second run copied the zeroed y


def test_event_nodes_can_be_timed_and_replaced(device):
    x, graphs = _phases(device)
    first = [device.create_event(f"first {i}") for i in range(3)]
    second = [device.create_event(f"second {i}") for i in range(3)]
    parent = device.compose("parent", [first[0], graphs[0], first[1], graphs[1], first[2]])
    assert [n.label for n in parent.nodes] == ["first 0", "first 1", "first 2"]
    assert parent.node_count() == 6
    executable = device.instantiate(parent)
    device.graph_launch(executable)
    device.synchronize()
    before = [device.elapsed_ms(a, b) for a, b in pairwise(first)]
    assert all(ms >= 0 for ms in before)
    with refused(INVALID_HANDLE):
        device.elapsed_ms(second[0], second[1])
    device.set_graph_events(executable, second)
    device.graph_launch(executable)
    device.synchronize()
    assert device.elapsed_ms(second[0], second[2]) >= 0
    after = [device.elapsed_ms(a, b) for a, b in pairwise(first)]
    assert after == before  # the second launch left the first set alone
    assert values(x) == [0, 0]


def test_set_graph_events_counts_them(device):
    _, graphs = _phases(device)
    executable = device.instantiate(device.compose("p", [device.create_event("e"), *graphs]))
    with refused(INVALID_VALUE, "set_graph_events p.*0 events for 1 event nodes"):
        device.set_graph_events(executable, [])


def test_time_between_recorded_events(device):
    start, end = device.create_event("start"), device.create_event("end")
    x = device.allocate((1 << 20,), "f32")
    device.record_event(start)
    for _ in range(20):
        device.memset(x)
    device.record_event(end)
    assert device.elapsed_ms(start, end) > 0


def test_event_that_was_never_recorded(device):
    with refused(INVALID_HANDLE, "elapsed_ms"):
        device.elapsed_ms(device.create_event("a"), device.create_event("b"))


def test_other_stream_is_ordered_both_ways(device):
    x, y = device.upload(np.full(1 << 20, -1, np.float32)), device.allocate((1 << 20,), "f32")
    relu(device, x)
    with device.on(device.create_stream("side")):
        device.copy_dtod(y, x)
    device.copy_dtod(x, y)
    assert set(values(x)) == {0.0}


# -------------------------------------------------------------------- the ledger


def test_every_call_is_counted(device):
    x, y = device.allocate((2,), "f32", "x"), device.allocate((2,), "f32", "y")
    relu(device, x)  # loads the kernel
    ledger = device.ledger
    ledger.begin("learn", 7)
    ledger.phase = "forward"
    device.copy_htod(x, f32(1, 2))
    relu(device, x)
    relu(device, x)
    device.memset(x)
    device.copy_dtod(y, x)
    ledger.phase = "adam"
    device.memset_sync(x)
    device.host_op("think")
    x.to_host_checkpoint()
    device.free(device.allocate((1,), "f32"))
    counts = ledger.end()
    assert (counts.scope, counts.step) == ("learn", 7)
    assert counts.counts == {
        ("forward", "htod"): 1,
        ("forward", "launch"): 2,
        ("forward", "memset"): 1,
        ("forward", "dtod"): 1,
        ("adam", "memset_sync"): 1,
        ("adam", "sync"): 2,
        ("adam", "host"): 1,
        ("adam", "dtoh"): 1,
        ("adam", "alloc"): 1,
        ("adam", "free"): 1,
    }
    assert ledger.steps("learn") == (counts,)
    assert ledger.totals["learn", "forward", "launch"] == 2


def test_graph_calls_are_counted(device):
    x, ledger = device.upload(f32(1)), device.ledger
    relu(device, x)
    events = [device.create_event("a"), device.create_event("b")]
    ledger.begin("learn", 0)
    with device.capture("g") as graph:
        relu(device, x)
        device.memset(x)
    executable = device.instantiate(device.compose("p", [events[0], graph]))
    device.set_graph_events(executable, [events[1]])
    device.graph_launch(executable)
    device.record_event(events[0])
    device.synchronize()
    assert ledger.end().by_kind() == {
        "capture": 1,
        "captured": 2,
        "instantiate": 1,
        "event_set": 1,
        "graph_launch": 1,
        "event_record": 1,
        "sync": 1,
    }


def test_closing_twice(device):
    device.close()
    device.close()
    assert device.closed


@pytest.mark.parametrize("op", FORBIDDEN)
def test_nothing_is_done_on_a_closed_device(device, world, op):
    device.close()
    device.ledger.phase = "forward"
    with refused(DESTROYED, f"{op}.*in phase forward: the device was closed"):
        FORBIDDEN[op](device, world)
    world["graph"].close()  # what is open can still be let go of


@pytest.mark.parametrize("op", ["launch", "memset", "copy_dtod", "matmul"])
def test_no_work_is_queued_on_a_closed_device(device, op):
    x, y = device.upload(f32(-1), "x"), device.upload(f32(2), "y")
    ready = device.prepare("relu_epilogue", {"extra": x, "out": x, "n": 1, "grad": 0})
    device.close()
    calls = {
        "launch": lambda: device.launch(ready),
        "memset": lambda: device.memset(x),
        "copy_dtod": lambda: device.copy_dtod(x, y),
        "matmul": lambda: device.matmul(Matmul(1, 1, 1), x, x, y),
    }
    with refused(DESTROYED, op):
        calls[op]()


def test_closing_while_capturing(device):
    with refused(UNSUPPORTED, "close"), device.capture("g"):
        device.close()
    assert not device.closed


# -------------------------------------------------------------------- loops


class Looped:
    """A loop whose turn counts a learning step in ``counters`` and adds nothing else."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.counters = device.upload(np.zeros(COUNTERS, np.int64), "counters")
        self.skip = device.upload(np.zeros(1, np.int32), "skip")
        self.go = device.upload(np.full(1, 7, np.int32), "go")
        self.schedule = device.upload(np.zeros(SCHEDULES), "schedule")
        self.params = device.upload(np.zeros(SCHEDULE_PARAMS), "params")
        self.order = device.allocate((len(LoopOrder),), "i64", "order", pinned=True)
        self.report = device.allocate((len(LoopReport),), "i64", "report", pinned=True)
        self.order.host[:] = self.report.host[:] = 0
        self.count()  # loads what is captured
        self.control = device.prepare(
            "loop_control",
            {
                "counters": self.counters,
                "skip": self.skip,
                "order": self.order,
                "report": self.report,
                "go": self.go,
                "condition": 0,
            },
        )
        device.launch(self.control)
        device.copy_htod(self.counters, np.zeros(COUNTERS, np.int64))
        with device.capture("count") as self.turn:
            self.count()

    def count(self) -> None:
        self.device.run(
            "advance_counters",
            counters=self.counters,
            schedule=self.schedule,
            params=self.params,
            skip=self.skip,
            program=0,
            lanes=1,
            slots=1,
        )

    def executable(self, *turn):
        graph = self.device.loop("loop", turn or (self.turn,), self.control, self.go)
        return self.device.instantiate(graph)

    def ask(self, until: int, *, stop: int = 0, limit: int = 0, begun: int = 0) -> None:
        self.order.host[:] = (until, stop, limit, begun)

    @property
    def learns(self) -> int:
        return int(self.counters.to_host_checkpoint()[Counter.RNG])

    @property
    def reported(self) -> tuple[int, LoopEnding]:
        self.device.synchronize()
        host = self.report.host
        return int(host[LoopReport.LEARNS]), LoopEnding(int(host[LoopReport.ENDING]))


def test_a_loop_takes_as_many_turns_as_it_is_asked_for_in_one_launch(device):
    looped = Looped(device)
    executable = looped.executable()
    assert executable.graph.node_count() == 3  # the control before, a turn, and the control
    device.ledger.begin("round", 0)
    for until in (1, 5, 300, 300, 2):  # where it is already, it takes none
        looped.ask(until)
        device.graph_launch(executable)
        device.synchronize()
        assert looped.reported == (max(until, looped.learns), LoopEnding.REACHED)
        assert int(looped.go.to_host_checkpoint()[0]) == 0
    assert looped.learns == 300
    assert device.ledger.end().by_kind()["graph_launch"] == 5


def test_a_turn_may_hold_a_graph_twice_and_a_composition(device):
    looped = Looped(device)
    pair = device.compose("pair", [looped.turn, looped.turn])
    executable = looped.executable(looped.turn, pair, looped.turn)
    assert executable.graph.node_count() == 6
    looped.ask(6)
    device.graph_launch(executable)
    assert looped.reported == (8, LoopEnding.REACHED)  # a turn is of four steps, and is whole


def test_a_loop_that_is_told_to_stop_ends_after_its_turn(device):
    looped = Looped(device)
    executable = looped.executable()
    looped.ask(10**12, stop=1)
    device.graph_launch(executable)
    assert looped.reported == (0, LoopEnding.STOPPED)

    looks = []

    def look() -> float:
        looks.append(int(looped.report.host[LoopReport.LEARNS]))
        if looks[-1] > 2:
            looped.order.host[LoopOrder.STOP] = 1
        return 0.0

    looped.ask(10**12)
    with device.attended(look):
        device.graph_launch(executable)
    # What was said inside was heard: waiting is over, and the device is done.
    learns, ending = int(looped.report.host[LoopReport.LEARNS]), looped.reported[1]
    assert ending == LoopEnding.STOPPED
    assert learns == looped.learns >= looks[-1] > 2
    assert looks == sorted(looks)


def test_a_loop_ends_where_too_many_steps_in_a_row_were_skipped(device):
    looped = Looped(device)
    device.copy_htod(looped.skip, np.ones(1, np.int32))
    executable = looped.executable()
    looped.ask(100, limit=7, begun=3)
    device.graph_launch(executable)
    # The step that has just ended was skipped too, and those up to the third do not count.
    assert looped.reported == (10, LoopEnding.NONFINITE)


def test_waiting_needs_no_loop(device):
    looked = []
    with device.attended(lambda: looked.append(1) or 0.0):
        device.memset(device.upload(f32(1)))
    assert isinstance(looked, list)


def test_what_a_loop_can_not_hold(device):
    looped = Looped(device)
    event = device.create_event("e")
    timed = device.compose("timed", [looped.turn, event])
    with refused(NOT_SUPPORTED, "loop loop.*'timed' records an event"):
        looped.executable(timed)
    with refused(NOT_SUPPORTED, "'outer' records an event"):
        looped.executable(device.compose("outer", [timed]))
    with refused(INVALID_VALUE, "a turn has no work"):
        device.loop("loop", [], looped.control, looped.go)
    loop = device.loop("inner", [looped.turn], looped.control, looped.go)
    with refused(NOT_SUPPORTED, "'inner' has a conditional node"):
        looped.executable(loop)
    with refused(NOT_SUPPORTED, "compose parent.*'inner' has a conditional node"):
        device.compose("parent", [loop])
    with refused(INVALID_VALUE, "is not the one int32"):
        device.loop("loop", [looped.turn], looped.control, looped.skip.view(0, (0,)))
    with refused(INVALID_VALUE, "is not the one int32"):
        other = device.upload(np.zeros(1, np.int32), "other")
        device.loop("loop", [looped.turn], looped.control, other)
    x = device.upload(f32(1), "x")
    relu(device, x)
    plain = device.prepare("relu_epilogue", {"extra": x, "out": x, "n": 1, "grad": 0})
    with refused(INVALID_VALUE, "relu_epilogue takes no condition"):
        device.loop("loop", [looped.turn], plain, looped.go)
    with refused(UNSUPPORTED, "loop inside"), device.capture("capturing"):
        device.loop("inside", [looped.turn], looped.control, looped.go)
    looped.turn.close()
    with refused(INVALID_HANDLE, "'count' is closed"):
        looped.executable()


def test_the_ungraphed_copy_of_a_control_is_refused(device):
    looped = Looped(device)
    args = {n: getattr(looped, n) for n in ("counters", "skip", "order", "report", "go")}
    control = device.prepare("loop_control", {**args, "condition": 0}, module="ungraphed")
    with pytest.raises(ModuleMixError):
        device.loop("loop", [looped.turn], control, looped.go)


def test_a_loop_keeps_its_arrays(device):
    looped = Looped(device)
    loop = device.loop("loop", [looped.turn], looped.control, looped.go)
    looped.turn.close()
    for array in (looped.counters, looped.go, looped.order):
        with refused(ILLEGAL_ADDRESS, "graph 'loop' still uses it"):
            device.free(array)
    loop.close()
    device.free(looped.order)
