"""What a runner refuses before it runs anything."""

import pytest

from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, GraphLaunch, Phase, ProgramError, Ref, Runner, StepProgram
from onegraph.stages import Workspace as Space
from onegraph.stages.program import Alloc, Copy, Free, Host, Memset, Op, RecordEvent
from onegraph.stages.runnable import require_runnable

BUFFERS = (
    Buffer("d", (4,), "f32"),
    Buffer("h", (4,), "f32", "host"),
    Buffer("p", (4,), "f32", "pinned"),
    Buffer("t", (4,), "f32", transient=True),
)


def program(*ops: Op) -> StepProgram:
    return StepProgram("q", "learn", (Phase("a", ops),), BUFFERS)


def zero(name: str) -> Memset:
    return Memset(Ref(name))


@pytest.mark.parametrize(
    "ops",
    [
        (Copy(Ref("d"), Ref("h"), "htod"), Copy(Ref("h"), Ref("d"), "dtoh")),
        (Copy(Ref("d"), Ref("p"), "htod"), Copy(Ref("d"), Ref("p"), "dtod"), zero("p")),
        (Host("f", print, ("h",), ("p",)),),
        (Alloc("t"), zero("t"), Free("t"), Alloc("t"), Free("t")),
        (GraphLaunch("g", (RecordEvent(0, "c"), GraphLaunch("c", (zero("d"),)))),),
    ],
)
def test_what_can_be_run(ops: tuple[Op, ...]) -> None:
    require_runnable(program(*ops))


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([zero("h")], "memset h needs 'h' in device or pinned memory; .* in host memory"),
        ([Copy(Ref("h"), Ref("d"), "htod")], "needs 'd' in host or pinned memory"),
        ([Copy(Ref("d"), Ref("h"), "dtod")], "needs 'h' in device or pinned memory"),
        ([Copy(Ref("d"), Ref("d"), "dtoh")], "needs 'd' in host or pinned memory"),
        ([Host("f", print, ("d",))], "host f needs 'd' in host or pinned memory"),
        ([zero("t")], "memset t uses 't', which is not allocated there; put an alloc before"),
        ([Free("t")], "free t uses 't', which is not allocated"),
        ([Alloc("t"), Free("t"), zero("t")], "uses 't', which is not allocated"),
        ([Alloc("t"), Alloc("t"), Free("t")], "alloc t, which is allocated already"),
        ([Alloc("t")], "'t' is allocated in each step and never freed"),
        ([Alloc("d"), Free("d")], "alloc d, which is not declared transient"),
        ([Free("d")], "free d, which is not declared transient"),
        ([GraphLaunch("g", (Host("f", print),))], "host f stands in a graph, which can't hold it"),
        ([GraphLaunch("g", (Alloc("t"), Free("t")))], "alloc t stands in a graph"),
        (
            [GraphLaunch("g", (GraphLaunch("c", (GraphLaunch("x", ()),)),))],
            "phase x: graph_launch x is nested more than two deep",
        ),
        (
            [GraphLaunch("g", (GraphLaunch("c", (RecordEvent(0, ""),)),))],
            "phase c: record_event 0 stands in a child graph",
        ),
        ([RecordEvent(1, "a"), RecordEvent(0, "")], r"events \[1, 0\] do not count up from 0"),
        ([RecordEvent(0, "a"), RecordEvent(2, "")], r"events \[0, 2\] do not count up from 0"),
    ],
)
def test_a_runner_refuses(ops: list[Op], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        Runner(program(*ops), Space(HostDevice()))
