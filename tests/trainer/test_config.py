import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from onegraph.trainer.config import (
    Config,
    ConfigError,
    MarketConfig,
    config_from_json,
    config_reference,
    config_to_json,
    config_to_toml,
    load_config,
    override_config,
    parse_override,
    shipped_configs,
)

DATES = {
    "env.market.train_end": dt.date(2010, 1, 1),
    "env.market.validation_end": dt.date(2011, 1, 1),
}

SHIPPED = ["bit-flip", "chain", "coin", "demo", "truncation-probe", "walkforward-sample"]

SMALL = """
[env]
lanes = 4
[replay]
capacity = 100
[learn]
batch_size = 8
[loop]
start_steps = 10
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a config into an empty working directory, so that errors show its bare name."""
    monkeypatch.chdir(tmp_path)

    def write_config(text):
        (tmp_path / "x.toml").write_text(text, encoding="utf-8")
        return "x.toml"

    return write_config


def refusal(path, overrides=None):
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_preset_goes_under_the_file(write):
    full = load_config(write('preset = "full"\n[network]\nattention_groups = 4\n'))
    assert full.network.head == "iqn"
    assert full.network.attention_groups == 4
    assert full.aux.iql
    assert load_config(None, {"preset": "full", "aux.denoise": False}).aux.denoise is False
    assert load_config().network.head == "dqn"
    again = config_from_json(config_to_json(full), "again")
    assert again == full
    assert load_config(write(config_to_toml(full))) == full


def test_a_preset_is_chosen_when_a_config_is_loaded():
    with pytest.raises(ConfigError, match="load the config with it"):
        override_config(load_config(), {"preset": "full"}, "run")
    assert override_config(load_config(), {"preset": "dqn", "seed": 3}, "run").seed == 3


def test_file_goes_over_defaults_and_overrides_over_the_file(write):
    config = load_config(write(SMALL))
    assert (config.env.lanes, config.replay.capacity, config.learn.gamma) == (4, 100, 0.99)
    config = load_config("x.toml", {"env.lanes": 5, "learn.tau.end": 0.25, "seed": 7})
    assert (config.env.lanes, config.replay.capacity) == (5, 100)
    assert (config.learn.tau.kind, config.learn.tau.start, config.learn.tau.end) == (
        "cosine",
        0.01,
        0.25,
    )
    assert config.seed == 7


def test_defaults_alone_are_a_valid_config():
    assert load_config() == Config()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configs_load_by_name(name):
    assert load_config(name).run_dir == f"runs/{name}"
    assert load_config(shipped_configs()[name]) == load_config(name)


def test_a_file_named_like_a_shipped_config_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("seed = 5")
    assert load_config("demo").seed == 5


