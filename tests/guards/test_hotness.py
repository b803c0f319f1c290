"""Hotness goes through every way that Python calls a function, and the chain says which."""

import pytest
from guard_runs import chains, found, run

SYNC = "import torch\nfrom onegraph.guards import hot_path, cold_path\n"

#: Each project has one `torch.cuda.synchronize()`, and the chain to it.
SPREADS = {
    "a plain call": (
        """
        @hot_path
        def step(): inner()
        def inner(): torch.cuda.synchronize()
        """,
        "a.step -> a.inner",
    ),
    "self": (
        """
        class T:
            @hot_path
            def step(self): self.inner()
            def inner(self): torch.cuda.synchronize()
        """,
        "a.T.step -> a.T.inner",
    ),
    "an attribute of a known class": (
        """
        class T:
            def __init__(self): self.tree = Tree()
            @hot_path
            def step(self): self.tree.total()
        class Tree:
            def total(self): torch.cuda.synchronize()
        """,
        "a.T.step -> a.Tree.total",
    ),
    "an attribute from an annotated parameter": (
        """
        class T:
            def __init__(self, tree: "Tree | None" = None): self.tree = tree
            @hot_path
            def step(self): self.tree.total()
        class Tree:
            def total(self): torch.cuda.synchronize()
        """,
        "a.T.step -> a.Tree.total",
    ),
    "an attribute of an attribute": (
        """
        class Runner:
            def __init__(self, tree: "Tree"): self.tree = tree
        class T:
            def __init__(self): self.runner = Runner(Tree())
            @hot_path
            def step(self): self.runner.tree.total()
        class Tree:
            def total(self): torch.cuda.synchronize()
        """,
        "a.T.step -> a.Tree.total",
    ),
    "a base class": (
        """
        class Base:
            def inner(self): torch.cuda.synchronize()
        class T(Base):
            @hot_path
            def step(self): self.inner()
        """,
        "a.T.step -> a.Base.inner",
    ),
    "an override below": (
        """
        class Base:
            @hot_path
            def step(self): self.inner()
            def inner(self): raise NotImplementedError
        class T(Base):
            def inner(self): torch.cuda.synchronize()
        """,
        "a.Base.step -> a.T.inner",
    ),
    "super": (
        """
        class Base:
            def step(self): torch.cuda.synchronize()
        class T(Base):
            @hot_path
            def step(self): super().step()
        """,
        "a.T.step -> a.Base.step",
    ),
    "a property": (
        """
        class T:
            @hot_path
            def step(self): return self.rows + 1
            @property
            def rows(self): torch.cuda.synchronize()
        """,
        "a.T.step -> a.T.rows",
    ),
    "functools.partial": (
        """
        from functools import partial
        class T:
            def __init__(self): self.go = partial(inner, 3)
            @hot_path
            def step(self): self.go()
        def inner(n): torch.cuda.synchronize()
        """,
        "a.T.step -> a.inner",
    ),
    "a lambda in an attribute": (
        """
        class T:
            def __init__(self): self.go = lambda: torch.cuda.synchronize()
            @hot_path
            def step(self): self.go()
        """,
        "a.T.step -> a.T.__init__.<lambda>",
    ),
    "a nested function": (
        """
        @hot_path
        def step():
            def inner(): torch.cuda.synchronize()
            inner()
        """,
        "a.step -> a.step.inner",
    ),
    "a function handed on": (
        """
        @hot_path
        def step(xs): return list(map(inner, xs))
        def inner(x): torch.cuda.synchronize()
        """,
        "a.step -> a.inner",
    ),
    "a function as a parameter": (
        """
        @hot_path
        def step(): each(inner)
        def each(f): f()
        def inner(): torch.cuda.synchronize()
        """,
        "a.step -> a.each -> a.inner",
    ),
    "a decorator's wrapper": (
        """
        def waits(f):
            def wrapper(*args):
                torch.cuda.synchronize()
                return f(*args)
            return wrapper
        @waits
        def inner(): pass
        @hot_path
        def step(): inner()
        """,
        "a.step -> a.waits.wrapper",
    ),
    "an object that is called": (
        """
        class Inner:
            def __call__(self): torch.cuda.synchronize()
        @hot_path
        def step(): Inner()()
        """,
        "a.step -> a.Inner.__call__",
    ),
    "a module's forward": (
        """
        class Net(torch.nn.Module):
            def forward(self, x): torch.cuda.synchronize()
        class T:
            def __init__(self): self.net = Net()
            @hot_path
            def step(self, x): self.net(x)
        """,
        "a.T.step -> a.Net.forward",
    ),
    "a class method and a static method": (
        """
        class Tree:
            @classmethod
            def make(cls): cls.inner()
            @staticmethod
            def inner(): torch.cuda.synchronize()
        @hot_path
        def step(): Tree.make()
        """,
        "a.step -> a.Tree.make -> a.Tree.inner",
    ),
    "a context manager and a generator": (
        """
        def batches():
            torch.cuda.synchronize()
            yield 1
        @hot_path
        def step():
            for batch in batches(): pass
        """,
        "a.step -> a.batches",
    ),
    "an element of a list": (
        """
        class T:
            def __init__(self): self.parts = [Part(), Part()]
            @hot_path
            def step(self):
                for part in self.parts: part.go()
        class Part:
            def go(self): torch.cuda.synchronize()
        """,
        "a.T.step -> a.Part.go",
    ),
    "a value that a function returns": (
        """
        class Tree:
            def total(self): torch.cuda.synchronize()
        def make(): return Tree()
        @hot_path
        def step(): make().total()
        """,
        "a.step -> a.Tree.total",
    ),
    "calls that go round": (
        """
        @hot_path
        def step(): one()
        def one(): two()
        def two():
            one()
            torch.cuda.synchronize()
        """,
        "a.step -> a.one -> a.two",
    ),
}


