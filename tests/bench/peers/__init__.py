"""The learning step of `onegraph.trainer.bench` in other libraries, for comparison.

Each module here is one peer: the same operations, as a competent user of that library would write
them. What is the same, and what is each library's own:

- A step draws a prioritized batch, gathers it, weighs it, runs the online network on s, the online
  and the target network on s', takes the dueling double-DQN Huber loss, its gradient, clips that
  by its global norm, steps Adam, moves the target softly, and writes the new priorities back into
  the sum tree, with the running maximum.
- A peer stores ready n-step transitions; ours assembles them from single steps when they are drawn.
- A peer's learning rate, tau and beta are constants; ours advances its schedules in every step. It
  also publishes statistics and checks generations and finiteness, which a peer does not.
- The sum tree has two levels of about sqrt(N) children, which takes a library's cumulative sums and
  binary searches the fewest kernels. Its sums are float32; ours are float64.

The peers of the full preset's step are in `full`, which says what they have beside that; those of
the replay alone are in `replay`, which says what each does.

A peer that a machine can't run is skipped by name (`PeerUnavailableError`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module

from onegraph.trainer.bench import BenchSubject

from .full.problem import FullSpec, full_problem, is_full
from .problem import InitialState, PeerSpec, PeerUnavailableError, Precision, common_problem
from .protocol import EpochPeer, Peer, PeerSteps, ReplayPeer
from .replay import PEERS as REPLAY_PEERS
from .replay.problem import ReplaySpec, ReplayState, replay_problem

__all__ = [
    "FULL_PEERS",
    "PEERS",
    "REPLAY_PEERS",
    "InitialState",
    "Peer",
    "PeerSpec",
    "PeerSteps",
    "PeerUnavailableError",
    "Precision",
    "ReplayPeer",
    "candidates",
    "epoch_candidates",
    "labels",
    "open_peer",
    "open_replay_peer",
    "peers_of",
    "problem",
]

#: Modules of this package that have ``make(spec, initial_state)``, slowest first as a rule.
PEERS = ("torch_eager", "jax_scan", "torch_graph", "torch_compile_graph")

#: Those of them that `full` has too.
FULL_PEERS = ("torch_eager", "torch_compile_graph")

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32")

#: Characters of a library's error that are kept.
REASON = 400


def problem(subject: BenchSubject, device_kind: str) -> tuple[PeerSpec, InitialState]:
    """What a peer of `subject`'s step starts from, on the GPU or on the host.

    A step with any of the parts that only the full preset has must have all of them.

    Raises:
        PeerUnavailableError: the subject asks for what no peer does.
    """
    if subject.size.replay_only:
        return replay_problem(subject, device_kind)
    spec, initial = common_problem(subject, device_kind)
    return full_problem(subject, spec, initial) if is_full(subject.config) else (spec, initial)


def peers_of(subject: BenchSubject) -> tuple[str, ...]:
    """The names of the peers of `subject`'s step."""
    if subject.size.replay_only:
        return tuple(REPLAY_PEERS)
    return FULL_PEERS if is_full(subject.config) else PEERS


def labels(
    subject: BenchSubject, precisions: Sequence[Precision]
) -> dict[str, tuple[str, Precision]]:
    """Name and precision of each peer of `subject`'s step, by what a table calls it.

    The replay alone multiplies no matrices: there a precision has no meaning, and no mention.
    """
    if subject.size.replay_only:
        return {name: (name, "float32") for name in REPLAY_PEERS}
    return {
        f"{n} {precision}": (n, precision) for precision in precisions for n in peers_of(subject)
    }


def open_replay_peer(name: str, spec: ReplaySpec, initial: ReplayState) -> ReplayPeer:
    """The peer of the replay alone of that name at its start.

    Raises:
        PeerUnavailableError: its library is not installed, or can't use the device.
    """
    module, maker = REPLAY_PEERS[name]
    try:
        make = getattr(import_module(f".replay.{module}", __name__), maker)
    except ImportError as error:
        raise PeerUnavailableError(f"{error}") from error
    peer: ReplayPeer = make(spec, initial)
    return peer


def open_peer(name: str, spec: PeerSpec, initial: InitialState) -> Peer:
    """The peer of that name at its start.

    Raises:
        PeerUnavailableError: its library is not installed, or can't use the device.
    """
    try:
        folder = ".full" if isinstance(spec, FullSpec) else ""
        module = import_module(f"{folder}.{name}", __name__)
    except ImportError as error:
        raise PeerUnavailableError(f"{error}") from error
    peer: Peer = module.make(spec, initial)
    return peer


def candidates(
    subject: BenchSubject,
    device_kind: str,
    precisions: Sequence[Precision] = PRECISIONS,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[PeerSteps], dict[str, str]]:
    """Every peer of `subject`'s step that runs on this machine, and why the others do not.

    Each takes its first steps here, which compile and capture what it needs: a library that fails
    at them is left out by name, with what it said, and the run goes on. On the host there is one
    precision: TF32 is a mode of the GPU's matrix units.
    """
    found: list[PeerSteps] = []
    skipped: dict[str, str] = {}
    spec, initial = problem(subject, device_kind)
    at = precisions if device_kind == "cuda" else ("float32",)
    for label, (name, precision) in labels(subject, at).items():
        began = time.perf_counter()
        peer: Peer | ReplayPeer | None = None
        try:
            if isinstance(spec, ReplaySpec) and isinstance(initial, ReplayState):
                peer = open_replay_peer(name, spec, initial)
            else:
                peer = open_peer(name, spec.at(precision), initial)
            peer.run(peer.quantum)
            peer.wait()
        except PeerUnavailableError as error:
            skipped[label] = str(error)
        except Exception as error:  # noqa: BLE001  whatever another library raises
            skipped[label] = f"{type(error).__name__}: {str(error).strip()[:REASON]}"
            if peer is not None:
                peer.close()
        else:
            found.append(PeerSteps(label, peer))
        outcome = f"left out: {skipped[label]}" if label in skipped else "ready"
        say(f"{label}: {outcome} ({time.perf_counter() - began:.1f} s)")
    return found, skipped


def epoch_candidates(
    subject: BenchSubject,
    device_kind: str,
    rounds: int,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[EpochPeer], dict[str, str]]:
    """The peers of a whole epoch of `subject`, and why those that are not there are not.

    Each is compiled by its first epoch, which the benchmark takes before the others.
    """
    found: list[EpochPeer] = []
    skipped: dict[str, str] = {}
    for precision in PRECISIONS if device_kind == "cuda" else ("float32",):
        label = f"jax_epoch {precision}"
        try:
            spec, initial = problem(subject, device_kind)
            if isinstance(spec, FullSpec):
                raise PeerUnavailableError("it is written for the preset dqn")
            module = import_module(".jax_epoch", __name__)
            found.append(module.JaxEpoch(label, subject, spec.at(precision), initial, rounds))
        except (ImportError, PeerUnavailableError) as error:
            skipped[label] = str(error)
        except Exception as error:  # noqa: BLE001  whatever another library raises
            skipped[label] = f"{type(error).__name__}: {str(error).strip()[:REASON]}"
        say(f"{label}: {'left out: ' + skipped[label] if label in skipped else 'ready'}")
    return found, skipped
