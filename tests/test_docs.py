"""What the pages say is there: every link leads somewhere, and every part has its lines."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DETAILS = ROOT / "docs" / "implementation-details.md"

#: Modules of `trainer/blocks` that are no part of a learner, but what the parts are made with.
MACHINERY = {"__init__", "emit", "layout", "grouping", "head_loss", "hidden"}


def links(page):
    """Targets of a page's links that lie in the repository, as (path, anchor)."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield (page.parent / path if path else page), anchor


def anchors(page):
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for path, anchor in links(page):
        assert path.exists(), f"{page.name} links to {path}"
        assert not anchor or anchor in anchors(path), f"{page.name}: no heading {anchor} in {path}"


def test_every_part_of_the_learner_has_its_lines():
    named = {path.resolve() for path, _ in links(DETAILS)}
    parts = {p for p in (ROOT / "trainer/blocks").glob("*.py") if p.stem not in MACHINERY}
    assert parts <= named


def test_every_part_has_a_section_and_a_file_of_its_code():
    """Each row of the table: a section of the page, and at least two files that exist."""
    rows = [line for line in DETAILS.read_text().splitlines() if line.startswith("| [")]
    assert len(rows) >= 15
    for row in rows:
        anchor, *files = re.findall(r"\]\(([^)]+)\)", row)
        assert anchor[1:] in anchors(DETAILS), row
        assert len(files) >= 2, row
        for file in files:
            assert (DETAILS.parent / file).is_file(), file


def test_configs_named_in_the_table_exist():
    from onegraph.trainer.config import config_reference

    fields = {field.name for field in config_reference()}
    sections = {name.rpartition(".")[0] for name in fields}
    rows = [
        line.split("|")[2] for line in DETAILS.read_text().splitlines() if line.startswith("| [")
    ]
    named = {n for cell in rows for n in re.findall(r"`([a-z_.0-9]+)(?: = [^`]*)?`", cell)}
    assert named <= fields | sections, named - fields - sections
