"""A small decoder that predicts the clean state from the trunk's features of a noised one.

The denoising criterion of Vincent et al. 2008, "Extracting and composing robust features with
denoising autoencoders", as an auxiliary loss: the trunk is the encoder, shared with the Q network.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.stages.program import Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import Group, TensorSpec


@dataclass(frozen=True)
class Denoise:
    """Noise on the states; Linear(features, hidden), ReLU, Linear(hidden, Sp); squared error.

    Attributes:
        features: H, the width of the trunk's output.
        hidden: width of the decoder's hidden layer.
        width: S, the states' width without padding.
        padded: Sp, with it.
        sigma: standard deviation of the noise, in the states' units.
        weight: of the loss.
    """

    features: int
    hidden: int
    width: int
    padded: int
    sigma: float = 0.1
    weight: float = 1.0

    def tensors(self) -> tuple[TensorSpec, ...]:
        """Weights and biases of the decoder."""
        return (
            *linear_tensors("denoise.hidden", self.features, self.hidden, Group.DENOISE),
            *linear_tensors("denoise.state", self.hidden, self.padded, Group.DENOISE),
        )

    def noised(self, emit: Emit, s: Ref, seed: int) -> Ref:
        """Emit the noised states [rows, Sp] of `s`, after the step's counters have advanced."""
        out = emit.buffer("denoise_noised", (emit.rows, self.padded))
        emit.launch(
            "add_noise",
            s=s,
            counters="counters",
            noised=out,
            rows=emit.rows,
            width=self.width,
            padded=self.padded,
            sigma=self.sigma,
            seed=seed,
        )
        return out

    def forward(self, emit: Emit, features: Ref) -> Ref:
        """Emit the decoded states [rows, Sp] of the trunk's `features` [rows, H]."""
        hidden = self._hidden(emit)
        emit.linear("denoise.hidden", features, self.features, self.hidden, hidden, relu=True)
        return emit.linear("denoise.state", hidden, self.hidden, self.padded, self._decoded(emit))

    def loss(self, emit: Emit, clean: Ref) -> Ref:
        """Emit the loss [rows] of what `forward` decodes against the states `clean` [rows, Sp]."""
        loss = emit.buffer("denoise_loss", (emit.rows,))
        emit.launch(
            "denoise_loss",
            decoded=self._decoded(emit),
            clean=clean,
            loss=loss,
            grad=self._decoded_grad(emit),
            rows=emit.rows,
            width=self.width,
            padded=self.padded,
            weight=self.weight,
        )
        return loss

    def backward(self, emit: Emit, features: Ref) -> Ref:
        """Emit the decoder's gradients, after `loss`; returns that of the features [rows, H]."""
        hidden, upstream = self._hidden(emit), self._decoded_grad(emit)
        emit.linear_grad("denoise.state", hidden, upstream, self.hidden, self.padded)
        grad_hidden = emit.linear_grad_in(
            "denoise.state",
            upstream,
            self.hidden,
            self.padded,
            emit.buffer("denoise_hidden_grad", (emit.rows, self.hidden)),
            relu_of=hidden,
        )
        emit.linear_grad("denoise.hidden", features, grad_hidden, self.features, self.hidden)
        return emit.linear_grad_in(
            "denoise.hidden",
            grad_hidden,
            self.features,
            self.hidden,
            emit.buffer("denoise_features_grad", (emit.rows, self.features)),
        )

    def _hidden(self, emit: Emit) -> Ref:
        return emit.buffer("denoise_hidden", (emit.rows, self.hidden))

    def _decoded(self, emit: Emit) -> Ref:
        return emit.buffer("denoise_decoded", (emit.rows, self.padded))

    def _decoded_grad(self, emit: Emit) -> Ref:
        return emit.buffer("denoise_decoded_grad", (emit.rows, self.padded))
