"""The loop of rounds on a GPU: a while-node, attended through pinned memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from trainer.epoch_contract import LOOPED, STEPWISE, EpochGraphContract
from trainer.setups import end_of, fill, full, make, market, short

from onegraph.kernels.common.layout import Counter, LoopEnding
from onegraph.kernels.device import Device
from onegraph.stages.registry import up_to
from onegraph.stages.verify import verify
from onegraph.trainer.config import Config
from onegraph.trainer.loop import Loop
from onegraph.trainer.subject import TrainerSubject

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]


@pytest.fixture
def open_device(cuda: Device) -> Callable[[], Device]:
    return lambda: cuda


class TestEpochGraph(EpochGraphContract):
    pass


@pytest.mark.parametrize("config", [short(), market(), full()], ids=["chain", "market", "full"])
def test_the_driver_has_the_nodes_that_the_graph_states(cuda: Device, config: Config) -> None:
    trainer = fill(make(cuda, config, LOOPED))
    trainer.take_rounds(2)
    bound = trainer.runners["epoch"]._graphs[0]
    assert bound.plain is not None
    # A product of cuBLASLt may be more than one node; those of our kernels are one each.
    assert cuda.driver_node_count(bound.plain.graph) >= bound.plain.graph.node_count()
    trainer.close()


@pytest.mark.slow
def test_ten_thousand_rounds_in_one_launch_are_those_of_ten_thousand_launches(cuda: Device) -> None:
    config = short(loop__epoch_steps=512)
    stepwise, looped = (fill(make(cuda, config, s)) for s in (STEPWISE, LOOPED))
    for _ in range(10_000):
        stepwise.collect()
        stepwise.learn()
    looped.take_rounds(1)
    taken = looped.take_rounds(9_999)
    assert taken.calls.by_kind() == {"graph_launch": 1}
    assert (taken.ending, taken.learns) == (LoopEnding.REACHED, 10_000)
    assert end_of(looped) == end_of(stepwise)
    stepwise.close()
    looped.close()


@pytest.mark.slow
def test_the_host_watches_a_long_loop_and_stops_it_in_time(cuda: Device) -> None:
    """The figures that are read rise while it runs, and it ends within two rounds of the flag."""
    trainer = fill(make(cuda, short(loop__epoch_steps=512), LOOPED))
    trainer.take_rounds(1)
    seen: list[int] = []

    def look() -> None:
        seen.append(trainer.seen_learns)
        if len(seen) == 20:
            trainer.stop_rounds()

    taken = trainer.take_rounds(10**9, look=look)
    assert taken.ending is LoopEnding.STOPPED
    assert seen == sorted(seen)
    assert len(set(seen)) > 10
    assert taken.learns == trainer.workspace.read("counters")[Counter.RNG]
    trainer.close()


@pytest.mark.slow
def test_the_host_sleeps_meanwhile(cuda: Device) -> None:
    """No figure is asserted beyond what tells sleeping from spinning."""
    trainer = fill(make(cuda, short(loop__epoch_steps=512), LOOPED))
    trainer.take_rounds(2_000)
    wall, processor = time.perf_counter(), time.process_time()
    trainer.take_rounds(20_000)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"wall {wall:.3f} s, host processor {processor:.3f} s, {processor / wall:.2%}")
    assert processor < wall / 2
    trainer.close()


@pytest.mark.slow
def test_verification_holds_with_it(cuda: Device) -> None:
    """Bits, ledger and, where it is, CUPTI: one launch, into which it does not see."""
    result = verify(TrainerSubject(short()), lambda: cuda_again(), [up_to(6), up_to(8)], steps=8)
    assert result.ok, [str(f) for s in result.sets for f in s.findings]


def cuda_again() -> Device:
    from onegraph.kernels.device.cuda import CudaDevice

    return CudaDevice()


@pytest.mark.slow
def test_a_loop_logs_what_steps_log(cuda: Device, tmp_path: Path) -> None:
    config = market(
        loop__epoch_steps=64,
        loop__timed_steps=8,
        loop__start_steps=64,
        replay__capacity=256,
        loop__total_env_steps=64 + 4 * 191,
    )
    trainer = make(cuda, config, LOOPED)
    # The device, and so its ledger, is that of all tests of the module.
    before = cuda.ledger.totals["round", "epoch", "graph_launch"]
    epochs = Loop(trainer, tmp_path).run()
    assert [e.learn_steps for e in epochs] == [64, 128, 192]
    assert all(e.phases is not None and e.phases.timed_steps == 8 for e in epochs)
    assert cuda.ledger.totals["round", "epoch", "graph_launch"] - before == 3
    trainer.close()
