"""Files as they come: encodings, line ends, newer syntax, loops of links, what is not there."""

import sys

import pytest
from guard_runs import found, run, write

from onegraph.guards.check import check
from onegraph.guards.config import build
from onegraph.guards.engine.reading import ReadError, decode, lines_of, parse

HOT = "import torch\nfrom onegraph.guards import hot_path\n@hot_path\ndef step():\n"
SYNC = HOT + "    torch.cuda.synchronize()\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (SYNC.encode("utf-8-sig"), 5),
        (("# -*- coding: latin-1 -*-\n# caf\xe9\n" + SYNC).encode("latin-1"), 7),
        (("# coding: cp1251\ntext = '\u0436'\n" + SYNC).encode("cp1251"), 7),
        (SYNC.replace("\n", "\r\n").encode(), 5),
        (SYNC.replace("\n", "\r").encode(), 5),
    ],
    ids=["utf-8 with a mark", "latin-1", "cp1251", "crlf", "cr"],
)
def test_a_file_in_another_encoding_or_with_other_line_ends(tmp_path, source, line):
    assert found(run(tmp_path, {"a.py": source})) == [("GRD101", "a.py", line)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"x = '\xff'\n", "byte 5 is not utf-8"),
        (b"# coding: no-such\n", "unknown encoding"),
        (b"def broken(:\n", "line 1"),
        (b"x = 1\x00\n", "null bytes"),
        (("(" * 3000 + ")" * 3000).encode(), ""),
    ],
    ids=["not its encoding", "unknown encoding", "syntax", "null byte", "nested"],
)
def test_a_file_that_can_not_be_read_is_one_finding(tmp_path, source, message):
    report = run(tmp_path, {"a.py": source, "b.py": SYNC})
    assert found(report) == [("GRD900", "a.py", 1), ("GRD101", "b.py", 5)]
    assert message in report.findings[0].message


NEWER = {
    "type parameters": "def first[T: int](xs: list[T]) -> T: return xs[0]\nclass Box[T]: pass\n",
    "a type alias": "type Pair[T] = tuple[T, T]\n",
    "quotes in an f-string": "x = {'a': 1}\ny = f'{x['a']}'\nz = f\"{', '.join([\"b\"])}\"\n",
    "except without parentheses": "try:\n    pass\nexcept ValueError, TypeError:\n    pass\n",
}


@pytest.mark.parametrize("name", NEWER)
def test_syntax_newer_than_this_python_is_read(tmp_path, name):
    source = NEWER[name] + SYNC
    line = source.count("\n")
    assert found(run(tmp_path, {"a.py": source.encode()})) == [("GRD101", "a.py", line)]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads it itself")
def test_newer_syntax_keeps_every_column():
    tree = parse("def f[T](x: T) -> T: return x.item()\n")
    (call,) = tree.body[0].body
    assert (call.value.lineno, call.value.col_offset) == (1, 28)


def test_a_path_that_is_not_there_is_one_finding(tmp_path):
    report = check([tmp_path / "gone.py"], build(tmp_path.resolve(), {}, "test"))
    assert [(f.code, f.path, f.message) for f in report.findings] == [
        ("GRD900", "gone.py", "no such file or folder")
    ]


def test_symlinks_that_go_round_end(tmp_path):
    write(tmp_path, {"pkg/a.py": SYNC})
    (tmp_path / "pkg" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "dangling.py").symlink_to("gone.py")
    report = check([tmp_path], build(tmp_path.resolve(), {}, "test"))
    assert [(f.code, f.path) for f in report.findings] == [
        ("GRD900", "dangling.py"),
        ("GRD101", "pkg/a.py"),
    ]


def test_a_file_of_11000_lines(tmp_path):
    lines = ["import torch", "from onegraph.guards import hot_path"]
    for number in range(3666):
        lines += [f"def f{number}(x):", f"    return f{number + 1}(x)", ""]
    lines += ["def f3666(x: torch.Tensor):", "    return x.item()"]
    lines += ["@hot_path", "def step(x: torch.Tensor): return f0(x)"]
    report = run(tmp_path, {"a.py": "\n".join(lines)})
    assert [f.code for f in report.findings] == ["GRD102"]
    assert len(report.findings[0].chain) == 3668


def test_a_long_sum(tmp_path):
    total = " + ".join(["x"] * 2000)
    report = run(tmp_path, {"a.py": f"{HOT}    x = torch.ones(1)\n    y = {total}\n{SYNC}"})
    assert [f.code for f in report.findings] == ["GRD101"]


def test_lines_are_counted_as_python_counts_them():
    assert lines_of("a\x0cb\nc\rd\r\ne") == ["a\x0cb\n", "c\r", "d\r\n", "e"]
    assert lines_of("") == []


def test_an_encoding_is_written_back():
    text = decode("# coding: latin-1\n# \xe9\n".encode("latin-1"))
    assert text.encoded(text.text) == "# coding: latin-1\n# \xe9\n".encode("latin-1")
    assert decode(b"\xef\xbb\xbfx = 1\n").encoded("x = 2\n") == b"\xef\xbb\xbfx = 2\n"
    with pytest.raises(ReadError, match="not utf-8"):
        decode(b"\xff")


def test_a_check_leaves_the_callers_recursion_limit(tmp_path):
    (tmp_path / "a.py").write_text(SYNC)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_500)
    try:
        assert check([tmp_path], build(tmp_path.resolve(), {}, "test")).findings
        assert sys.getrecursionlimit() == 1_500
    finally:
        sys.setrecursionlimit(before)
