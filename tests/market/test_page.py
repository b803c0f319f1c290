"""docs/markets.md says what is: its fields exist, its table loads, its excerpt is printed."""

import re
from pathlib import Path

from onegraph.trainer.cli import main
from onegraph.trainer.config import config_reference, load_config
from onegraph.trainer.envs.bars import bars_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "markets.md").read_text(encoding="utf-8")


def block(kind):
    return re.search(rf"```{kind}\n(.*?)```", PAGE, re.S).group(1)


def test_its_excerpt_is_printed(capsys):
    assert main(["data", "inspect"]) == 0
    printed = [
        " ".join(re.findall(r"[^\s│]+", line)) for line in capsys.readouterr().out.split("\n")
    ]
    for line in block("text").splitlines():
        assert line in printed


def test_its_table_of_splits_loads(tmp_path):
    (tmp_path / "x.toml").write_text(block("toml"))
    bars = bars_of(load_config(tmp_path / "x.toml").env.market)
    assert bars.adjusted
    assert len(bars.notes) == 1


def test_its_fields_and_options_exist(capsys):
    fields = {row.name.rpartition(".")[2] for row in config_reference()}
    named = set(re.findall(r"`([a-z_]+) = ", PAGE)) | set(re.findall(r"\| `([a-z_]+)` \|", PAGE))
    values = {"equity", "contracts"}
    assert named - values <= fields
    assert {row.name.split(".")[3] for row in config_reference() if ".features." in row.name} <= (
        named
    )
    assert main(["data", "inspect", "--help"]) == 0
    options = capsys.readouterr().out
    for option in re.findall(r"onegraph data inspect .*?(--[a-z-]+)", PAGE):
        assert option in options