def test_a_config_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Config().seed = 1
    with pytest.raises(ValidationError, match="frozen"):
        Config().learn.lr.start = 1.0


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        # bounds
        ("seed = -1", "x.toml: seed = -1: use 0 or more"),
        (f"seed = {2**63}", f"x.toml: seed = {2**63}: use less than {2**63}"),
        ("[replay]\ncapacity = 0", "x.toml: replay.capacity = 0: use 1 or more"),
        ("[replay]\nalpha = 1.5", "x.toml: replay.alpha = 1.5: use 1.0 or less"),
        ("[learn]\ngamma = nan", "x.toml: learn.gamma = nan: use a finite number"),
        ("[learn.lr]\nstart = 0.0", "x.toml: learn.lr.start = 0.0: use more than 0.0"),
        ("[network]\nhidden = []", "x.toml: network.hidden = []: give at least 1 values"),
        ("[network]\nhidden = [64, 0]", "x.toml: network.hidden[1] = 0: use 1 or more"),
        ('stages = ""', 'x.toml: stages = "": must not be empty'),
        # types: nothing is converted behind the user's back
        ("seed = true", "x.toml: seed = true: use a whole number"),
        ("seed = 1.0", "x.toml: seed = 1.0: use a whole number"),
        ('seed = "1"', 'x.toml: seed = "1": use a whole number'),
        ("[network]\ndueling = 1", "x.toml: network.dueling = 1: use true or false"),
        ("[network]\nhidden = 64", "x.toml: network.hidden = 64: use a list, such as [64, 64]"),
        ('[network]\nhidden = ["64"]', 'x.toml: network.hidden[0] = "64": use a whole number'),
        ('[learn]\ngamma = "high"', 'x.toml: learn.gamma = "high": use a number'),
        ("run_dir = 3", "x.toml: run_dir = 3: use text, in quotes"),
        ("device = 'gpu'", "x.toml: device = \"gpu\": use 'auto', 'cuda' or 'host'"),
        (
            "[env.market]\ntrain_end = '2010'",
            'x.toml: env.market.train_end = "2010": use a date, such as 2010-01-01',
        ),
        (
            "[learn]\nlr = 0.1",
            "x.toml: learn.lr = 0.1: is a section, not a value; the fields of learn.lr are "
            "kind, steps, start, end, warm_up_steps",
        ),
        # unknown fields
        (
            "[learn]\nbatchsize = 8",
            "x.toml: learn.batchsize = 8: unknown field; did you mean learn.batch_size?",
        ),
        (
            "batch_size = 8",
            "x.toml: batch_size = 8: unknown field; did you mean learn.batch_size?",
        ),
        ("[lern]", "x.toml: lern = {}: unknown field; did you mean learn?"),
        (
            "[learn.tau]\nzzz = 1",
            "x.toml: learn.tau.zzz = 1: unknown field; the fields of learn.tau are kind, steps, "
            "start, end",
        ),
        ("seed = -1\n[learn]\ngamma = 2", "x.toml: seed = -1: use 0 or more (and 1 more)"),
        # not TOML
        (
            "seed = ",
            "x.toml: not TOML: Invalid value (at end of document); write each field as "
            "name = value, text in quotes",
        ),
    ],
)
def test_a_bad_value_is_refused_by_name(write, toml, message):
    assert refusal(write(toml)) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"learn.batch_size": 101},
            "override learn.batch_size = 101: is more than replay.capacity",
        ),
        ({"loop.start_steps": 101}, "override loop.start_steps = 101: is more than replay.capaci"),
        ({"loop.start_steps": 7}, "override loop.start_steps = 7: is less than learn.batch_size"),
        ({"loop.total_env_steps": 9}, "x.toml: loop.start_steps = 10: is more than loop.total_env"),
        ({"loop.timed_steps": 1001}, "override loop.timed_steps = 1001: is more than loop.epoch"),
        ({"replay.capacity": 3}, "override replay.capacity = 3: is less than one row for each of"),
        (
            {"replay.capacity": 102},
            "override replay.capacity = 102: is no multiple of env.lanes = 4; use 100 or 104",
        ),
        ({"replay.n_step": 26}, "override replay.n_step = 26: is longer than a lane's 25 rows"),
        ({"replay.beta_end": 0.3}, "override replay.beta_end = 0.3: is below replay.beta_start"),
        (
            {"env.market.positions": [0, 1, 0]},
            "override env.market.positions = [0.0, 1.0, 0.0]: has a position twice",
        ),
        (
            {"env.market.positions": [0, 0.5], "env.market.sizing": "contracts"},
            "override env.market.positions = [0.0, 0.5]: has part of a contract",
        ),
        (
            {"env.market.adjustments": [["2005-02-28"]]},
            'override env.market.adjustments = [["2005-02-28"]]: has a row that is no date and',
        ),
        (
            {"env.market.adjustments": [["28.2.2005", 0.5]]},
            'override env.market.adjustments = [["28.2.2005", 0.5]]: has a date that is none',
        ),
        (
            {"env.market.adjustments": [[dt.date(2005, 2, 28), 10**400]]},
            "override env.market.adjustments = [[2005-02-28, 1",
        ),
        (
            {"env.market.adjustments": [[dt.date(2005, 2, 28), True]]},
            "override env.market.adjustments = [[2005-02-28, true]]: has a ratio that is no number",
        ),
        (
            {"env.market.adjustments": [[dt.datetime(2005, 2, 28, tzinfo=dt.UTC), 2]]},
            "override env.market.adjustments = [[2005-02-28T00:00:00+00:00, 2]]: use a date",
        ),
        (
            {"env.market.adjustments": [["2005-02-28", 2], [dt.date(2005, 2, 28), 3]]},
            'override env.market.adjustments = [["2005-02-28", 2], [2005-02-28, 3]]: has a date '
            "twice",
        ),
        ({"env.market.adjustments": 0.5}, "override env.market.adjustments = 0.5: use a file's"),
        (
            {"env.market.features.returns": [1, 5, 1]},
            "override env.market.features.returns = [1, 5, 1]: has a number of bars twice",
        ),
        (
            {"env.market.features.volatility": [1]},
            "override env.market.features.volatility[0] = 1: use 2 or more",
        ),
        (
            {
                "env.market.features.returns": [],
                "env.market.features.volatility": [],
                "env.market.features.volume_mean": 0,
                "env.market.features.bar_shape": False,
            },
            "override env.market.features.returns = []: is empty, as is every other feature",
        ),
        ({"env.market.commission": 5.0}, "override env.market.commission = 5.0: is not a fraction"),
        ({"env.market.multiplier": 50.0}, "override env.market.multiplier = 50.0: has no meaning"),
        ({"env.market.data": "sample:"}, 'override env.market.data = "sample:": names no symbol'),
        (
            {"env.market.data": "sample:IBM", "env.market.symbol": "MSFT"},
            "override env.market.data = \"sample:IBM\": contradicts symbol = 'MSFT'",
        ),
        (
            {"env.market.train": 0.7},
            "override env.market.train = 0.7: makes train + validation + test = 1.1, with",
        ),
        (
            {"env.market.train_end": dt.date(2010, 1, 1)},
            "x.toml: env.market.validation_end = (not set): is absent; give both",
        ),
        (
            {
                "env.market.train_end": dt.date(2010, 1, 1),
                "env.market.validation_end": dt.date(2010, 1, 1),
            },
            "override env.market.validation_end = 2010-01-01: leaves no validation",
        ),
        (
            {"preset": "full", "learn.max_grad_norm": 0.0},
            "override learn.max_grad_norm = 0.0: is no norm to have shares of, which budget.on",
        ),
        (
            {"network.iqn.ready_low": 2.0},
            "override network.iqn.ready_low = 2.0: is not below ready_high = 1.0; the blend goes",
        ),
        ({"network.iqn.ready_decay": 1.0}, "override network.iqn.ready_decay = 1.0: use less than"),
        (
            {"network.c51.v_min": 10.0},
            "override network.c51.v_min = 10.0: is not below v_max = 10.0; lower it",
        ),
        ({"aux.modulate": True}, "override aux.modulate = true: needs the value networks; set aux"),
        (
            {"aux.modulate_low": 3.0},
            "override aux.modulate_low = 3.0: is above modulate_high = 2.0; lower it",
        ),
        (
            {"aux.expectile_high": 0.2},
            "x.toml: aux.expectile_low = 0.3: is above expectile_high = 0.2; lower it",
        ),
        (
            {"learn.budget.q": 0.8},
            "override learn.budget.q = 0.8: makes the shares add up to 1.1; they must add up to 1",
        ),
        (
            {**DATES, "env.market.train_start": dt.date(2010, 1, 1)},
            "override env.market.train_start = 2010-01-01: leaves no training; use a day before",
        ),
        (
            {**DATES, "env.market.test_end": dt.date(2011, 1, 1)},
            "override env.market.test_end = 2011-01-01: leaves no test; use a day after",
        ),
        (
            {"env.market.test_end": dt.date(2011, 1, 1)},
            "override env.market.test_end = 2011-01-01: has no meaning without dates; give train_",
        ),
        (
            {"walkforward.seeds": [1, 2, 1]},
            "override walkforward.seeds = [1, 2, 1]: has a number twice; list each once",
        ),
        ({"walkforward.seeds": 0}, "override walkforward.seeds = 0: use a list, such as"),
        ({"walkforward.seeds": []}, "override walkforward.seeds = []: give at least 1 values"),
        (
            {"walkforward.gpus": [0, 1]},
            "override walkforward.gpus = [0, 1]: is 2 devices for workers = 1, which leaves some",
        ),
        (
            {"walkforward.gpus": [0], "device": "host"},
            "override walkforward.gpus = [0]: names GPUs, and device = 'host' uses none",
        ),
        ({"learn.lrs": 1}, "override learn.lrs = 1: unknown field; did you mean learn.lr?"),
        ({"seed": 1, "seed.low": 2}, "override seed.low: seed is set to a value, so it has no low"),
    ],
)
def test_values_that_do_not_fit_one_another_are_refused(write, overrides, message):
    assert refusal(write(SMALL), overrides).startswith(message)


