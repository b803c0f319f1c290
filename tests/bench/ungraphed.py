"""Let the graphed peers run where there is no GPU: op by op, and uncompiled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


def warmed_up(step, state):
    """Warmed up as for a capture and then run op by op, where there is no graph to replay."""
    from peers import torch_graph

    with torch_graph.undone(state):
        for _ in range(torch_graph.WARM_UP):
            step()
    return SimpleNamespace(replay=step)


def without_graphs(monkeypatch, *modules):
    """Let the graphed peers' modules run on the host, uncompiled."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    for module in modules:
        monkeypatch.setattr(module, "require_cuda", lambda spec: None)
        monkeypatch.setattr(module, "capture", warmed_up)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
