"""Passes whose rows are put into common buffers: the same work, in other places."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trainer.setups import full, make, small, trajectory
from trainer.test_regrouping import ways

from onegraph.kernels.device import HostDevice
from onegraph.stages.program import (
    Branches,
    Buffer,
    Copy,
    Launch,
    MatmulGroup,
    MatmulOp,
    Memset,
    Ref,
)
from onegraph.stages.registry import ALL
from onegraph.trainer.config import Config
from onegraph.trainer.rows_together import rows_together

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

BUFFERS = (
    *(Buffer("oneh", (4, 3), "f32"), Buffer("twoh", (2, 3), "f32")),
    *(Buffer("onex", (4, 2), "f32"), Buffer("twox", (2, 2), "f32")),
    *(Buffer("onewide", (4, 3), "f32"), Buffer("twowide", (2, 9), "f32")),
    *(Buffer("onekind", (4,), "i64"), Buffer("twokind", (4,), "f32")),
    *(Buffer("onealone", (4,), "f32"), Buffer("oneidle", (4,), "f32")),
    *(Buffer("twoidle", (4,), "f32"), Buffer("other", (1,), "f32")),
)


def product(name: str, rows: int) -> MatmulOp:
    return MatmulOp(rows, 3, 2, Ref(f"{name}x"), Ref("w"), Ref(f"{name}h"))


def test_refs_of_both_passes_are_parts_of_common_buffers() -> None:
    add = {"a": Ref("oneh", 3, 6), "b": Ref("twoh", 2), "scale": Ref("s"), "out": Ref("twox")}
    add |= {"n": 4, "scaled": 0}
    ops = [Memset(Ref("onex")), Copy(Ref("twox", 1, 2), Ref("other"), "dtod")]
    group = MatmulGroup((product("one", 4), product("two", 2)))
    forked = Branches(((Launch("scaled_add", add),), (Memset(Ref("other")),)))
    found = rows_together([*ops, group, forked], BUFFERS, "one", "two")
    assert found.ops == (
        Memset(Ref("togetherx", 0, 8)),
        Copy(Ref("togetherx", 9, 2), Ref("other"), "dtod"),
        replace(product("one", 4), a=Ref("togetherx", 0, 8), out=Ref("togetherh", 0, 12)),
        replace(product("two", 2), a=Ref("togetherx", 8, 4), out=Ref("togetherh", 12, 6)),
        Launch(
            "scaled_add",
            {
                "a": Ref("togetherh", 3, 6),
                "b": Ref("togetherh", 14, 4),
                "scale": Ref("s"),
                "out": Ref("togetherx", 8, 4),
                "n": 4,
                "scaled": 0,
            },
        ),
        Memset(Ref("other")),
    )
    assert set(found.buffers) == {
        Buffer("togetherh", (6, 3), "f32"),
        Buffer("togetherx", (6, 2), "f32"),
    }
    # What was in two products is one now.
    first, second = (op for op in found.ops if isinstance(op, MatmulOp))
    assert len(MatmulGroup((first, second)).in_launch) == 1


@pytest.mark.parametrize("names", ["wide", "kind", "alone"])
def test_what_does_not_fit_together_stays(names: str) -> None:
    """Rows of another width or type, and what one pass alone has."""
    ops = [Memset(Ref(b.name)) for b in BUFFERS if b.name.endswith(names)]
    found = rows_together(ops, BUFFERS, "one", "two")
    assert (found.ops, found.buffers) == (tuple(ops), ())


def test_a_buffer_that_nothing_touches_is_not_made() -> None:
    assert rows_together([Memset(Ref("oneidle"))], BUFFERS, "one", "two").buffers == ()


@pytest.mark.parametrize(
    "config",
    [full(), full(learn__vaccine=False), small()],
    ids=["full", "no vaccine", "no denoising"],
)
def test_a_learner_has_its_denoising_rows_behind_the_batchs(config: Config) -> None:
    trainer = make(HostDevice(), ways(config, "ends-grouped"), ALL - {8})
    made = {b.name for b in trainer.learn_program.buffers if b.name.startswith("together")}
    assert bool(made) is config.aux.denoise
    left = {b.name for b in trainer.learn_program.buffers if b.name.startswith("noised")}
    assert all("denoise" in name for name in left)
    wanted = trajectory(make(HostDevice(), ways(config, "ends"), ALL - {8}), 4)
    assert trajectory(trainer, 4) == wanted
