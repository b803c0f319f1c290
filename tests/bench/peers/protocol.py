"""What a peer is, and how it is timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray


class Peer(Protocol):
    """A learning step in another library."""

    #: Steps that `run` takes in one go; a sample is a multiple of it.
    quantum: int

    def step(self, given: Any = None) -> None:
        """One step; with `given`, on what it names in the place of a draw.

        That is the rows [B], or for a peer of the full step `full.problem.Draws`.
        """
        ...

    def run(self, steps: int) -> None:
        """`steps` steps on drawn rows, a multiple of `quantum`. Need not wait for the device."""
        ...

    def wait(self) -> None:
        """Wait for the device."""
        ...

    def loss(self) -> float:
        """The mean weighted loss of the last step."""
        ...

    def parameters(self) -> dict[str, NDArray[Any]]:
        """The online network's parameters by name, weights [fan_out, fan_in]."""
        ...

    def priorities(self) -> NDArray[Any]:
        """The leaves [N]."""
        ...

    def close(self) -> None:
        """Let go of what it holds on the device."""
        ...


class ReplayPeer(Protocol):
    """Draw, gather, weigh and write back in another library, on given TD errors.

    Batches are `replay.problem.Batch` of NumPy arrays.
    """

    #: Steps that `run` takes in one go; a sample is a multiple of it.
    quantum: int

    def run(self, steps: int) -> None:
        """`steps` steps, a multiple of `quantum`. Need not wait for the device."""
        ...

    def wait(self) -> None:
        """Wait for the device."""
        ...

    def last(self) -> Any:
        """The batch of the last step that was run."""
        ...

    def draw(self) -> Any:
        """A batch, with nothing written back."""
        ...

    def write_back(self, index: NDArray[Any], errors: NDArray[Any]) -> None:
        """Write the leaves of `errors` [n] to the rows `index` [n]."""
        ...

    def priorities(self) -> NDArray[Any]:
        """The leaves [N]."""
        ...

    def close(self) -> None:
        """Let go of what it holds on the device."""
        ...


class EpochPeer(Protocol):
    """A whole epoch in another library."""

    label: str

    def epoch(self) -> None:
        """Run an epoch, and wait for the device."""
        ...

    def close(self) -> None:
        """Let go of what it holds on the device."""
        ...


class PeerSteps:
    """A peer as a candidate of `onegraph.stages.bench`. Nobody counts its calls or nodes."""

    def __init__(self, label: str, peer: Peer | ReplayPeer) -> None:
        self._label, self.peer = label, peer

    @property
    def label(self) -> str:
        return self._label

    @property
    def quantum(self) -> int:
        return self.peer.quantum

    def run(self, steps: int) -> None:
        self.peer.run(steps)

    def wait(self) -> None:
        self.peer.wait()

    def calls(self) -> Mapping[str, int]:
        return {}

    def nodes(self) -> int:
        return 0

    def close(self) -> None:
        self.peer.close()
