"""Arrays by name: allocation, sharing, reading and writing, closing."""

import numpy as np
import pytest
import toy

from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, Ref, Runner, Workspace, apply
from onegraph.stages.registry import ALL

SPACES = ("device", "pinned", "host")


def workspace(*buffers: Buffer) -> Workspace:
    made = Workspace(HostDevice())
    made.ensure(buffers)
    return made


@pytest.mark.parametrize("space", SPACES)
def test_buffers_start_as_zeros_or_as_told(space) -> None:
    made = workspace(
        Buffer("z", (2, 2), "i32", space),
        Buffer("f", (3,), "f32", space, initial=lambda: np.float32([1, 2, 3])),
    )
    assert made.read("z").tolist() == [[0, 0], [0, 0]]
    assert made.read("f").tolist() == [1, 2, 3]


@pytest.mark.parametrize("space", SPACES)
def test_read_gives_a_copy_and_write_sets(space) -> None:
    made = workspace(Buffer("x", (2, 2), "f32", space))
    made.write("x", np.float32([[1, 2], [3, 4]]))
    copy = made.read("x")
    copy[...] = 9
    assert made.read("x").tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    "values", [np.zeros(3, np.float32), np.zeros(4, np.float64), np.zeros(4, np.int32)]
)
def test_write_refuses_another_size_or_dtype(space, values) -> None:
    made = workspace(Buffer("x", (2, 2), "f32", space))
    with pytest.raises(ValueError, match=r"buffer x: f32\[2x2\].* can't take an array of \["):
        made.write("x", values)


def test_unknown_names() -> None:
    made = workspace(Buffer("x", (1,), "f32"), Buffer("y", (1,), "f32"))
    with pytest.raises(KeyError, match="no buffer 'z'; there are x, y"):
        made.read("z")
    with pytest.raises(KeyError, match="no buffer 'z'; there are x, y"):
        made.write("z", np.zeros(1, np.float32))
    with pytest.raises(KeyError, match="no buffer 'z'; there are x, y"):
        made.resolve(Ref("z"))


def test_what_has_no_device_array() -> None:
    made = workspace(Buffer("t", (1,), "f32", transient=True), Buffer("h", (1,), "f32", "host"))
    for call in (lambda: made.read("t"), lambda: made.write("t", np.zeros(1, np.float32))):
        with pytest.raises(KeyError, match="'t' has no device array now: it is transient"):
            call()
    with pytest.raises(KeyError, match="'h' has no device array now: it lives in host memory"):
        made.resolve(Ref("h"))


@pytest.mark.parametrize(
    ("ref", "wanted"),
    [
        (Ref("x"), [0, 1, 2, 3, 4, 5]),
        (Ref("x", 4), [4, 5]),
        (Ref("x", 1, 2), [1, 2]),
        (Ref("x", 0, 1), [0]),
        (Ref("x", 6), []),
    ],
)
def test_a_ref_is_a_window_of_flat_elements(ref: Ref, wanted) -> None:
    made = workspace(
        Buffer("x", (2, 3), "f32", initial=lambda: np.arange(6, dtype=np.float32).reshape(2, 3))
    )
    assert made.resolve(ref).to_host_checkpoint().ravel().tolist() == wanted


def test_a_ref_past_the_end() -> None:
    with pytest.raises(ValueError, match=r"view of 'x': elements 1..3 do not lie in its 2"):
        workspace(Buffer("x", (2,), "f32")).resolve(Ref("x", 1, 2))


def test_a_write_to_pinned_memory_waits_for_the_device() -> None:
    made = workspace(Buffer("x", (1,), "f32", "pinned"))
    made.device.ledger.begin("learn", 0)
    made.write("x", np.ones(1, np.float32))
    assert made.device.ledger.end().by_kind()["sync"] == 1


@pytest.mark.parametrize(
    ("changed", "moves"),
    [
        (Buffer("x", (2,), "f32", initial=lambda: np.ones(2, np.float32)), False),
        (Buffer("x", (2,), "f32", persistent=True), False),
        (Buffer("x", (3,), "f32"), True),
        (Buffer("x", (2,), "i32"), True),
        (Buffer("x", (2,), "f32", "pinned"), True),
        (Buffer("x", (2,), "f32", "host"), True),
    ],
)
def test_what_moves_a_buffer(changed: Buffer, moves: bool) -> None:
    made = workspace(Buffer("x", (2,), "f32"), Buffer("y", (1,), "f32"))
    made.write("x", np.float32([5, 6]))
    made.write("y", np.float32([7]))
    made.ensure([changed])
    assert made.generation == int(moves)
    assert made.read("x").tolist() == ([0] * changed.size if moves else [5, 6])
    assert made.read("y").tolist() == [7]


def test_new_buffers_move_nothing() -> None:
    made = workspace(Buffer("x", (2,), "f32"))
    made.ensure([Buffer("y", (2,), "f32")])
    assert made.generation == 0


def test_closing_frees_everything_and_the_next_step_starts_afresh() -> None:
    parts = toy.Toy()
    device = HostDevice()
    made = Workspace(device)
    runner = Runner(apply(parts.program(), ALL, parts), made)
    for _ in range(3):
        runner.step()
    made.close()
    assert (made.arrays, made.host, made.buffers, device._allocated) == ({}, {}, {}, 0)
    assert runner.graph_nodes() == {}
    made.close()  # twice does no harm
    runner.step()
    assert toy.results(made) == toy.trajectory(apply(parts.program(), ALL, parts), 1)[0]
