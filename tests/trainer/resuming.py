"""A run that was stopped, saved and gone on with is the run that never stopped: on every device.

`test_resume.py` runs this on the host device, `tests/gpu/test_resume_cuda.py` on a GPU. The fixture
``open_device`` gives a function that opens a device, or hands out the one there is.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from trainer.setups import (
    OpenDevice,
    bit_flip,
    coin,
    end_of,
    full,
    full_market,
    make,
    market,
    short,
)

from onegraph.stages import format_set, valid_sets
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.config import Config
from onegraph.trainer.loop import InterruptedRunError, Loop
from onegraph.trainer.trainer import Trainer

SETS = [pytest.param(s, id=format_set(s)) for s in valid_sets()]

#: Three epochs of eight learning steps, of which two are timed; the last epoch is cut short.
RUN: dict[str, object] = {
    "loop__epoch_steps": 8,
    "loop__timed_steps": 2,
    "loop__start_steps": 64,
    "loop__total_env_steps": 64 + 4 * (3 * 8 - 1 - 2),
    "replay__capacity": 100,
    "loop__early_stop_epochs": 9,
}

#: A validation window of two months, which is soon walked.
WINDOWS: dict[str, object] = {
    "env__market__train_end": dt.date(2008, 1, 1),
    "env__market__validation_end": dt.date(2008, 3, 1),
}

ENVIRONMENTS: dict[str, Config] = {
    "tabular": short(**RUN),
    "market": market(**RUN, **WINDOWS),
    "bit flip": bit_flip(**RUN),
    "coin": coin(**RUN),
}

FULL: dict[str, Config] = {"tabular": full(**RUN), "market": full_market(**RUN, **WINDOWS)}

#: Learning steps at which a run is stopped: within its second epoch, and at that epoch's end.
STOPS = (11, 16)

#: What depends on the clock.
CLOCK = ("seconds", "step_ms", "phases")


def digest(trainer: Trainer) -> str:
    """Of everything that a run is: its buffers, inner nodes of the tree included, and progress."""
    found = hashlib.sha256(repr(trainer.progress).encode())
    for name, content in sorted(end_of(trainer).items()):
        found.update(f"{name} {len(content)} ".encode() + content)
    return found.hexdigest()


def run(
    open_device: OpenDevice,
    config: Config,
    stages: Sequence[frozenset[int] | str],
    folder: Path,
    stops: Sequence[int] = (),
) -> str:
    """Train to the end in as many parts as there are `stages`, each but the last up to a stop.

    Every part is on objects of its own, and begins from what the part before wrote.
    """
    found, looped = "", False
    for part, (chosen, stop) in enumerate(zip(stages, [*stops, None], strict=True)):
        trainer = make(open_device(), config, chosen)
        if part:
            saved = load_checkpoint(folder)
            # A device that takes rounds by itself may be some further when it hears of the stop.
            end = -(-stops[part - 1] // 8) * 8 if looped else stops[part - 1]
            assert stops[part - 1] <= saved.progress.learns <= end
            trainer.restore(saved.state, saved.progress)

        def stopped(trainer: Trainer = trainer, stop: int | None = stop) -> bool:
            return stop is not None and trainer.seen_learns >= stop

        loop, looped = Loop(trainer, folder, stop=stopped), trainer.loops
        if stop is None:
            loop.run()
        else:
            with pytest.raises(InterruptedRunError):
                loop.run()
        found = digest(trainer)
        trainer.close()
    return found


def figures(folder: Path, *but: str) -> list[dict[str, object]]:
    """The lines of the metrics without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in (*CLOCK, *but)} for line in lines]


def files(folder: Path) -> dict[str, bytes]:
    """The checkpoints that have to be equal."""
    folder = folder / "checkpoints"
    return {name: (folder / f"{name}.safetensors").read_bytes() for name in ("last", "best")}


class ResumeContract:
    @pytest.mark.parametrize("config", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
    @pytest.mark.parametrize("stages", SETS)
    def test_a_run_in_parts_is_the_whole(
        self, open_device: OpenDevice, tmp_path: Path, stages: frozenset[int], config: Config
    ) -> None:
        self.parts_are_the_whole(open_device, tmp_path, config, stages)

    @pytest.mark.parametrize("config", FULL.values(), ids=FULL)
    @pytest.mark.parametrize("stages", ["0", "all"])
    def test_a_run_of_the_full_learner_in_parts_is_the_whole(
        self, open_device: OpenDevice, tmp_path: Path, stages: str, config: Config
    ) -> None:
        self.parts_are_the_whole(open_device, tmp_path, config, stages)

    def parts_are_the_whole(
        self, open_device: OpenDevice, folder: Path, config: Config, stages: frozenset[int] | str
    ) -> None:
        whole = run(open_device, config, [stages], folder / "whole")
        parts = run(open_device, config, [stages] * 3, folder / "parts", STOPS)
        assert parts == whole
        assert files(folder / "parts") == files(folder / "whole")
        lines = figures(folder / "parts")
        assert lines == figures(folder / "whole")
        assert [line["learn_steps"] for line in lines] == [8, 16, 22]

    @pytest.mark.parametrize(
        "config",
        [*ENVIRONMENTS.values(), FULL["tabular"]],
        ids=[*ENVIRONMENTS, "full"],
    )
    def test_each_part_may_be_at_other_stages(
        self, open_device: OpenDevice, tmp_path: Path, config: Config
    ) -> None:
        whole = run(open_device, config, ["4"], tmp_path / "whole")
        # The sets at the end both have the tree on the device, so that its nodes are compared.
        parts = run(open_device, config, ["0", "3,1", "all"], tmp_path / "parts", STOPS)
        assert parts == whole
        assert figures(tmp_path / "parts", "stages") == figures(tmp_path / "whole", "stages")
        wanted, found = (load_checkpoint(tmp_path / name).state for name in ("whole", "parts"))
        assert {n: v.tobytes() for n, v in found.items()} == {
            n: v.tobytes() for n, v in wanted.items()
        }

    def test_going_back_to_the_one_before_is_the_run_again(
        self, open_device: OpenDevice, tmp_path: Path
    ) -> None:
        """Its later epoch's line is cut and written anew, and so are the checkpoints."""
        config = ENVIRONMENTS["tabular"]
        whole = run(open_device, config, ["all"], tmp_path)
        wanted, lines = files(tmp_path), figures(tmp_path)
        before = tmp_path / "checkpoints" / "last-1.safetensors"
        saved = load_checkpoint(before)
        assert saved.progress.learns == 16
        trainer = make(open_device(), config, "all")
        trainer.restore(saved.state, saved.progress)
        Loop(trainer, tmp_path).run()
        assert digest(trainer) == whole
        trainer.close()
        assert files(tmp_path) == wanted
        assert figures(tmp_path) == lines
        assert len((tmp_path / "metrics.jsonl.bak").read_text().splitlines()) == 1
