"""Floors of a step: what its program needs, against counts by hand, and peaks by a made clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.facts import DeviceFacts
from onegraph.stages import Buffer, Launch, Phase, Ref, StepProgram, apply
from onegraph.stages.bench import BenchResult, Entry, Spread
from onegraph.stages.least_work import (
    Work,
    _Spans,
    least_traffic,
    longest_chain,
    product_flops,
)
from onegraph.stages.peaks import (
    LENGTHS,
    Peaks,
    copied_bytes_per_s,
    measured_peaks,
    node_latency,
    peak_flops,
)
from onegraph.stages.program import Branches, Copy, MatmulGroup, MatmulOp, Memset, Op, Space
from onegraph.stages.registry import up_to
from onegraph.stages.roofline import floors, roofline
from onegraph.stages.roofline_table import roofline_notes, roofline_table


def buffer(name: str, size: int, dtype: str = "f32", **more) -> Buffer:
    return Buffer(name, (size,), dtype, **more)


def program(*ops: Op, buffers: tuple[Buffer, ...] = ()) -> StepProgram:
    return StepProgram("p", "learn", (Phase("work", ops),), buffers)


def product(out: str, a: str = "a", b: str = "b", **more) -> MatmulOp:
    """[2, 3] x [3, 4]: 24 multiply-adds."""
    return MatmulOp(2, 4, 3, Ref(a), Ref(b), Ref(out), **more)


MATRICES = (buffer("a", 6), buffer("b", 12), buffer("c", 8), buffer("d", 8))


# ---------------------------------------------------------------- arithmetic and nodes


def test_a_product_is_two_operations_a_multiply_add():
    one = program(product("c"), buffers=MATRICES)
    assert product_flops(one) == {"float32": 48}
    members = product("c"), product("d", precision="tf32")
    both = program(MatmulGroup(members), product("c"), buffers=MATRICES)
    assert product_flops(both) == {"float32": 96, "tf32": 48}
    assert product_flops(program(Memset(Ref("a")), buffers=MATRICES)) == {}


def test_branches_count_their_longest_once():
    extra = tuple(buffer(f"e{i}", 8) for i in range(4))
    fork = Branches(
        (
            (product("e0"),),
            (product("e1"), Memset(Ref("e2")), product("e3")),
        )
    )
    forked = program(product("c"), fork, product("d"), buffers=(*MATRICES, *extra))
    assert longest_chain(forked) == 1 + 3 + 1
    group = program(MatmulGroup((product("c"), product("d"))), buffers=MATRICES)
    assert longest_chain(group) == 1


def test_the_chain_is_that_of_the_form_and_the_products_are_not():
    whole = toy.Toy()
    chains = {}
    for number in (0, 4, 5, 6):
        form = apply(whole.program(), up_to(number), whole)
        chains[number] = longest_chain(form)
        assert product_flops(form) == {"float32": 2 * 8 * 1 * 8}
    # Stage 0: an upload, two more, memset, product, scale, memset, norm, its read-back. From stage
    # 4 on: total, draw, count, memset, product, scale, norm, raise, inside graphs or outside.
    assert chains == {0: 9, 4: 8, 5: 8, 6: 8}


# ---------------------------------------------------------------- memory


def test_what_begins_and_ends_in_the_step_moves_nothing():
    chain = program(product("c"), product("d", a="a"), buffers=MATRICES)
    assert least_traffic(chain) == {"a": 6 * 4, "b": 12 * 4}
    later = (*MATRICES[:2], replace(MATRICES[2], persistent=True), MATRICES[3])
    assert least_traffic(program(product("c"), buffers=later)) == {"a": 24, "b": 48, "c": 32}


def test_a_range_is_read_once_and_only_before_it_is_written():
    x, y = buffer("x", 10, persistent=True), buffer("y", 10)
    ops = (
        Memset(Ref("x", 2, 3)),  # x[2:5] is the step's own from here on
        Copy(Ref("y", 0, 6), Ref("x", 0, 6), "dtod"),  # needs 0, 1 and 5
        Copy(Ref("y", 0, 6), Ref("x", 4, 6), "dtod"),  # needs 5 again, and 6 to 9
        Memset(Ref("x", 4, 2)),
    )
    # Read: 0, 1, 5 to 9; written: 2 to 5.
    assert least_traffic(program(*ops, buffers=(x, y))) == {"x": (7 + 4) * 4}


def test_only_device_memory_counts():
    spaces: tuple[Space, ...] = ("host", "pinned")
    for space in spaces:
        x, y = buffer("x", 10, space=space), buffer("y", 10, persistent=True)
        up = program(Copy(Ref("y"), Ref("x"), "htod"), buffers=(x, y))
        assert least_traffic(up) == {"y": 40}


def gather(rows: int, n: int, width: int = 3) -> StepProgram:
    """Rows of a ring of 8 columns, of which `width` are real."""
    args = {"src": Ref("ring"), "index": Ref("index"), "dst": Ref("rows"), "n": n, "width": width}
    args |= {"src_stride": 8, "dst_stride": 8, "rows": rows}
    return program(
        Launch("gather_rows", args),
        buffers=(buffer("ring", rows * 8), buffer("index", n, "i32"), buffer("rows", n * 8)),
    )


def test_a_gather_touches_its_rows_and_not_the_ring():
    assert least_traffic(gather(1000, 5)) == {"ring": 5 * 3 * 4, "index": 5 * 4}
    assert least_traffic(gather(1, 5)) == {"ring": 8 * 4, "index": 5 * 4}  # no more than there is


def test_two_sparse_reads_may_be_of_the_same_rows():
    one = gather(1000, 5)
    more = Launch("gather_rows", {**one.phases[0].ops[0].args, "width": 7})  # type: ignore[attr-defined]
    both = replace(one, phases=(Phase("work", (*one.phases[0].ops, more)),))
    assert least_traffic(both)["ring"] == 5 * 7 * 4


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12))
def test_spans_are_sets(pairs):
    spans, elements = _Spans(), set()
    for start, size in pairs:
        missing = {x for a, b in spans.missing(start, start + size) for x in range(a, b)}
        assert missing == set(range(start, start + size)) - elements
        spans.add(start, start + size)
        elements |= set(range(start, start + size))
        assert spans.size == len(elements)


# ---------------------------------------------------------------- peaks


class Clock:
    """Seconds, which the device's calls move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(HostDevice):
    """A launch of a graph takes 5 us and 0.75 us a node, a copied byte 1 ns."""

    def __init__(self) -> None:
        super().__init__(memory_bytes=1 << 20)
        self.clock = Clock()

    def _graph_launch(self, executable) -> None:
        self.clock.now += 5e-6 + 0.75e-6 * executable.graph.node_count()

    def _copy_dtod(self, dst, src) -> None:
        self.clock.now += 1e-9 * dst.nbytes


