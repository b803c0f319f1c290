"""The page about a loop of one's own, verified, timed and drawn on a GPU."""

from __future__ import annotations

import pytest
from page_reader import Page, leads_to, loads_nothing
from planted_stages import own_loop

from onegraph.stages.page.loop_report import loop_report

pytestmark = pytest.mark.gpu

LAST = "0,3,4,5,6 parent-graph"


def test_the_page_of_the_own_loop(cuda, tmp_path):
    pytest.importorskip("matplotlib", reason="the page's charts need matplotlib")
    path = tmp_path / "page.html"
    facts = loop_report(own_loop.SUBJECT, type(cuda), path, steps=8, rounds=5)
    assert facts.verification.ok, "\n".join(
        f"{label}: {finding}" for label, finding in facts.verification.findings
    )
    page = Page(path)
    leads_to(page, ("verify", "stages", "calls", "phases", "graph", "commands"))
    loads_nothing(page)
    assert cuda.name in page.text["stages"]
    assert page.row("stages", LAST)[5:] == ["1", "4"]
    assert page.row("verify", LAST)[-1] == "ok"
    assert "4 work nodes, where the program states 4" in page.text["graph"]
    for kernel in ("km_advance", "km_assign", "km_move", "km_inertia"):
        assert kernel in page.figures["figure-driver"]
    phases = facts.sets[-1].phases
    assert phases is not None
    assert all(ms > 0 for ms in phases.last.values())
    assert phases.phases_ms <= phases.step_ms
    assert phases.diagnosis in page.text["phases"]
