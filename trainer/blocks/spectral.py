"""Spectral normalisation as ops: weights whose largest singular value is held to a cap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import StreamTag
from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.learner.reduce import LANES
from onegraph.kernels.learner.spectral import (
    COLUMNS,
    SpectralMatrix,
    above_cap,
    normalised_or,
    power_iteration,
)
from onegraph.kernels.learner.spectral_left import TILE as COLUMN_TILE
from onegraph.kernels.learner.spectral_right import TILE as ROW_TILE
from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.blocks.layout import Layout

#: Iterations on the initial weights, as PyTorch's `spectral_norm` does when it is applied.
INITIAL_ITERATIONS = 15

#: Steps of the Philox counter from here on draw the initial vectors; those below draw parameters.
_VECTOR_STEPS = 1 << 31


class SpectralNorm:
    """The ops that normalise some matrices of the parameters, and the vectors that they keep.

    Args:
        names: of the tensors, each a matrix, as in ``block.0.first.weight``.
        cap: largest singular value that a matrix may have.
        seed: of the initial vectors.

    Raises:
        ValueError: a tensor is no matrix of the layout, or the cap is not above 0.
    """

    def __init__(self, layout: Layout, names: Iterable[str], *, cap: float, seed: int) -> None:
        if not cap > 0.0:
            raise ValueError(f"the spectral cap is {cap}; give one above 0, or normalise nothing")
        self.layout, self.names, self.cap, self.seed = layout, tuple(names), cap, seed
        for name in self.names:
            if name not in layout or len(layout[name].shape) != 2:
                known = ", ".join(t.name for t in layout if len(t.shape) == 2)
                raise ValueError(f"{name!r} is no matrix of the network; there are {known}")
        matrices, vectors = list[SpectralMatrix](), 0
        for source in (0, 1):
            for tensor in map(layout.__getitem__, self.names):
                rows, cols = tensor.shape
                matrices.append(SpectralMatrix(source, tensor.offset, rows, cols, vectors))
                vectors += rows + cols
        #: The table: the online parameters' matrices, then the target's.
        self.matrices, self._vectors = tuple(matrices), vectors
        largest = max((layout[name].size for name in self.names), default=0)
        self._parts = max(1, min(64, -(-largest // (2 * LANES))))
        self._column_tiles = max((-(-m.cols // COLUMN_TILE) for m in matrices), default=1)
        self._row_tiles = max((-(-m.rows // ROW_TILE) for m in matrices), default=1)

    def instead(self, *, target: bool = False) -> dict[str, str]:
        """What a pass reads the matrices from, for `Emit.instead`."""
        return dict.fromkeys(self.names, "theta_target_normal" if target else "theta_normal")

    def initial_vectors(self, params: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors of both networks, whose initial parameters [size] are the same."""
        vectors = np.zeros(self._vectors, np.float32)
        half = len(self.names)
        for i, matrix in enumerate(self.matrices):
            u, v = matrix.uv(vectors)
            draws = philox_uniform(
                self.seed,
                np.arange(matrix.rows + matrix.cols),
                _VECTOR_STEPS + i % half,
                StreamTag.INIT,
            )[:, 0]
            start = (2.0 * draws - 1.0).astype(np.float32)
            u[:] = normalised_or(u, start[: matrix.rows])
            v[:] = normalised_or(v, start[matrix.rows :])
            for _ in range(INITIAL_ITERATIONS):
                found = power_iteration(matrix.of(params), u, v)
                u[:], v[:] = found.u, found.v
        return vectors

    def state(self, initial: Callable[[], NDArray[np.float32]]) -> tuple[Buffer, ...]:
        """What a run keeps: u and v. `initial` gives the parameters before the first step."""
        return (
            Buffer(
                "spectral_vectors",
                (self._vectors,),
                "f32",
                initial=lambda: self.initial_vectors(initial()),
                persistent=True,
            ),
        )

    def buffers(self, grads: Sequence[str] = ("grad",)) -> tuple[Buffer, ...]:
        """What the ops need beside `state`, parameters and the gradients `grads`.

        ``spectral_sigma`` [2 matrices] holds the present step's, the online network's first.
        """

        def table() -> NDArray[np.int64]:
            return np.array(self.matrices, np.int64).reshape(-1, COLUMNS)

        count = len(self.matrices)
        return (
            Buffer("spectral_table", (count, COLUMNS), "i64", initial=table),
            Buffer("spectral_raw", (self._vectors,), "f32"),
            Buffer("spectral_sigma", (count,), "f64"),
            *(Buffer(f"spectral_dots_{g}", (len(self.names), self._parts), "f64") for g in grads),
            Buffer("spectral_unused", (1,), "f32"),
            Buffer("theta_normal", (self.layout.size,), "f32"),
            Buffer("theta_target_normal", (self.layout.size,), "f32"),
        )

    def normalised(
        self, params: NDArray[np.float32], vectors: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The online parameters [size] with the matrices as `act_ops` leaves them, on the host.

        Args:
            params: [size].
            vectors: ``spectral_vectors`` of a run.
        """
        result = params.copy()
        for matrix in self.matrices[: len(self.names)]:
            w = matrix.of(params)
            sigma = power_iteration(w, *matrix.uv(vectors), iterate=False).sigma
            if above_cap(sigma, self.cap):
                matrix.of(result)[...] = w * np.float32(self.cap / sigma)
        return result

    def learn_ops(self) -> tuple[Op, ...]:
        """Three nodes: an iteration, and the normalised weights of both networks."""
        return self._normalise(len(self.matrices), "theta_target_normal", iterate=1)

    def act_ops(self) -> tuple[Op, ...]:
        """Two nodes: the online network's normalised weights, with u and v as they are."""
        return self._normalise(len(self.names), "spectral_unused", iterate=0)

    def grad_ops(self, *, params: str = "theta", grads: str = "grad") -> tuple[Op, ...]:
        """Two nodes, once the gradients of the normalised weights are in `grads`.

        Those of two gradients have nothing in common that is written, and may run at once. They
        touch `grads` up to the last of the matrices alone: what stands behind it may come later.
        """
        end = max((m.offset + m.rows * m.cols for m in self.matrices), default=0)
        common: dict[str, Ref | int | float] = {
            "grad": Ref(grads, 0, end),
            "table": Ref("spectral_table"),
            "dots": Ref(f"spectral_dots_{grads}"),
            "count": len(self.names),
            "parts": self._parts,
        }
        return (
            Launch("spectral_dot", common | {"params": Ref(params)}),
            Launch(
                "spectral_grad",
                common
                | {
                    "vectors": Ref("spectral_vectors"),
                    "sigma": Ref("spectral_sigma"),
                    "cap": self.cap,
                },
            ),
        )

    def _normalise(self, count: int, target: str, *, iterate: int) -> tuple[Op, ...]:
        common: dict[str, Ref | int | float] = {
            "params": Ref("theta"),
            "target": Ref("theta_target" if iterate else "theta"),
            "table": Ref("spectral_table"),
            "vectors": Ref("spectral_vectors"),
            "raw": Ref("spectral_raw"),
            "count": count,
        }
        left = Launch("spectral_left", common | {"tiles": self._column_tiles})
        right = Launch("spectral_right", common | {"tiles": self._row_tiles, "iterate": iterate})
        scale = Launch(
            "spectral_scale",
            common
            | {
                "sigma": Ref("spectral_sigma"),
                "normal": Ref("theta_normal"),
                "normal_target": Ref(target),
                "parts": self._parts,
                "iterate": iterate,
                "cap": self.cap,
            },
        )
        return (left, right, scale) if iterate else (right, scale)