@pytest.mark.parametrize(
    "overrides",
    [
        {"loop.start_steps": 100, "learn.batch_size": 100},
        {"env.lanes": 100, "replay.n_step": 1},
        {"replay.beta_start": 1.0},
        {"env.market.sizing": "contracts", "env.market.multiplier": 50, "env.market.commission": 5},
        {"env.market.train": 0.5, "env.market.validation": 0.3},
        {
            "env.market.train": 0.9,  # the dates replace the fractions
            "env.market.train_end": dt.date(2010, 1, 1),
            "env.market.validation_end": dt.date(2011, 1, 1),
        },
        {"env.market.adjustments": "splits.csv"},
        {"env.market.adjustments": [[dt.date(2005, 2, 28), 0.5], ["2000-06-21", 1]]},
        {"env.market.features.returns": [], "env.market.features.volume_mean": 0},
        {
            **DATES,
            "env.market.train_start": dt.date(2009, 12, 31),
            "env.market.test_end": dt.date(2011, 1, 2),
        },
        {"env.market.data": "sample:IBM", "env.market.symbol": "IBM"},
        {"walkforward.workers": 4, "walkforward.gpus": [2, 0]},
        {"learn.max_grad_norm": 0.0},
        {"network.noisy": True, "network.spectral_cap": 1.0},
        {"network.head": "c51", "aux.iql": True, "aux.modulate": True},
        {"preset": "full", "network.residual_blocks": 0},
        {"preset": "full", "network.attention_groups": 3},  # the environment's width decides
    ],
)
def test_values_at_the_edge_are_taken(write, overrides):
    load_config(write(SMALL), overrides)


