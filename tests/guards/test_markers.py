import subprocess
import sys

import pytest

from onegraph.guards import cold_path, hot_path


def test_hot_path_returns_the_function_itself():
    def step():
        return 7

    assert hot_path(step) is step
    assert step.__onegraph_hot_path__ is True
    assert step() == 7


def test_cold_path_returns_the_function_itself_and_keeps_the_reason():
    def summary():
        return 7

    assert cold_path("once an epoch")(summary) is summary
    assert summary.__onegraph_cold_path__ == "once an epoch"
    assert summary() == 7


def test_markers_work_on_methods_above_and_below_the_builtin_decorators():
    class Replay:
        @hot_path
        def sample(self):
            return "sample"

        @staticmethod
        @hot_path
        def below():
            return "below"

        @hot_path
        @staticmethod
        def above():
            return "above"

        @cold_path("construction")
        @classmethod
        def build(cls):
            return cls()

    replay = Replay.build()
    assert (replay.sample(), replay.below(), replay.above()) == ("sample", "below", "above")
    assert Replay.below.__onegraph_hot_path__ is True
    assert Replay.__dict__["above"].__onegraph_hot_path__ is True
    assert Replay.__dict__["build"].__onegraph_cold_path__ == "construction"


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda: hot_path(), "missing 1 required positional argument"),
        (lambda: hot_path("reason"), "@hot_path marks a function, not 'reason'; write @hot_path"),
        (lambda: hot_path(int), "@hot_path marks a function, not int"),
        (lambda: cold_path(), "missing 1 required positional argument"),
        (lambda: cold_path(""), "@cold_path needs a reason, a non-empty string, but got ''"),
        (lambda: cold_path("  \n"), "@cold_path needs a reason"),
        (lambda: cold_path(None), "but got None"),
        (lambda: cold_path(len), "but got len; write @cold_path"),
        (lambda: cold_path("reason")(3), "@cold_path marks a function, not 3"),
    ],
)
def test_a_wrong_use_is_refused_where_it_is_written(apply, message):
    with pytest.raises(TypeError, match=message.replace("(", r"\(").replace(")", r"\)")):
        apply()


@pytest.mark.parametrize("first", [hot_path, cold_path("reason")])
def test_a_function_cannot_be_hot_and_cold(first):
    second = cold_path("reason") if first is hot_path else hot_path

    def step(): ...

    with pytest.raises(TypeError, match="step is marked both @hot_path and @cold_path"):
        second(first(step))


def test_importing_the_guards_loads_neither_the_project_nor_numpy_nor_cuda():
    code = (
        "import sys, onegraph.guards;"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'cuda', 'libcst'}),"
        " *sorted(m for m in sys.modules if m.startswith('onegraph.')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == ["onegraph.guards", "onegraph.guards.markers"]
