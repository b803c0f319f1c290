"""The rule pages are what the rules say."""

from pathlib import Path

from onegraph.guards.docs import pages, write

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "rules"


def test_the_pages_are_those_of_the_rules():
    on_disk = {p.name: p.read_text(encoding="utf-8") for p in FOLDER.glob("*.md")}
    assert on_disk == pages(), "run `make docs`"


def test_writing_takes_away_the_page_of_a_rule_that_is_gone(tmp_path):
    (tmp_path / "GRD000.md").write_text("an old rule")
    write(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == set(pages())
