"""Fixes: they converge, are idempotent, and change nothing outside their spans."""

import ast
import textwrap

import pytest
from guard_runs import write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onegraph.guards.config import build
from onegraph.guards.engine.reading import lines_of
from onegraph.guards.findings import Edit
from onegraph.guards.fixing import apply_edits, fix

EVERY = {"extend-select": ["GRD203"]}


def fixed(folder, source, *, unsafe=False):
    root = write(folder, {"a.py": source.encode() if isinstance(source, str) else source})
    result = fix([root], build(root, EVERY, "test"), unsafe=unsafe)
    return result.files.get(root / "a.py", (root / "a.py").read_bytes()), result


FIXES = {
    "a rename in cold code, its comments and layout kept": (
        """
        from onegraph.guards import cold_path
        @cold_path("writes a checkpoint")
        def save(weights, path):
            values = (weights  # the online network's
                      . to_host  (   ))   # whole
            return values, weights.to_vec()
        """,
        """
        from onegraph.guards import cold_path
        @cold_path("writes a checkpoint")
        def save(weights, path):
            values = (weights  # the online network's
                      . to_host_checkpoint  (   ))   # whole
            return values, weights.to_host_checkpoint().ravel().tolist()
        """,
        False,
    ),
    "a rename in hot code only when asked": (
        """
        from onegraph.guards import hot_path
        @hot_path
        def step(total): return total.to_host()
        """,
        """
        from onegraph.guards import hot_path
        @hot_path
        def step(total): return total.to_host_checkpoint()
        """,
        True,
    ),
    "pinned memory before an asynchronous copy": (
        """
        import torch
        from onegraph.guards import hot_path
        @hot_path
        def step(é, device): return torch.from_numpy(é).to(device, non_blocking=True)
        """,
        """
        import torch
        from onegraph.guards import hot_path
        @hot_path
        def step(é, device): return torch.from_numpy(é).pin_memory().to(device, non_blocking=True)
        """,
        True,
    ),
    "comments that allow nothing": (
        """
        x = 1  # guards: allow[GRD102] -- gone
        y = "é"  # guards: allow[GRD102] -- gone  # noqa: X
        # guards: allow[GRD102] -- alone
        z = 1  # guards: allow[GRD101, GRD102] -- two
        """,
        """
        x = 1
        y = "é"  # noqa: X
        z = 1
        """,
        False,
    ),
}


@pytest.mark.parametrize("name", FIXES)
def test_a_fix(tmp_path, name):
    before, after, unsafe = FIXES[name]
    before, after = textwrap.dedent(before), textwrap.dedent(after)
    if unsafe:
        assert fixed(tmp_path / "safe", before)[0].decode() == before
    got, result = fixed(tmp_path / "all", before, unsafe=unsafe)
    assert got.decode() == after
    assert result.edits
    assert fixed(tmp_path / "again", got, unsafe=unsafe)[0] == got


def test_line_ends_and_encoding_are_kept(tmp_path):
    source = (
        "# coding: latin-1\r\nfrom onegraph.guards import cold_path\r\n"
        '@cold_path("once")\r\ndef f(caf\xe9): return caf\xe9.to_host()\r\n'
    ).encode("latin-1")
    got, _ = fixed(tmp_path, source)
    assert got == source.replace(b"to_host()", b"to_host_checkpoint()")


def test_edits_that_overlap_are_made_one_at_a_time():
    edits = [Edit((1, 0), (1, 3), "x"), Edit((1, 2), (1, 5), "y")]
    assert apply_edits("abcdef\n", edits) == ("xdef\n", 1)


PIECES = st.lists(
    st.sampled_from(
        [
            "    a = x.to_host()\n",
            "    b = x.to_vec( )  # trailing\n",
            "    c = (x .\n         to_host())\n",
            "    d = x.to_host(1)\n",
            "    é = 'to_host()'\n",
            "    e = [y.to_host() for y in x]  # guards: allow[GRD102] -- unused or not\n",
            "    f = torch.from_numpy(x).to('cuda', non_blocking=True)\n",
            "    # guards: allow[GRD301] -- nothing here\n",
            "    g = x.to_host().to_host()\n",
            "\n",
            "    if x: pass\n",
        ]
    ),
    max_size=8,
)
HEADS = st.sampled_from(["@hot_path\n", '@cold_path("once")\n', ""])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(blocks=st.lists(st.tuples(HEADS, PIECES), min_size=1, max_size=3), unsafe=st.booleans())
def test_fixing_twice_is_fixing_once_and_nothing_else_moves(tmp_path_factory, blocks, unsafe):
    source = "import torch\nfrom onegraph.guards import cold_path, hot_path\n"
    for number, (head, pieces) in enumerate(blocks):
        source += f"{head}def f{number}(x):\n{''.join(pieces)}    return x\n"
    once, result = fixed(tmp_path_factory.mktemp("once"), source, unsafe=unsafe)
    twice, _ = fixed(tmp_path_factory.mktemp("twice"), once, unsafe=unsafe)
    assert twice == once
    ast.parse(once)
    touched = {f.line for f in result.report.findings}
    del touched
    # Every line that held nothing to mend is there still, and in its order.
    words = ("to_host", "to_vec", "non_blocking", "allow[")
    kept = [line for line in lines_of(source) if not any(w in line for w in words)]
    assert [line for line in lines_of(once.decode()) if line in set(kept)] == kept
    if not any(word in source for word in words):
        assert once.decode() == source


@settings(max_examples=100, deadline=None)
@given(
    text=st.text(alphabet="aé\n\r\x0cz ", max_size=30),
    at=st.lists(st.integers(0, 40), max_size=4),
)
def test_edits_of_nothing_change_nothing(text, at):
    lines = lines_of(text) or [""]
    edits = []
    for place in at:
        row = place % len(lines)
        edits.append(Edit((row + 1, 0), (row + 1, 0), ""))
    assert apply_edits(text, edits)[0] == text
