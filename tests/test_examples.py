"""The example runs, holds what it promises, and stays small; the page beside it is true."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_reader import Page, leads_to, loads_nothing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
EXAMPLE = EXAMPLES / "own_loop.py"
KERNELS = EXAMPLES / "own_loop_kernels"
PAGE = ROOT / "docs" / "writing-a-stage.md"


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A process of its own: the example's kernels are declared in it alone."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "140"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> str:
    """The example, run from another folder."""
    done = python(str(EXAMPLE), "host", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_each_set_verifies(output: str) -> None:
    rows = [line.split() for line in output.splitlines() if " kmeans " in line]
    assert [row[0] for row in rows] == ["0", "0,3", "0,3,4", "0,3,4,5", "0,3,4,5,6"]
    assert {row[-1] for row in rows} == {"ok"}
    assert len({row[1] for row in rows}) == 1
    assert output.rstrip().endswith("verified: 5 sets of stages, each as it promises")


def test_the_last_stage_leaves_one_graph_launch(output: str) -> None:
    header = next(line.split() for line in output.splitlines() if "choices" in line)
    header = [word for word in header if word not in ("0", "prev.")]  # "from 0", "from prev."
    last = next(line.split() for line in output.splitlines() if " 0,3,4,5,6 " in f" {line} ")
    cells = dict(zip(header[header.index("launch") :], last[5:], strict=False))
    assert cells["graph"] == "1/1"
    assert {cells[name] for name in ("launch", "HtoD", "DtoH", "alloc", "sync", "host")} == {"0/0"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> tuple[str, Path]:
    """What the example prints and writes when it is asked for all that it does, without paths."""
    pytest.importorskip("matplotlib", reason="the page's charts need matplotlib")
    folder = tmp_path_factory.mktemp("page")
    done = python("-P", str(EXAMPLE), "host", "--bench", "--report", "k.html", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout, folder / "k.html"


LABELS = [
    "0 legacy",
    "0,3 phase-events",
    "0,3,4 device-scalars",
    "0,3,4,5 child-graphs",
    "0,3,4,5,6 parent-graph",
]


def test_the_benchmark_has_a_row_for_each_set(everything: tuple[str, Path]) -> None:
    printed, _ = everything
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in printed.splitlines()
        if line.startswith("│")
    ]
    assert [row[0] for row in rows] == LABELS
    assert rows[0][3] == "1.00x"
    assert rows[-1][-2:] == ["4", "graph launches 1"]


def test_the_page_shows_what_was_printed(everything: tuple[str, Path]) -> None:
    printed, path = everything
    page = Page(path)
    leads_to(page, ("verify", "stages", "calls", "phases", "graph", "commands"))
    loads_nothing(page)
    for label in LABELS:
        median = page.row("stages", label)[1]
        assert re.search(rf"│ {re.escape(label)} +│ +{re.escape(median)} │", printed)
        assert page.row("verify", label)[-1] == "ok"
    command = f"-P {EXAMPLE} host --bench --report k.html"
    assert command in page.text["commands"]


def test_a_page_that_cannot_be_written_is_one_line_at_the_end(tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="the page's charts need matplotlib")
    done = python(str(EXAMPLE), "host", "--report", "no/k.html", cwd=tmp_path)
    assert done.returncode == 1
    assert "no/k.html: the page can't be written there" in done.stderr.splitlines()[-1]


def test_the_loop_is_k_means() -> None:
    """Against the algorithm written down again in float64, at stage 0 and with all stages."""
    check = """
import numpy as np
from onegraph.kernels.device import HostDevice
from own_loop import SUBJECT, points

STEPS = 64
x = points().astype(np.float64)
centroids, counts, inertia = x[:16].copy(), np.ones(16), []
for step in range(STEPS):
    batch = x[step * 128 % 4096:][:128]
    squared = ((batch[:, None] - centroids) ** 2).sum(2)
    labels = squared.argmin(1)
    inertia.append(squared.min(1).sum())
    for row, label in zip(batch, labels):
        counts[label] += 1
        centroids[label] = (1 - 1 / counts[label]) * centroids[label] + row / counts[label]
