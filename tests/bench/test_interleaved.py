"""What `interleaved` hands to pytest-benchmark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from interleaved import record, stage_labels

from onegraph.stages.bench import BenchResult, Entry

RESULT = BenchResult(
    "power",
    "learn",
    "NumPy",
    (
        Entry("0 legacy", (400.0, 900.0), steps=5),
        Entry("0-6 parent-graph", (200.0, 300.0), steps=10, calls={"graph_launch": 1}, nodes=8),
    ),
    {"abacus float32": "No module named 'abacus'"},
)


def test_an_absent_peer_is_skipped_by_name():
    with pytest.raises(pytest.skip.Exception, match="abacus float32: No module named 'abacus'"):
        record(Fixture(), RESULT, "abacus float32")


def test_the_stages_are_named_as_the_toolkit_names_them():
    assert stage_labels()[0] == "0 legacy"
    assert stage_labels()[-2:] == ["0-7 fused-phases", "0-8 epoch-graph"]


class Fixture:
    """As much of pytest-benchmark's fixture as `record` touches; it keeps what it was given."""

    def __init__(self) -> None:
        self.extra_info, self.iterations, self.data = {}, 0, []
        self.stats = SimpleNamespace(stats=self)

    def _make_stats(self, iterations):
        self.iterations = iterations
        return self

    def update(self, seconds):
        self.data.append(seconds / self.iterations)


def test_a_sample_is_recorded_as_seconds_of_all_its_steps():
    fixture = Fixture()
    record(fixture, RESULT, "0-6 parent-graph")
    assert fixture.iterations == 10
    assert fixture.data == pytest.approx([200e-6, 300e-6])
    assert fixture.extra_info["calls"] == {"graph_launch": 1}
    assert fixture.extra_info["nodes"] == 8
    assert fixture.extra_info["speed_up"][0] == pytest.approx(2.5)  # of the rounds' 2 and 3


def test_the_rounds_come_through_the_real_fixture(benchmark):
    if benchmark.disabled:
        benchmark(lambda: None)
        pytest.skip("benchmarks are disabled, so that nothing is stored")
    made = benchmark._add_stats
    benchmark._add_stats = lambda stats: None  # these times are no measurement: keep them out
    try:
        record(benchmark, RESULT, "0 legacy")
    finally:
        benchmark._add_stats = made
    stored = benchmark.stats.as_dict()
    assert stored["stats"]["data"] == pytest.approx([400e-6, 900e-6])
    assert stored["stats"]["iterations"] == 5