def test_a_count_of_seeds_stands_for_the_seeds_from_0(write):
    assert load_config(write("[walkforward]\nseeds = 4")).walkforward.seeds == (0, 1, 2, 3)
    assert load_config(write("[walkforward]\nseeds = [7, 3]")).walkforward.seeds == (7, 3)
    assert config_from_json(config_to_json(load_config("x.toml")), "x") == load_config("x.toml")
    assert refusal(write("[walkforward]\nseeds = true")).startswith(
        "x.toml: walkforward.seeds = true: use a list"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ", ".join(shipped_configs())
    assert refusal("none.toml") == f"none.toml: no such file; the shipped configs are {names}"
    assert names.startswith("acrobot, bit-flip, cartpole, chain")
    (tmp_path / "folder").mkdir()
    assert refusal("folder").startswith("folder: cannot be read (Is a directory)")
    (tmp_path / "latin.toml").write_bytes(b"run_dir = '\xe9'")
    assert refusal("latin.toml") == "latin.toml: not UTF-8 text (byte 11); save it as UTF-8"


def test_defaults_are_named_where_no_file_is():
    assert refusal(None, {"replay.capacity": 6400}).startswith(
        "defaults: loop.start_steps = 10000: is more than replay.capacity = 6400"
    )


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("learn.batch_size=32", "learn.batch_size", 32),
        (" network.hidden = [64, 32] ", "network.hidden", [64, 32]),
        ("network.double=false", "network.double", False),
        ("env.kind=chain", "env.kind", "chain"),
        ("env.kind='chain'", "env.kind", "chain"),
        ("stages=all,-phase-events", "stages", "all,-phase-events"),
        ("run_dir=a=b", "run_dir", "a=b"),
        ("run_dir=", "run_dir", ""),
        ("env.market.train_end=2010-01-01", "env.market.train_end", dt.date(2010, 1, 1)),
        ("seed=1\nlanes=2", "seed", "1\nlanes=2"),
    ],
)
def test_an_override_is_read_as_toml_or_text(text, field, value):
    assert parse_override(text) == (field, value)


@pytest.mark.parametrize(
    ("toml", "override", "stages"),
    [
        ("stages = 4", {}, "4"),
        ('stages = "4"', {}, "4"),
        ("", dict([parse_override("stages=4")]), "4"),
        ("", dict([parse_override("stages=0")]), "0"),
        ("stages = 2", dict([parse_override("stages=0-4")]), "0-4"),
        ("", dict([parse_override("stages=1,2")]), "1,2"),
    ],
)
def test_a_lone_number_of_stages_needs_no_quotes(write, toml, override, stages):
    config = load_config(write(toml), override)
    assert config.stages == stages
    assert load_config(write(config_to_toml(config))) == config
    assert override_config(load_config(), {"stages": 4}, "run").stages == "4"