@pytest.mark.parametrize("name", SPREADS)
def test_hotness_spreads_through(tmp_path, name):
    body, chain = SPREADS[name]
    import textwrap

    report = run(tmp_path, {"a.py": SYNC + textwrap.dedent(body)})
    assert chains(report, "GRD101") == [chain]


def test_hotness_crosses_files_imports_re_exports_and_stars(tmp_path):
    report = run(
        tmp_path,
        {
            "pkg/__init__.py": "from .loop import step\n",
            "pkg/loop.py": """
                from onegraph.guards import hot_path
                from . import replay as rp
                from .shared import *
                @hot_path
                def step():
                    rp.sample()
                    starred()
                """,
            "pkg/replay/__init__.py": "from .tree import total as sample\n",
            "pkg/replay/tree.py": "import torch\ndef total(): torch.cuda.synchronize()\n",
            "pkg/shared.py": "from .deep import starred\n",
            "pkg/deep.py": "import torch\ndef starred(): torch.cuda.synchronize()\n",
        },
    )
    assert chains(report, "GRD101") == [
        "pkg.loop.step -> pkg.deep.starred",
        "pkg.loop.step -> pkg.replay.tree.total",
    ]


def test_a_package_that_stars_a_missing_module_of_its_own_ends(tmp_path):
    report = run(
        tmp_path,
        {
            "pkg/__init__.py": "from pkg.compiled import *\nfrom pkg.compiled import x\nx()\n",
            "a.py": "from pkg import y\nfrom onegraph.guards import hot_path\n@hot_path\n"
            "def step(): y()\n",
        },
    )
    assert found(report) == []


def test_star_imports_that_go_round_end(tmp_path):
    report = run(
        tmp_path,
        {
            "a.py": "from b import *\nfrom onegraph.guards import hot_path\n@hot_path\n"
            "def step(): missing()\n",
            "b.py": "from a import *\n",
        },
    )
    assert found(report) == []


def test_a_cold_function_stops_the_spread(tmp_path):
    body = """
        @hot_path
        def step(): summary()
        @cold_path("once an epoch")
        def summary(): deeper()
        def deeper(): torch.cuda.synchronize()
        """
    import textwrap

    assert found(run(tmp_path, {"a.py": SYNC + textwrap.dedent(body)})) == []


def test_a_marker_under_another_name_counts(tmp_path):
    source = """
        import torch
        from onegraph.guards import hot_path as each_step
        from onegraph import guards
        @each_step
        def one(): torch.cuda.synchronize()
        @guards.hot_path
        def two(): torch.cuda.synchronize()
        """
    assert found(run(tmp_path, {"a.py": source})) == [("GRD101", "a.py", 6), ("GRD101", "a.py", 8)]


def test_the_config_names_hot_functions_and_loops(tmp_path):
    source = """
        import torch
        class DQN:
            def train(self): torch.cuda.synchronize()
            def learn(self): torch.cuda.synchronize()
        torch.cuda.synchronize()
        for _ in range(3):
            torch.cuda.synchronize()
        """
    report = run(tmp_path, {"a.py": source}, 'hot = ["a.*.train", "a.<module>:loop"]')
    assert found(report) == [("GRD101", "a.py", 4), ("GRD101", "a.py", 8)]


def test_what_is_set_up_once_or_only_raises_is_not_hot(tmp_path):
    source = """
        import torch
        from onegraph.guards import hot_path
        class T:
            @hot_path
            def step(self, x: torch.Tensor, table, key):
                if self.graph is None:
                    self.graph = self.capture()
                if key not in table:
                    table[key] = torch.zeros(3, device=x.device)
                if x.ndim != 2:
                    raise ValueError(f"got {x}")
                try:
                    return x
                except RuntimeError:
                    torch.cuda.synchronize()
            def capture(self): torch.cuda.synchronize()
        """
    assert found(run(tmp_path, {"a.py": source})) == []


def test_what_stands_under_a_modulo_is_hot_unless_it_only_logs(tmp_path):
    source = """
        import torch
        from onegraph.guards import hot_path
        @hot_path
        def step(loss: torch.Tensor, n, writer):
            if n % 4 == 0:
                value = loss.item()
            if n % 100 == 0:
                writer.add_scalar("loss", loss.item(), n)
        """
    assert found(run(tmp_path, {"a.py": source})) == [("GRD102", "a.py", 7)]


def test_unresolved_calls_are_silent_until_they_are_asked_for(tmp_path):
    source = """
        from onegraph.guards import hot_path
        @hot_path
        def step(policy): policy.update()
        """
    assert found(run(tmp_path, {"a.py": source})) == []
    assert found(run(tmp_path, {"a.py": source}, 'extend-select = ["GRD905"]')) == [
        ("GRD905", "a.py", 4)
    ]
