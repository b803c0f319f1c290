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

A peer that a machine can't run is skipped by name (`PeerUnavailableError`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from .problem import InitialState, PeerSpec, PeerUnavailableError, Precision, problem
from .protocol import Peer, PeerSteps

__all__ = [
    "PEERS",
    "InitialState",
    "Peer",
    "PeerSpec",
    "PeerSteps",
    "PeerUnavailableError",
    "Precision",
    "candidates",
    "open_peer",
    "problem",
]

#: Modules of this package that have ``make(spec, initial_state)``, slowest first as a rule.
PEERS = ("torch_eager", "jax_scan", "torch_graph", "torch_compile_graph")

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32")


def open_peer(name: str, spec: PeerSpec, initial: InitialState) -> Peer:
    """The peer of that name at its start.

    Raises:
        PeerUnavailableError: its library is not installed, or can't use the device.
    """
    try:
        module = import_module(f".{name}", __name__)
    except ImportError as error:
        raise PeerUnavailableError(f"{error}") from error
    peer: Peer = module.make(spec, initial)
    return peer


def candidates(
    subject, device_kind: str, precisions: Sequence[Precision] = PRECISIONS
) -> tuple[list[PeerSteps], dict[str, str]]:
    """Every peer of `subject`'s step that this machine has, and why the others are absent.

    On the host there is one precision: TF32 is a mode of the GPU's matrix units.
    """
    found: list[PeerSteps] = []
    skipped: dict[str, str] = {}
    spec, initial = problem(subject, device_kind)
    for precision in precisions if device_kind == "cuda" else ("float32",):
        for name in PEERS:
            label = f"{name} {precision}"
            try:
                peer = open_peer(name, spec.at(precision), initial)
            except PeerUnavailableError as error:
                skipped[label] = str(error)
            else:
                found.append(PeerSteps(label, peer))
    return found, skipped
