"""``codemod to-host-checkpoint``."""

import textwrap

from guard_runs import write

from onegraph.guards.codemod import to_host_checkpoint
from onegraph.guards.config import build


def rewrite(folder, source, **others):
    root = write(folder, {"a.py": source, **others})
    result = to_host_checkpoint([root], build(root, {}, "test"))
    got = result.files.get(root / "a.py", (root / "a.py").read_bytes())
    return got.decode(), result


def test_methods_are_renamed_outside_hot_code_and_the_rest_is_reported(tmp_path):
    got, result = rewrite(
        tmp_path,
        """\
        from onegraph.guards import hot_path

        class Array:
            def to_host(self): ...

        @hot_path
        def step(total): return total.to_host()

        def save(weights, path):
            values = weights.to_host ()  # whole
            flat = weights.to_vec()
            later = weights.to_host
            other = weights.to_host("path")
            return getattr(weights, "to_host"), values, flat, later, other
        """,
    )
    assert got == textwrap.dedent(
        """\
        from onegraph.guards import hot_path

        class Array:
            def to_host(self): ...

        @hot_path
        def step(total): return total.to_host()

        def save(weights, path):
            values = weights.to_host_checkpoint ()  # whole
            flat = weights.to_host_checkpoint().ravel().tolist()
            later = weights.to_host
            other = weights.to_host("path")
            return getattr(weights, "to_host"), values, flat, later, other
        """
    )
    assert result.report().splitlines() == [
        "a.py:10: to_host() -> to_host_checkpoint()",
        "a.py:11: to_vec() -> to_host_checkpoint()",
        "a.py:4: left: this defines to_host",
        "a.py:7: left: to_host() stands in hot code; take it out of the step",
        "a.py:12: left: to_host is passed on and not called",
        "a.py:13: left: to_host() is given arguments, so it is another function",
        "a.py:14: left: to_host is named in a string",
        "2 renamed in 1 files, 5 left",
    ]


def test_an_imported_function_is_renamed_with_its_import(tmp_path):
    got, _ = rewrite(
        tmp_path,
        """\
        from arrays import (
            empty,
            to_host,  # waits
        )

        def save(x): return to_host(x), empty()
        """,
    )
    assert "to_host_checkpoint(x)" in got
    assert "    to_host_checkpoint,  # waits" in got
    assert "to_host," not in got.replace("to_host_checkpoint,", "")


def test_the_old_import_stays_where_it_is_still_called(tmp_path):
    got, _ = rewrite(
        tmp_path,
        """\
        from arrays import to_host
        from onegraph.guards import hot_path

        @hot_path
        def step(x): return to_host(x)
        def save(x): return to_host(x)
        """,
    )
    assert got.splitlines()[0] == "from arrays import to_host, to_host_checkpoint"
    assert got.splitlines()[4:] == [
        "def step(x): return to_host(x)",
        "def save(x): return to_host_checkpoint(x)",
    ]


def test_it_is_idempotent_and_leaves_other_files_alone(tmp_path):
    source = "def save(x):   return x.to_host()\n"
    once, result = rewrite(tmp_path / "once", source, **{"b.py": "x = {  'a':1}\n"})
    assert [path.name for path in result.files] == ["a.py"]
    twice, again = rewrite(tmp_path / "twice", once)
    assert twice == once
    assert again.files == {}
    assert again.report() == "0 renamed in 0 files, 0 left"
