"""The table of APIs."""

import csv
from pathlib import Path

import check_apis

from onegraph.guards import apis

FILE = Path(apis.__file__).parent / "data" / "apis.csv"


def test_every_name_of_an_installed_package_is_there():
    absent, found, _ = check_apis.check()
    assert absent == []
    assert found["cuda"] > 100


def test_the_table_has_each_name_once_in_order():
    with FILE.open(newline="") as file:
        rows = [tuple(row) for row in csv.reader(file)][1:]
    names = [row[1] for row in rows]
    assert len(set(names)) == len(names)
    assert rows == sorted(rows)
    assert {row[2] for row in rows} <= set(apis.CATEGORIES)


def test_other_spellings_lead_to_the_same_name():
    assert apis.canonical("cuda.core.experimental.launch") == "cuda.core.launch"
    assert apis.canonical("cuda.cuda.cuMemAlloc_v2") == "cuda.bindings.driver.cuMemAlloc"
    assert apis.canonical("torch.cuda.amp.GradScaler.get_scale") == "torch.amp.GradScaler.get_scale"
    assert apis.canonical("numpy.asarray") == "numpy.asarray"