def test_the_latency_is_of_a_node_and_not_of_a_launch():
    device = Slow()
    found = node_latency(device, rounds=3, min_sample_s=1e-3, clock=device.clock)
    assert found.low == pytest.approx(0.75)
    assert found.high == pytest.approx(0.75)
    assert device.memory_free() == 1 << 20


def test_the_copies_tell_the_bandwidth():
    device = Slow()
    found = copied_bytes_per_s(device, rounds=3, min_sample_s=1e-3, clock=device.clock)
    assert found == pytest.approx(2e9)  # a byte read and a byte written each ns
    assert device.memory_free() == 1 << 20


def test_a_device_without_attributes_has_no_peaks():
    assert measured_peaks(HostDevice()) is None


@pytest.mark.parametrize(("memory_ghz", "measured"), [(1.0, False), (0.0, True)])
def test_the_memory_is_measured_where_the_driver_does_not_tell(memory_ghz, measured):
    class Told(HostDevice):
        def facts(self) -> DeviceFacts:
            return DeviceFacts("GPU", (9, 0), 100, 1e9, memory_ghz * 1e9, 512, 1234)

    peaks = measured_peaks(Told(memory_bytes=1 << 20), rounds=2)
    assert peaks is not None
    assert peaks.measured_bandwidth is measured
    assert peaks.bytes_per_s > 0
    assert measured or peaks.bytes_per_s == 128e9
    want = {"float32": 25.6e12, "tf32": 204.8e12, "tf32x3": 204.8e12 / 3}
    assert peaks.flops_per_s == pytest.approx(want)
    assert peaks.l2_bytes == 1234
    assert ("as a copy comes to" in peaks.words()) is measured
    assert LENGTHS[0] < LENGTHS[1]


