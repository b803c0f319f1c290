"""The page about any loop: a real one's, read back as a browser would."""

import shlex
import sys
from dataclasses import replace

import pytest
from page_reader import (
    HOSTILE,
    DrawingDevice,
    Page,
    leads_to,
    loads_nothing,
    needs_browser,
    shown_without_complaint,
)
from planted_stages import own_loop

from onegraph.kernels.device import DeviceError, HostDevice
from onegraph.stages import STAGES, ProgramError, StageSetError
from onegraph.stages.bench import BenchError, bench
from onegraph.stages.page.charts import PlotUnavailableError
from onegraph.stages.page.loop_facts import TIMED_STEPS, LoopReportError
from onegraph.stages.page.loop_report import loop_report
from onegraph.stages.verify import VerifyError, cumulative_sets, verify

pytestmark = pytest.mark.slow

SUBJECT = own_loop.SUBJECT
SECTIONS = ("verify", "stages", "calls", "phases", "graph", "commands")
LABELS = [
    "0 legacy",
    "0,3 phase-events",
    "0,3,4 device-scalars",
    "0,3,4,5 child-graphs",
    "0,3,4,5,6 parent-graph",
]
PHASES = ["batch", "assign", "move", "report"]
#: A stage that leaves everything as it is, its promise too.
LAZY = replace(own_loop.OWN, rewrite=lambda program, parts: program)


def refuse(program, parts):
    raise ProgramError("the part is missing")


#: A stage whose sets can't be run.
BROKEN = replace(own_loop.OWN, rewrite=refuse)


def report(path, subject=SUBJECT, **how):
    """A quick page."""
    quick = {"steps": 4, "rounds": 1} | how
    return loop_report(subject, HostDevice, path, **quick)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "a <b>page.html"
    return path, report(path, steps=12, rounds=5)


@pytest.fixture(scope="module")
def page(made):
    return Page(made[0])


def column(page, section, first=None):
    """The first cells of a section's tables; from the row whose first cell is `first` on."""
    cells = [row[0] for row in page.tables[section]]
    return cells[cells.index(first) :] if first else cells


# ---------------------------------------------------------------- the page as a whole


def test_every_section_is_there_and_the_navigation_leads_to_it(page):
    leads_to(page, SECTIONS)


def test_the_page_loads_nothing(page):
    loads_nothing(page)


def test_hostile_names_are_text(tmp_path):
    stage = replace(own_loop.OWN, name=HOSTILE)
    subject = replace(SUBJECT, name=HOSTILE, known=(STAGES[0], STAGES[3], stage))
    report(tmp_path / "page.html", subject, made_by=["python", HOSTILE])
    page = Page(tmp_path / "page.html")
    loads_nothing(page)
    assert not page.tags & {"script", "img"}
    assert HOSTILE in page.text[""]
    assert page.row("verify", f"0,3,4 {HOSTILE}")[-1] == "ok"
    assert f"python {shlex.quote(HOSTILE)}" in page.text["commands"]


def test_it_says_what_was_asked_for_and_how_to_ask_again(page):
    assert shlex.join(sys.orig_argv) in page.text["commands"]
    assert page.row("commands", "subject")[1] == "mini-batch k-means"
    assert page.row("commands", "device")[1] == "host (NumPy)"
    assert page.row("commands", "sets")[1] == "0; 0,3; 0,3,4; 0,3,4,5; 0,3,4,5,6"
    assert page.row("commands", "verified")[1] == "12 steps at each set"
    assert page.row("commands", "timed")[1] == "program kmeans, 5 rounds; phases of 8 steps"
    assert page.row("commands", "stages")[1] == (
        "0 legacy, 3 phase-events, 4 device-scalars, 5 child-graphs, 6 parent-graph"
    )


# ---------------------------------------------------------------- its figures


def test_each_set_is_verified(made, page):
    _, facts = made
    assert facts.verification.ok
    digest = facts.verification.sets[0].choices[:8]
    assert [page.row("verify", label) for label in LABELS] == [
        [LABELS[0], digest, "-", "-", "ok"],
        *([label, digest, "equal", "equal", "ok"] for label in LABELS[1:]),
    ]
    assert "Verified: 5 sets of stages, each as it promises." in page.text["verify"]
    assert "CUPTI: not counted; the host device makes no driver calls" in page.text["verify"]
    assert "5 of 5" in page.text[""]


def test_the_times_are_those_of_the_benchmark(made, page):
    _, facts = made
    assert column(page, "stages") == ["stages", *LABELS]
    base = facts.times.entries[0]
    for label, entry, calls, nodes in zip(
        LABELS, facts.times.entries, (12, 12, 4, 4, 1), (0, 0, 0, 4, 4), strict=True
    ):
        median, low, high, ratio, *counts = page.row("stages", label)[1:]
        assert float(median.replace(",", "")) == pytest.approx(entry.time.median, abs=0.05)
        assert float(low.replace(",", "")) == pytest.approx(entry.time.low, abs=0.05)
        assert float(high.replace(",", "")) == pytest.approx(entry.time.high, abs=0.05)
        assert float(ratio.rstrip("×")) == pytest.approx(entry.speed_up(base).median, abs=0.005)
        assert counts == [str(calls), str(nodes)]
    assert "NumPy, 5 rounds" in page.text["stages"]