@pytest.mark.parametrize("value", ["4.0", "true", "[1, 2]"])
def test_stages_are_text_or_a_whole_number(write, value):
    with pytest.raises(ConfigError, match=r"stages = .*: use text, in quotes"):
        load_config(write(f"stages = {value}"))


@pytest.mark.parametrize("text", ["seed", "=3", ""])
def test_an_override_without_a_field_or_equals_sign_is_refused(text):
    with pytest.raises(ConfigError, match=r"write field=value, such as learn\.batch_size=32"):
        parse_override(text)


@pytest.mark.parametrize("name", [None, *SHIPPED])
def test_a_dumped_config_loads_back_equal(write, name):
    config = load_config(name, {"run_dir": 'a "b" \\ \x7f \u00e9 \U0001f4c8\n'})
    assert load_config(write(config_to_toml(config))) == config
    assert config_from_json(config_to_json(config), "checkpoint") == config


def test_dates_survive_both_dumps(write):
    config = load_config(
        None,
        {
            "env.market.train_end": dt.date(2010, 1, 1),
            "env.market.validation_end": dt.date(2011, 1, 1),
            "env.market.adjustments": [[dt.date(2005, 2, 28), 0.5], ["2000-06-21", 2]],
        },
    )
    rows = ((dt.date(2005, 2, 28), 0.5), (dt.date(2000, 6, 21), 2.0))
    assert config.env.market.adjustments == rows
    assert load_config(write(config_to_toml(config))) == config
    assert config_from_json(config_to_json(config), "checkpoint") == config


@given(
    run_dir=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    floor=st.floats(-1e9, 0.0),
    seed=st.integers(0, 2**63 - 1),
)
def test_any_value_survives_a_dump(tmp_path_factory, run_dir, floor, seed):
    config = Config(seed=seed, run_dir=run_dir).model_copy(
        update={"env": Config().env.model_copy(update={"market": MarketConfig(floor_reward=floor)})}
    )
    file = tmp_path_factory.mktemp("dump") / "x.toml"
    file.write_bytes(config_to_toml(config).encode())
    loaded = load_config(file)
    assert loaded == config
    assert math.copysign(1, loaded.env.market.floor_reward) == math.copysign(1, floor)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "last.safetensors: EOF while parsing an object at line 1 column 1; it was not"),
        ('{"sed": 1}', "last.safetensors: sed = 1: unknown field; did you mean seed?"),
        ('{"seed": "1"}', 'last.safetensors: seed = "1": use a whole number'),
    ],
)
def test_a_damaged_json_config_is_refused(text, message):
    with pytest.raises(ConfigError) as caught:
        config_from_json(text, "last.safetensors")
    assert str(caught.value).startswith(message)


def test_the_reference_names_type_default_and_meaning_of_every_field():
    rows = {row.name: row for row in config_reference()}
    assert rows["learn.batch_size"] == (
        "learn.batch_size",
        "int, >= 1, <= 1048576",
        "64",
        "B, the rows drawn a learn step",
    )
    assert rows["learn.gamma"].type == "float, >= 0, <= 1"
    assert rows["learn.loss"].type == "huber | mse"
    assert rows["network.hidden"][1:3] == ("list of int", "[256, 256]")
    assert rows["env.market.positions"][1:3] == ("list of float", "[-1.0, 0.0, 1.0]")
    assert rows["env.market.train_end"][1:3] == ("date", "")
    assert rows["env.market.adjustments"][1:3] == ("str or list of [date, float]", '""')
    assert rows["learn.tau.kind"].default == '"cosine"'


def test_every_field_has_a_description_and_every_number_two_bounds():
    for row in config_reference():
        assert row.description, row.name
        if row.type.partition(",")[0] in ("int", "float"):
            assert ">" in row.type, row
            assert "<" in row.type, row


def test_the_reference_covers_the_resolved_dump():
    section, dumped = "", set()
    for line in config_to_toml(Config()).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif line:
            dumped.add(section + line.partition(" =")[0])
    dates = ("train_start", "train_end", "validation_end", "test_end")
    absent = {f"env.market.{name}" for name in dates}
    assert {row.name for row in config_reference()} == dumped | absent
