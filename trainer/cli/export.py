"""``onegraph export``: the policy of a run, for others to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onegraph.trainer.cli.console import notes
from onegraph.trainer.policy.errors import ExportError


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a checkpoint file.")],
    onnx: Annotated[
        Path | None, typer.Option("--onnx", help="Write the greedy policy as an ONNX graph here.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="Write the parameters as safetensors here.")
    ] = None,
) -> None:
    """Write the greedy policy of a checkpoint as an ONNX graph, and its weights by name."""
    from onegraph.trainer.policy.onnx_graph import OPSET, ports, require_onnx, write_onnx
    from onegraph.trainer.policy.policy import read_policy
    from onegraph.trainer.policy.weights import write_weights

    files = [path for path in (onnx, weights) if path is not None]
    if not files:
        raise ExportError(
            "there is nothing to write; say --onnx policy.onnx, --weights weights.safetensors or"
            " both"
        )
    if len(files) == 2 and files[0].resolve() == files[1].resolve():
        raise ExportError(f"--onnx and --weights both name {onnx}; name two files")
    if onnx is not None:
        require_onnx()  # before anything is written
    policy = read_policy(checkpoint)
    for path in files:
        if policy.path is not None and path.exists() and path.samefile(policy.path):
            raise ExportError(f"{path} is the checkpoint itself; name another file")
    notes().print(f"{policy.path}: {policy.learn_steps:,} learning steps", markup=False)
    if onnx is not None:
        graph = write_onnx(policy, onnx).graph
        print(f"{onnx}: ONNX, opset {OPSET}, {onnx.stat().st_size / 1024:,.0f} KiB")
        print(f"  inputs: {', '.join(ports(graph.input))}")
        print(f"  outputs: {', '.join(ports(graph.output))}")
    if weights is not None:
        shapes = write_weights(policy, weights)
        print(
            f"{weights}: safetensors, {len(shapes)} tensors,"
            f" {weights.stat().st_size / 1024:,.0f} KiB"
        )