def test_the_calls_stand_beside_their_budgets(page):
    """By hand: what the example's programs do, and what their stages allow."""
    header = ["launch", "graph", "HtoD", "DtoH", "DtoD", "memset", "alloc", "sync", "host"]
    assert page.tables["calls"] == [
        ["stages", "program", *header, "event", "nodes"],
        # The counter goes up, the inertia comes down; both copies wait, and so does the memset.
        [LABELS[0], "kmeans", "3", "0", "1", "1", "0", "1", "2", "2", "2", "0", ""],
        [LABELS[1], "kmeans", "3", "0", "1", "1", "0", "1", "2", "2", "2", "5", ""],
        [LABELS[2], "kmeans", "4", "0", "0/0", "0/0", "0", "0", "0/0", "0/0", "0/0", "5", ""],
        [LABELS[3], "kmeans", "0/0", "4/4", *["0/0"] * 7, "5", "4"],
        [LABELS[4], "kmeans", "0/0", "1/1", *["0/0"] * 7, "5", "4"],
    ]
    assert "12 device calls at 0 legacy and 1 at 0,3,4,5,6 parent-graph" in page.text["calls"]
    for name in ("launches", "graph launches", "HtoD", "host ops"):
        assert name in page.figures["figure-calls"]


def test_the_phases_are_those_of_the_timed_steps(made, page):
    _, facts = made
    assert [one.phases is not None for one in facts.sets] == [False, True, True, True, True]
    for one in facts.sets[1:]:
        assert one.phases.timed_steps == TIMED_STEPS
        meaning = f"{one.phases.diagnosis[:1].upper()}{one.phases.diagnosis[1:]}."
        assert page.row("phases", one.label) == [
            one.label,
            f"{one.phases.step_ms:.3f}",
            f"{one.phases.phases_ms:.3f}",
            f"{one.phases.busy_share:.0%}",
            meaning,
        ]
    for name in PHASES:
        assert page.row("phases", name)[1:] == [
            f"{one.phases.mean[name]:.4f}" for one in facts.sets[1:]
        ]
    last = facts.sets[-1].phases
    (closing,) = (row for row in page.tables["phases"] if row[0] == "all phases")
    assert float(closing[1]) == pytest.approx(last.phases_ms, abs=5e-5)
    assert f"{LABELS[-1]}: {last.diagnosis}." in page.text["phases"]


def test_the_last_sets_graph_is_drawn(page):
    kernels = ["km_advance", "km_assign", "km_move", "km_inertia"]
    assert [page.row("graph", phase) for phase in PHASES] == [
        [phase, "1", "25%", kernel] for phase, kernel in zip(PHASES, kernels, strict=True)
    ]
    for word in (*PHASES, *kernels):
        assert word in page.figures["figure-graph"]
    assert "4 work nodes in 4 clusters, 4 of them graphs. One parent graph" in page.text["graph"]
    assert "The program at 0 legacy" in page.text["graph"]
    assert "copy_dtoh h_inertia <- scratch" in page.text["graph"]
    assert "the host device has no driver to ask" in page.text["graph"]


def test_where_there_is_a_driver_its_graph_is_drawn_too(tmp_path):
    sets = [frozenset({3, 4, 5, 6})]
    loop_report(SUBJECT, DrawingDevice, tmp_path / "page.html", sets=sets, steps=4, rounds=1)
    page = Page(tmp_path / "page.html")
    assert "4 work nodes, where the program states 4" in page.text["graph"]
    for name in (*PHASES, "km_assign"):
        assert name in page.figures["figure-driver"]
    assert "digraph dot" in page.text["graph"]


# ---------------------------------------------------------------- loops that do not hold


def test_a_loop_that_does_not_verify_says_so_first(tmp_path):
    subject = replace(SUBJECT, known=(STAGES[0], LAZY))
    facts = report(tmp_path / "page.html", subject)
    assert not facts.verification.ok
    page = Page(tmp_path / "page.html")
    assert "FAILED at stages 0,4" in page.text[""]
    assert "1 of 2" in page.text[""]
    row = page.row("verify", "0,4 device-scalars")
    assert row[-1] == "FAILED: program-budget, ledger-budget"
    assert "copy_dtoh h_inertia <- scratch" in page.text["verify"]
    assert page.row("calls", "0,4 device-scalars")[4:6] == ["1/0", "1/0"]
    assert "failed the verification: 0,4 device-scalars" in page.text["stages"]
    assert page.row("stages", "0,4 device-scalars")[5] == "12"
    assert "No phase was timed" in page.text["phases"]


def test_a_set_that_cannot_be_run_is_not_timed_and_the_others_are(tmp_path):
    subject = replace(SUBJECT, known=(STAGES[0], STAGES[3], BROKEN))
    report(tmp_path / "page.html", subject)
    page = Page(tmp_path / "page.html")
    assert page.row("verify", "0,3,4 device-scalars")[-1] == "FAILED: run"
    assert "the part is missing" in page.text["verify"]
    assert column(page, "stages") == ["stages", *LABELS[:2]]
    assert "Not timed: 0,3,4 device-scalars" in page.text["stages"]
    assert "At stages 3 phase-events" in page.text["graph"]


