"""``onegraph prove``: run the learning proofs, and say which hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onegraph.kernels.device import open_device
from onegraph.stages.flags import choose_stages
from onegraph.stages.page.charts import require_plots
from onegraph.stages.registry import format_set
from onegraph.trainer.cli.console import notes, results
from onegraph.trainer.cli.train import SetOption, StagesOption
from onegraph.trainer.config import parse_override

#: Exit code where a proof failed or was not run.
FAILED = 1


def prove(
    names: Annotated[
        list[str] | None, typer.Argument(help="Proofs to run; all without any. --list lists them.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cuda or host.")] = "auto",
    seeds: Annotated[
        str, typer.Option("--seeds", help="Seeds, as in 1,2,3; default: each proof's own.")
    ] = "",
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Runs at once, each a process; one GPU serves all.")
    ] = 1,
    run_dir: Annotated[
        Path, typer.Option("--run-dir", help="Folder of runs, results.json and curves.")
    ] = Path("runs/proofs"),
    stages: StagesOption = None,
    overrides: SetOption = None,
    plots: Annotated[
        bool, typer.Option("--plots/--no-plots", help="Draw each proof's learning curve.")
    ] = True,
    only_list: Annotated[
        bool, typer.Option("--list", help="List the proofs, and run none.")
    ] = False,
) -> None:
    """Train on tasks whose right answer is known; exit 1 if one does not reach it.

    A proof is judged by its final policy, with every target met. Two runs on one device reach the
    same values.
    """
    from onegraph.trainer.proofs import Outcome, Task, UnknownProofError, chosen, run_tasks
    from onegraph.trainer.proofs.report import (
        different_kernels,
        draw_all,
        results_table,
        write_results,
    )

    try:
        proofs = chosen(names or ())
    except UnknownProofError as error:
        raise typer.BadParameter(str(error), param_hint="NAMES") from None
    if only_list:
        for proof in proofs:
            targets = "; ".join(f"{t.figure} {t.text()}" for t in proof.targets)
            print(f"{proof.name}: {proof.title}\n    {targets}\n    {proof.source}")
        return
    given = _seeds(seeds)
    more = dict(parse_override(text) for text in overrides or ())
    choice = choose_stages(stages, "all")
    on = choice.stages
    if plots:
        require_plots()  # before work that ends in a curve
    if device not in ("auto", "cuda", "host"):
        raise typer.BadParameter(f"{device!r}: choose auto, cuda or host", param_hint="--device")
    opened = open_device(device)  # type: ignore[arg-type]
    where = f"{opened.kind} ({opened.name})"
    kind = opened.kind
    opened.close()
    tasks = [
        Task(proof, seed, kind, run_dir / proof.name / f"seed-{seed}", on, more, choice.optional)
        for proof in proofs
        for seed in given or proof.seeds
    ]
    for task in tasks:  # a field that can't be used is said before anything runs
        if not task.proof.missing():
            _ = task.steps
    console = notes()
    console.print(
        f"{len(tasks)} runs of {len(proofs)} proofs, device {where}, stages {format_set(on)},"
        f" {jobs} at once, folder {run_dir}"
    )

    def say(outcome: Outcome) -> None:
        line = f"{outcome.proof}, seed {outcome.seed}: {outcome.verdict}"
        figures = ", ".join(f"{name} {value:.5g}" for name, value in outcome.figures.items())
        detail = outcome.trouble or f"{figures}, {outcome.seconds:.1f} s"
        console.print(f"{line} ({detail})", markup=False)

    run_dir.mkdir(parents=True, exist_ok=True)
    outcomes = run_tasks(tasks, jobs, say)
    results().print(results_table(proofs, outcomes))
    for line in different_kernels(proofs, outcomes):
        console.print(line, markup=False)
    about = {"device": where, "stages": format_set(on)}
    print(write_results(proofs, outcomes, run_dir, more=more, **about))
    if plots:
        for path in draw_all(proofs, outcomes, run_dir):
            print(path)
    if bad := [o for o in outcomes if o.verdict != "passed"]:
        for verdict in ("failed", "broke off", "not run"):
            if found := [f"{o.proof} (seed {o.seed})" for o in bad if o.verdict == verdict]:
                console.print(f"{verdict}: {', '.join(found)}", markup=False)
        raise typer.Exit(FAILED)


def _seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    found = []
    for part in parts:
        if not part.isascii() or not part.isdigit() or int(part) >= 2**63:
            raise typer.BadParameter(
                f"{text!r}: {part!r} is no seed; write whole numbers from 0 on, as in 1,2,3",
                param_hint="--seeds",
            )
        found.append(int(part))
    if len(set(found)) != len(found):
        raise typer.BadParameter(f"{text!r} names a seed twice", param_hint="--seeds")
    return tuple(found)
