"""The guard on this repository: clean as it stands, and planted violations seen with chains."""

import shutil
from pathlib import Path

import pytest
from guard_runs import chains

from onegraph.guards.check import check
from onegraph.guards.config import load_config

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("guards", "kernels", "stages", "trainer")


def test_this_repository_is_clean_and_its_steps_are_hot():
    report = check([ROOT / layer for layer in (*LAYERS, "tests")], load_config(ROOT))
    assert report.findings == ()
    assert report.hot > 10


def test_no_allow_comment_lacks_a_reason():
    report = check([ROOT / layer for layer in LAYERS], load_config(ROOT))
    allows = [
        (module.shown, row, reason)
        for module in report.tree.project.modules.values()
        for row, _, _, _, reason in module.declared["allows"]
        if module.shown.split("/")[0] in LAYERS
    ]
    assert [a for a in allows if not a[2]] == []


@pytest.fixture
def copy(tmp_path):
    """A copy of the sources, to plant in."""
    for layer in LAYERS:
        shutil.copytree(
            ROOT / layer, tmp_path / layer, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path.resolve()


def put(copy, file, before, new):
    """`new`, indented as it stands, in front of the first `before` of a file."""
    path = copy / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, new + before, 1))


def planted(copy, code):
    report = check([copy], load_config(copy))
    assert {f.code for f in report.findings} == {code}
    return report


HELPERS = """\
def _watch(space: Workspace) -> None:
    _look(space)


def _look(space: Workspace) -> None:
    _peek(space)


def _peek(space: Workspace) -> None:
    {line}


"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('space.arrays["stats"].to_host()', "GRD102"),
        ('space.read("stats")', "GRD102"),
        ('space.device.launch(space.device.prepare("memset", {}))', "GRD301"),
        ('space.device.allocate((4,), "f32")', "GRD401"),
        ("space.device.synchronize()", "GRD101"),
    ],
)
def test_what_stands_three_calls_below_the_step_is_found_with_its_chain(copy, line, code):
    put(copy, "stages/runner.py", "class _BoundGraph:", HELPERS.format(line=line))
    put(
        copy,
        "stages/runner.py",
        "        ledger = self.device.ledger\n",
        "        _watch(self.workspace)\n",
    )
    (chain,) = set(chains(planted(copy, code), code))
    below = "stages.runner._watch -> onegraph.stages.runner._look -> onegraph.stages.runner._peek"
    assert (
        chain
        == (
            "onegraph.trainer.trainer.Trainer.collect -> onegraph.stages.runner.Runner.step"
            f" -> onegraph.{below}"
        )
        or chain == f"onegraph.stages.runner.Runner.step -> onegraph.{below}"
    )


def test_an_allocation_in_the_hot_loop_is_found(copy):
    put(
        copy,
        "trainer/loop.py",
        "            self._check_stop()\n",
        '            trainer.device.upload(np.zeros(4), "scratch")\n',
    )
    (chain,) = chains(planted(copy, "GRD202"), "GRD202")
    assert chain == "onegraph.trainer.loop.Loop._epoch"


def test_a_launch_with_the_drivers_package_is_found(copy):
    put(
        copy,
        "kernels/device/cuda.py",
        "class CudaDevice(",
        "from onegraph.guards import hot_path\n\n\n@hot_path\n"
        "def step(config: object, kernel: object) -> None:\n"
        "    from cuda.core import Device as Card\n    from cuda.core import launch as go\n\n"
        "    go(Card().create_stream(), config, kernel)\n\n\n",
    )
    assert chains(planted(copy, "GRD301"), "GRD301") == ["onegraph.kernels.device.cuda.step"]


@pytest.mark.parametrize(
    "line",
    [
        "from onegraph.trainer.legacy import parts\n",
        "from .legacy.replay import PrioritizedReplay\n",
        "from cuda.bindings import driver\n",
    ],
)
def test_an_import_of_legacy_code_or_of_the_driver_is_found(copy, line):
    put(copy, "trainer/loop.py", "import json\n", line)
    report = planted(copy, "GRD602")
    assert {f.path for f in report.findings} == {"trainer/loop.py"}


def test_a_wait_in_a_capture_is_found_in_cold_code(copy):
    put(
        copy,
        "stages/runner.py",
        "            for action in actions:\n                action()\n"
        "        self.device.ledger.phase = before",
        "            self.device.synchronize()\n",
    )
    report = planted(copy, "GRD601")
    assert report.findings[0].function == "onegraph.stages.runner._BoundGraph._captured"
