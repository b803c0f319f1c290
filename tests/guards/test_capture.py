"""The same call is right inside a capture and wrong outside it."""

import pytest
from guard_runs import found, run

from onegraph.guards.engine.index import CAPTURES, may_capture

INSIDE = {
    "cuda.core builder": """
        from cuda.core import Device, launch
        from onegraph.guards import hot_path
        class T:
            def __init__(self): self.stream = Device().create_stream()
            @hot_path
            def step(self, config, kernel):
                builder = self.stream.create_graph_builder()
                launch(builder, config, kernel)
        """,
    "GraphDefinition": """
        from cuda.core.graph import GraphDefinition
        from onegraph.guards import hot_path
        @hot_path
        def step(config, kernel):
            GraphDefinition().launch(config, kernel)
        """,
    "cupy": """
        import cupy as cp
        from onegraph.guards import hot_path
        class T:
            def __init__(self, code):
                self.kernel = cp.RawKernel(code, "k")
                self.stream = cp.cuda.Stream()
                self.graph = None
            @hot_path
            def step(self, args):
                if self.graph is None:
                    self.stream.begin_capture()
                    self.kernel((1,), (1,), args)
                    self.graph = self.stream.end_capture()
                self.graph.launch()
        """,
    "warp": """
        import warp as wp
        from onegraph.guards import hot_path
        class T:
            def __init__(self): self.graph = None
            @hot_path
            def step(self, kernel):
                if self.graph is None:
                    with wp.ScopedCapture() as capture:
                        self.body(kernel)
                    self.graph = capture.graph
                wp.capture_launch(self.graph)
            def body(self, kernel): wp.launch(kernel, dim=1)
        """,
    "torch with triton": """
        import torch, triton
        from onegraph.guards import hot_path
        @triton.jit
        def kernel(x): pass
        class T:
            def __init__(self): self.graph = None
            @hot_path
            def step(self, x):
                if self.graph is None:
                    self.graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(self.graph):
                        kernel[(1,)](x)
                self.graph.replay()
        """,
    "numba through the driver's capture": """
        from cuda.bindings import runtime
        from numba import cuda
        @cuda.jit
        def kernel(x): pass
        def capture(stream, x):
            runtime.cudaStreamBeginCapture(stream, 0)
            kernel[1, 32](x)
            runtime.cudaStreamEndCapture(stream)
        """,
    "jax": """
        import jax, jax.numpy as jnp
        from onegraph.guards import hot_path
        @jax.jit
        def update(state): return state + jnp.zeros(3)
        @hot_path
        def step(state): return update(state)
        """,
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_captured_is_not_flagged(tmp_path, name):
    assert found(run(tmp_path, {"a.py": INSIDE[name]})) == []


def test_the_same_launch_outside_is(tmp_path):
    source = """
        from cuda.core import Device, launch
        from onegraph.guards import hot_path
        class T:
            def __init__(self): self.stream = Device().create_stream()
            @hot_path
            def step(self, config, kernel):
                launch(self.stream, config, kernel)
        """
    assert found(run(tmp_path, {"a.py": source})) == [("GRD301", "a.py", 8)]


def test_a_wait_below_a_capture_is_found_in_cold_code_with_its_chain(tmp_path):
    source = """
        import torch
        def build(graph, x):
            with torch.cuda.graph(graph):
                one(x)
        def one(x): two(x)
        def two(x: torch.Tensor):
            if x.sum() > 0:
                pass
        """
    report = run(tmp_path, {"a.py": source})
    assert found(report) == [("GRD601", "a.py", 8)]
    assert report.findings[0].chain_text == "a.build -> a.one -> a.two"


def test_the_projects_own_capture_counts(tmp_path):
    source = """
        from contextlib import contextmanager
        class Device:
            def launch(self): pass
            def synchronize(self): pass
            @contextmanager
            def capture(self): yield
        def build(device: Device):
            with device.capture():
                device.launch()
                device.synchronize()
            device.synchronize()
        """
    config = """
        [apis]
        "a.Device.launch" = "launch"
        "a.Device.synchronize" = "sync"
        "a.Device.capture" = "capture_begin"
        """
    assert found(run(tmp_path, {"a.py": source}, config)) == [("GRD601", "a.py", 11)]


@pytest.mark.parametrize("alternative", CAPTURES.pattern.split("|"))
def test_the_words_that_tell_a_capture_miss_none(alternative):
    """Each alternative of the pattern, as it would stand in a source."""
    text = alternative.replace("\\b", "").replace("\\", "")
    assert may_capture(f"x = {text}\n")
    assert CAPTURES.search(f"x = {text}\n")


@pytest.mark.parametrize("text", ["", "paragraph(", "relaunch(", "x = 1", "CUDA graph"])
def test_what_holds_a_word_of_a_capture_need_not_be_one(text):
    assert may_capture(text) is (CAPTURES.search(text) is not None) is False