def test_an_unknown_capability_has_no_peak():
    assert peak_flops(DeviceFacts("GPU", (99, 0), 100, 1e9, 1e9, 512, 0)) == {}


# ---------------------------------------------------------------- floors


PEAKS = Peaks(1e12, False, {"float32": 50e12, "tf32": 400e12}, Spread(0.5, 0.4, 0.6), 1_000_000)


def test_floors_by_hand():
    work = Work(3_000_000, {"float32": 100_000_000, "tf32": 400_000_000})
    assert floors(work, 12, PEAKS) == pytest.approx({"bytes": 3, "arithmetic": 2 + 1, "nodes": 6})
    assert floors(Work(0, {}), 0, PEAKS) == {"bytes": 0, "arithmetic": 0, "nodes": 0}
    without = replace(PEAKS, flops_per_s={"float32": 50e12})
    assert set(floors(work, 12, without)) == {"bytes", "nodes"}


def measured(peaks: Peaks | None):
    entries = Entry("short", (9.0, 10.0, 20.0), 1), Entry("long", (30.0, 40.0, 50.0), 1)
    works = Work(3_000_000, {"float32": 100_000_000}), Work(500_000, {"tf32": 8_000_000_000})
    result = BenchResult("s", "learn", "d", entries)
    return roofline(result, works, (4, 12), peaks)


def test_the_largest_floor_is_the_floor():
    found = measured(PEAKS)
    assert [r.bound for r in found.rows] == ["bytes", "arithmetic"]
    assert [r.floor_us for r in found.rows] == pytest.approx([3, 20])
    assert [r.share for r in found.rows] == pytest.approx([0.3, 0.5])
    assert found.to_json()["rows"][0] | {} == {
        "label": "short",
        "bytes": 3_000_000,
        "flops": {"float32": 100_000_000},
        "chain": 4,
        "floors_us": pytest.approx({"bytes": 3, "arithmetic": 2, "nodes": 2}),
        "floor_us": pytest.approx(3),
        "bound": "bytes",
        "us": {"median": 10.0, "low": pytest.approx(9.2), "high": pytest.approx(18.0)},
        "share": pytest.approx(0.3),
        "samples_us": [9.0, 10.0, 20.0],
    }
    assert roofline_table(found).row_count == 2


def test_the_notes_say_what_the_floors_rest_on():
    line, cached = roofline_notes(measured(PEAKS))
    assert "1,000 GB/s peak" in line
    assert "0.500 us (0.400-0.600, measured)" in line
    assert cached.startswith("the bytes of long fit the L2 cache (1.0 MB)")
    bare = replace(PEAKS, flops_per_s={"float32": 50e12}, l2_bytes=0)
    found = measured(bare)
    assert found.rows[1].bound == "nodes"
    assert "no peak of tf32" in roofline_notes(found)[1]


def test_without_peaks_the_counts_stay_and_the_floors_are_refused():
    found = measured(None)
    row = found.rows[0]
    assert (row.bound, row.floor_us, row.share, row.chain) == ("", None, None, 4)
    assert found.to_json()["peaks"] is None
    assert roofline_table(found).row_count == 2
    (note,) = roofline_notes(found)
    assert "run it with --device cuda" in note


def test_a_launch_that_holds_its_arrays_whole_counts_them_whole():
    args = {"x": Ref("x"), "out": Ref("y"), "rows": 4, "cols": 2}
    whole = program(
        Launch("column_sum", args),
        buffers=(buffer("x", 8), buffer("y", 2, initial=lambda: np.zeros(2, np.float32))),
    )
    assert least_traffic(whole) == {"x": 32}
