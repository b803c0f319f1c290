"""Noisy linear layers as ops: exploration by noise on the weights (Fortunato et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.learner.noisy import COLUMNS, NoisyLayer, NoisyPass
from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.blocks.layout import Layout, TensorSpec

#: Where each pass' effective weights stand, laid out like the parameters.
NOISY_BUFFERS: Mapping[NoisyPass, str] = {p: f"theta_noisy_{p.name.lower()}" for p in NoisyPass}


class NoisyLayers:
    """The sigmas of some linear layers, and the ops that put noise on their weights.

    Evaluation reads the parameters themselves, which are mu.

    Args:
        names: of the layers, as in ``head.value``.
        tensors: where their weights and biases are found.
        sigma0: initial sigma times the square root of the fan-in (section 3.2 of the paper: 0.5).
        seed: of the noise.

    Raises:
        ValueError: a layer has no weight or no bias among the tensors.
    """

    def __init__(
        self, names: Iterable[str], tensors: Iterable[TensorSpec], *, sigma0: float, seed: int
    ) -> None:
        known = {spec.name: spec for spec in tensors}
        self.names, self.seed = tuple(names), seed
        self._weights, self._sigmas = [], list[TensorSpec]()
        for name in self.names:
            weight, bias = known.get(f"{name}.weight"), known.get(f"{name}.bias")
            if weight is None or bias is None:
                layers = sorted(n.removesuffix(".weight") for n in known if n.endswith(".weight"))
                raise ValueError(f"{name!r} is no linear layer; there are {', '.join(layers)}")
            self._weights.append(weight)
            sigma = sigma0 * (weight.rows or weight.shape[0]) ** -0.5
            self._sigmas += [
                TensorSpec(
                    f"{spec.name}_sigma", spec.shape, spec.group, value=sigma, rows=spec.rows
                )
                for spec in (weight, bias)
            ]

    def tensors(self) -> tuple[TensorSpec, ...]:
        """``NAME.weight_sigma`` and ``NAME.bias_sigma`` of each layer, in its group."""
        return tuple(self._sigmas)

    def instead(self, noisy_pass: NoisyPass) -> dict[str, str]:
        """What the pass reads its weights from, for `Emit.instead`."""
        buffer = NOISY_BUFFERS[noisy_pass]
        return {f"{name}.{part}": buffer for name in self.names for part in ("weight", "bias")}

    def rows(self, layout: Layout) -> tuple[NoisyLayer, ...]:
        """The kernels' table."""
        rows, factor, tile = list[NoisyLayer](), 0, 0
        for name, weight in zip(self.names, self._weights, strict=True):
            at = [
                layout[f"{name}.{part}"].offset
                for part in ("weight", "bias", "weight_sigma", "bias_sigma")
            ]
            fan_in, fan_out = weight.shape
            rows.append(NoisyLayer(at[0], at[1], at[2], at[3], fan_in, fan_out, factor, tile))
            factor += fan_in + fan_out
            tile += rows[-1].tiles
        return tuple(rows)

    def buffers(self, layout: Layout, passes: Iterable[NoisyPass]) -> tuple[Buffer, ...]:
        """What the ops of these passes need beside the parameters and ``counters``."""
        rows = self.rows(layout)

        def table() -> NDArray[np.int64]:
            return np.array(rows, np.int64).reshape(-1, COLUMNS)

        factors = sum(weight.shape[0] + weight.shape[1] for weight in self._weights)
        return (
            Buffer("noisy_table", (len(rows), COLUMNS), "i64", initial=table),
            Buffer("noisy_factors", (factors,), "f32"),
            Buffer("noisy_factors_act", (factors,), "f32"),
            Buffer("noisy_unused1", (1,), "f32"),
            Buffer("noisy_unused2", (1,), "f32"),
            *(Buffer(NOISY_BUFFERS[p], (layout.size,), "f32") for p in passes),
        )

    def learn_ops(
        self,
        layout: Layout,
        *,
        select: bool,
        params: str = "theta",
        target: str = "theta_target",
    ) -> tuple[Op, ...]:
        """One node: the noisy weights of the online, the target and perhaps the selecting pass.

        It stands after the counters of the step, before the first pass. Sigmas are read from the
        same buffers as mu.
        """
        passes = [NoisyPass.ONLINE, NoisyPass.TARGET, *([NoisyPass.SELECT] if select else [])]
        return (self._weights_op(layout, passes, params, target, "noisy_factors"),)

    def act_ops(self, layout: Layout, *, params: str = "theta") -> tuple[Op, ...]:
        """One node: the noisy weights of the acting pass."""
        return (self._weights_op(layout, [NoisyPass.ACT], params, params, "noisy_factors_act"),)

    def grad_ops(self, layout: Layout, *, grads: str = "grad") -> tuple[Op, ...]:
        """One node: the sigmas' gradients, once the layers' are in `grads` (of the online pass)."""
        rows = self.rows(layout)
        return (
            Launch(
                "noisy_grad",
                {
                    "grad": Ref(grads),
                    "factors": Ref("noisy_factors"),
                    "table": Ref("noisy_table"),
                    "layers": len(rows),
                    "tiles": sum(row.tiles for row in rows),
                },
            ),
        )

    def _weights_op(
        self,
        layout: Layout,
        passes: list[NoisyPass],
        params: str,
        target: str,
        factors: str,
    ) -> Launch:
        rows = self.rows(layout)
        outputs = [NOISY_BUFFERS[p] for p in passes]
        outputs += ["noisy_unused1", "noisy_unused2"][: 3 - len(passes)]
        return Launch(
            "noisy_weights",
            {
                "params": Ref(params),
                "target": Ref(target),
                "table": Ref("noisy_table"),
                "counters": Ref("counters"),
                **{f"out{slot}": Ref(name) for slot, name in enumerate(outputs)},
                "factors": Ref(factors),
                "layers": len(rows),
                "tiles": sum(row.tiles for row in rows),
                "first": int(passes[0]),
                "passes": len(passes),
                "seed": self.seed,
            },
        )
