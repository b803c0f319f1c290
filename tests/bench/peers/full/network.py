"""The full network as functions of its parameters.

Parameters may have a leading dimension C of copies, as inputs then have: [C, rows, ...]. Letters: S
state width, H hidden width, G groups, Q levels a row, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .problem import FullSpec

Params = Mapping[str, Tensor]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``x W^T + b``, copy by copy if there are any."""
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)


def attend(spec: FullSpec, p: Params, x: Tensor) -> Tensor:
    """``x + W_o attention(W_qkv x)`` among the groups of features of [..., rows, S]."""
    groups, heads = spec.attention_groups, spec.attention_heads
    tokens = x.unflatten(-1, (groups, -1)).flatten(-3, -2)  # [..., rows G, d]
    qkv = linear(tokens, p["attn.qkv.weight"], p["attn.qkv.bias"])
    split = qkv.reshape(-1, groups, 3, heads, x.shape[-1] // groups // heads)
    q, k, v = split.permute(2, 0, 3, 1, 4).flatten(1, 2)  # [rows heads, G, e] each
    prob = torch.softmax(torch.bmm(q, k.mT) * q.shape[-1] ** -0.5, -1)
    joined = torch.bmm(prob, v).unflatten(0, (-1, heads)).transpose(1, 2).reshape(tokens.shape)
    return x + linear(joined, p["attn.out.weight"], p["attn.out.bias"]).view(x.shape)


def normalise(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Layer normalisation of [..., rows, H]."""
    if scale.dim() == 1:
        return F.layer_norm(x, x.shape[-1:], scale, shift)
    normal = F.layer_norm(x, x.shape[-1:])
    return torch.addcmul(shift.unsqueeze(-2), normal, scale.unsqueeze(-2))


def features(
    spec: FullSpec, p: Params, normal: Params, x: Tensor, depth: Tensor | None = None
) -> Tensor:
    """The trunk, from [..., rows, S] to [..., rows, H].

    Args:
        p: parameters.
        normal: the weights that are normalised.
        depth: scales of the blocks [R]; None: 1.
    """
    x = attend(spec, p, torch.sigmoid(p["gate.logit"]).unsqueeze(-2) * x)
    for i in range(len(spec.hidden)):
        x = F.relu(linear(x, normal[f"hidden.{i}.weight"], p[f"hidden.{i}.bias"]))
    weights, biases = normal["blocks.weight"].unbind(-3), p["blocks.bias"].unbind(-2)
    scales, shifts = p["norm.scale"].unbind(-2), p["norm.shift"].unbind(-2)
    for r in range(spec.residual_blocks):
        first, second = 2 * r, 2 * r + 1
        hidden = F.relu(linear(normalise(x, scales[r], shifts[r]), weights[first], biases[first]))
        branch = linear(hidden, weights[second], biases[second])
        x = x + branch if depth is None else torch.addcmul(x, branch, depth[r])
    return x


def plain_head(p: Params, x: Tensor) -> Tensor:
    """Advantages and a state value [..., rows, A + 1] of features [..., rows, H]."""
    return linear(x, p["head.weight"], p["head.bias"])


def quantile_head(spec: FullSpec, p: Params, x: Tensor, levels: Tensor) -> Tensor:
    """The same for each level [..., rows, Q]: [..., rows, Q, A + 1]."""
    frequencies = torch.arange(spec.cosines, device=x.device, dtype=levels.dtype)
    cosines = torch.cos(levels.unsqueeze(-1) * frequencies * torch.pi).to(x.dtype)
    embedded = linear(cosines.flatten(-3, -2), p["iqn.embed.weight"], p["iqn.embed.bias"])
    mixed = x.unsqueeze(-2) * F.relu(embedded).unflatten(-2, levels.shape[-2:])
    out = linear(mixed.flatten(-3, -2), p["iqn.head.weight"], p["iqn.head.bias"])
    return out.unflatten(-2, levels.shape[-2:])


def blend(plain: Tensor, quantiles: Tensor, ready: Tensor) -> Tensor:
    """The heads' values [..., rows, A + 1], the quantiles weighing `ready`."""
    return torch.lerp(plain, quantiles.mean(-2), ready)


def value_of(head: Tensor, action: Tensor) -> Tensor:
    """The value [...] of `action` [...] in a dueling head [..., A + 1]."""
    advantage, value = head[..., :-1], head[..., -1]
    taken = advantage.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return value + taken - advantage.mean(-1)


def values_of(heads: Tensor, action: Tensor) -> Tensor:
    """The values [..., Q] of `action` [...] at each level of [..., Q, A + 1]."""
    return value_of(heads, action.unsqueeze(-1).expand(heads.shape[:-1]))