def test_a_loop_of_which_nothing_runs_gets_a_page_that_says_why(tmp_path):
    subject = replace(SUBJECT, choices="labels")
    facts = report(tmp_path / "page.html", subject)
    assert facts.sets == ()
    page = Page(tmp_path / "page.html")
    leads_to(page, SECTIONS)
    assert "kmeans has no buffer 'labels' at these stages" in page.text["verify"]
    for name in ("stages", "graph"):
        assert "no set of stages runs, as the verification found" in page.text[name]
    assert "0 of 5" in page.text[""]


def test_sets_that_do_not_fit_together_are_not_timed_and_the_page_says_so(tmp_path, monkeypatch):
    def full(*_, **__):
        raise DeviceError("CUDA_ERROR_OUT_OF_MEMORY", "allocate", "", "no 4 GB")

    monkeypatch.setattr("onegraph.stages.page.loop_facts.bench", full)
    report(tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert (
        "The stages were not timed: CUDA_ERROR_OUT_OF_MEMORY at allocate: no 4"
        in page.text["stages"]
    )
    assert page.row("graph", "assign")[1] == "1"


# ---------------------------------------------------------------- what is there already


def test_what_was_measured_before_is_shown_and_not_measured_again(tmp_path, monkeypatch):
    sets = cumulative_sets(own_loop.KNOWN)
    verified = verify(SUBJECT, HostDevice, steps=5)
    with HostDevice() as device:
        timed = bench(SUBJECT, sets, device, program="kmeans", rounds=2)
    monkeypatch.setattr("onegraph.stages.page.loop_facts.bench", None)
    monkeypatch.setattr("onegraph.stages.page.loop_facts.verify", None)
    facts = loop_report(SUBJECT, HostDevice, tmp_path / "page.html", verified=verified, timed=timed)
    assert (facts.verification, facts.times) == (verified, timed)
    page = Page(tmp_path / "page.html")
    assert page.row("commands", "verified")[1] == "5 steps at each set"
    assert "2 rounds" in page.row("commands", "timed")[1]


@pytest.fixture(scope="module")
def found():
    """A verification and a benchmark of stage 0."""
    with HostDevice() as device:
        timed = bench(SUBJECT, [frozenset()], device, program="kmeans", rounds=1)
    return verify(SUBJECT, HostDevice, [frozenset()], steps=3), timed


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"verified": 0, "sets": [frozenset()]}, LoopReportError, "leave out `sets` or `verif"),
        (
            {"verified": "other"},
            LoopReportError,
            "`verified` is of 'other' and the report",
        ),
        ({"timed": "other"}, LoopReportError, "`timed` is of 'other' and the report"),
        ({"timed": 1, "program": "learn"}, LoopReportError, "program 'learn' is none of kmeans;"),
        ({"program": "learn"}, LoopReportError, "program 'learn' is none of kmeans; name one"),
        ({"steps": 2}, VerifyError, "2 steps are too few"),
        ({"rounds": 0}, BenchError, "rounds = 0 measures nothing"),
        ({"sets": [frozenset({6})]}, StageSetError, "parent-graph needs child-graphs"),
        ({"sets": [frozenset({1})]}, StageSetError, "stage 1 is unknown"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(tmp_path, found, how, error, said):
    verified, timed = found
    given = {
        name: {0: verified, 1: timed, "other": replace(found[name == "timed"], subject="other")}[v]
        if name in ("verified", "timed")
        else v
        for name, v in how.items()
    }
    with pytest.raises(error, match=said):
        report(tmp_path / "page.html", **given)
    assert not (tmp_path / "page.html").exists()


def test_times_of_another_program_are_refused(tmp_path, found):
    _, timed = found
    with pytest.raises(LoopReportError, match="of program 'other' and the report of 'kmeans'"):
        report(tmp_path / "page.html", timed=replace(timed, program="other"), program="kmeans")


@pytest.mark.parametrize("name", ["", "no/folder/page.html"])
def test_a_place_that_cannot_be_written_to_is_said_before_any_work(tmp_path, monkeypatch, name):
    monkeypatch.setattr("onegraph.stages.page.loop_report.gather_loop", None)
    with pytest.raises(LoopReportError, match="can't be written there; name a file in a folder"):
        report(tmp_path / name)


def test_without_matplotlib_the_extra_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("onegraph.stages.page.loop_report.gather_loop", None)
    with pytest.raises(PlotUnavailableError, match=r"pip install 'onegraph\[plot\]'"):
        report(tmp_path / "page.html")


# ---------------------------------------------------------------- in a browser


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, 1), (500, 0)], ids=["light", "dark, narrow"])
def test_a_browser_shows_the_page_without_complaint(made, tmp_path, width, scheme):
    shown_without_complaint(made[0], tmp_path, width, scheme)
