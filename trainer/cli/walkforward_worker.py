"""The process of one run of a walk-forward, started by `onegraph.trainer.walkforward.schedule`.

It says how far it is on standard output, a line of JSON a message: ``{"done": 0.5, "note": "…"}``,
or ``{"failed": "why"}``. Exit code 0: the result is written; 1: the run failed; 130: it was asked
to stop, or its parent is gone, and its state is saved.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from onegraph.trainer.cli.errors import EXPECTED
from onegraph.trainer.cli.train import stop_on_signal
from onegraph.trainer.loop import InterruptedRunError
from onegraph.trainer.walkforward.plan import RunId, load_plan
from onegraph.trainer.walkforward.run import train_run
from onegraph.trainer.walkforward.schedule import INTERRUPTED, one_line, out_of_memory

#: Seconds between two messages.
TELL_EVERY = 0.25


class Teller:
    """Messages to the parent, not too many of them."""

    def __init__(self) -> None:
        self._said = float("-inf")

    def __call__(self, done: float, note: str) -> None:
        now = time.monotonic()
        if done >= 1.0 or now - self._said >= TELL_EVERY:
            self._said = now
            say({"done": done, "note": note})


def say(message: dict[str, object]) -> None:
    """One message; without a parent to hear it, nothing."""
    try:
        print(json.dumps(message), flush=True)
    except BrokenPipeError:
        # The parent is gone, which `stop` notices; the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: list[str] | None = None) -> int:
    """Run window WINDOW with seed SEED of the walk-forward in ROOT; gives the exit code."""
    root, window, seed = sys.argv[1:] if argv is None else argv
    parent = os.getppid()
    with stop_on_signal() as asked:
        try:
            train_run(
                load_plan(Path(root)),
                RunId(int(window), int(seed)),
                Path(root),
                stop=lambda: asked() or os.getppid() != parent,
                tell=Teller(),
            )
        except InterruptedRunError:
            return INTERRUPTED
        except MemoryError as error:
            say({"failed": out_of_memory(error)})
            return 1
        except EXPECTED as error:
            say({"failed": one_line(error)})
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