assert np.mean(inertia[-8:]) < 0.75 * inertia[0]
for stages in (frozenset(), frozenset({3, 4, 5, 6})):
    run = SUBJECT.at(stages, HostDevice())
    for _ in range(STEPS):
        run.step()
    # float32 against float64; no label is so near a tie that they decide it differently
    np.testing.assert_array_equal(run.choices(), labels)
    np.testing.assert_allclose(run.parameters(), centroids, rtol=1e-4, atol=1e-4)
    total = run.workspace.read("inertia" if stages else "h_total")[0]
    np.testing.assert_allclose(total, sum(inertia), rtol=1e-5)
"""
    done = python("-c", f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n{check}")
    assert done.returncode == 0, done.stderr


def test_a_device_that_is_not_known() -> None:
    done = python(str(EXAMPLE), "tpu")
    assert done.returncode == 1
    assert "device 'tpu' is unknown; choose auto, cuda or host" in done.stderr


def test_the_example_is_short_and_knows_neither_the_trainer_nor_cuda() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 150
    for path in (EXAMPLE, *KERNELS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not name.startswith(("onegraph.trainer", "cuda", "cupti", "nvmath")), path


@pytest.mark.parametrize("source", sorted(KERNELS.glob("*.cu")), ids=lambda p: p.stem)
def test_the_kernels_are_pairs_that_compile(source: Path) -> None:
    pytest.importorskip("cuda.core")
    done = python(
        "-c",
        "from onegraph.kernels.catalogue import find, load_kernels\n"
        "from onegraph.kernels.compile import compile_kernel\n"
        f"load_kernels({str(KERNELS)!r})\n"
        f"spec = find({source.stem!r})\n"
        f"assert str(spec.source) == {str(source)!r}, spec.source\n"
        "assert compile_kernel(spec, 'sm_90').startswith(b'\\x7fELF')\n",
    )
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- the page


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def quoted(block: str) -> bool:
    """Whether the block stands, as it is, in the example."""
    sources = [EXAMPLE, *sorted(KERNELS.glob("*.py"))]
    return any(block in path.read_text() for path in sources)


def test_every_block_of_the_page_is_quoted_or_runs(tmp_path) -> None:
    python_blocks = blocks(PAGE.read_text(), "python")
    quotes = [b for b in python_blocks if quoted(b)]
    rest = [b for b in python_blocks if not quoted(b)]
    assert len(quotes) >= 8
    assert len(rest) >= 9
    if importlib.util.find_spec("matplotlib") is None:  # the report's blocks come last
        first = next(i for i, block in enumerate(rest) if "loop_report" in block)
        assert first >= len(rest) - 2
        rest = rest[:first]
    script = tmp_path / "page.py"
    script.write_text("\n".join([f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})", *rest]))
    done = python(str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_block_that_is_neither_would_be_noticed() -> None:
    assert not quoted("KNOWN = (STAGES[0], OWN)\n")
    assert quoted("KNOWN = (STAGES[0], STAGES[3], OWN, STAGES[5], STAGES[6])\n")


def test_the_page_names_files_that_are_there() -> None:
    text = PAGE.read_text()
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (PAGE.parent / link).exists(), link
    for command in blocks(text, "console"):
        for path in re.findall(r"examples/\S+", command):
            assert (ROOT / path).is_file()


def test_cartpole_is_learned_in_a_few_steps(tmp_path: Path) -> None:
    """The example asserts its margin itself; it is at most 80 lines, as examples are to read."""
    example = EXAMPLES / "train_cartpole.py"
    assert len(example.read_text().splitlines()) < 80
    done = python(str(example), "1000", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "{'graph_launch': 1, 'dtoh': 1, 'sync': 1}" in done.stdout
