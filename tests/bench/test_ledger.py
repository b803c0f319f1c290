"""What the ledger costs: one count, and a step's worth of them."""

from __future__ import annotations

from onegraph.kernels.device import Ledger


def test_one_count(benchmark):
    ledger = Ledger()
    benchmark.group = "ledger"
    benchmark(ledger.count, "launch")


def test_a_step_of_forty_counts(benchmark):
    ledger = Ledger()

    def step() -> None:
        ledger.begin("learn", 0)
        for _ in range(40):
            ledger.count("launch")
        ledger.end()

    benchmark.group = "ledger"
    benchmark(step)
    assert ledger.totals["learn", "", "launch"] >= 40
