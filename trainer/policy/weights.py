"""A policy's parameters by name, in PyTorch's names and orientation, and their safetensors file.

Weights are [out, in], as `torch.nn.Linear` has them; ``docs/policies.md`` lists the names. The
columns that only padding reached are left out.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from onegraph.trainer.blocks.gate import LOGIT
from onegraph.trainer.blocks.layout import Tensor
from onegraph.trainer.network import QNetwork
from onegraph.trainer.policy.policy import Policy
from onegraph.trainer.policy.whole_file import write_whole

#: Key of the file's metadata, under which one JSON object stands.
FORMAT = "onegraph-policy-1"

#: Linear layers whose columns are advantages, then, when dueling, the state value.
_HEADS = ("head", "iqn.head", "c51.head")

_PARTS = {
    "hidden": "trunk",
    "block": "blocks",
    "attn.qkv.weight": "attention.in_proj_weight",
    "attn.qkv.bias": "attention.in_proj_bias",
    "attn.out": "attention.out_proj",
}


def named_weights(network: QNetwork, params: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Parameters [size] by name: float32, contiguous, in the order of the layout."""
    found: dict[str, NDArray[np.float32]] = {}
    for tensor in network.layout:
        values = _without_padding(network, tensor, tensor.values(params)).T
        layer, _, part = tensor.name.rpartition(".")
        if layer in _HEADS and network.config.dueling:
            outputs = len(values) // (network.actions + 1)  # atoms, or one
            found[f"{layer}.advantage.{part}"] = values[:-outputs]
            found[f"{layer}.value.{part}"] = values[-outputs:]
        else:
            found[_name(tensor.name)] = values
    return {name: np.array(values, np.float32, order="C") for name, values in found.items()}


def _without_padding(
    network: QNetwork, tensor: Tensor, values: NDArray[np.float32]
) -> NDArray[np.float32]:
    if tensor.name == LOGIT:
        return values[: network.observation_width]
    # Behind attention the padding's columns carry what the groups exchange.
    behind_attention = network.config.attention_groups and tensor.name.startswith("hidden.")
    return values[: tensor.rows] if tensor.rows and not behind_attention else values


def _name(own: str) -> str:
    name = own.replace(".norm.scale", ".norm.weight").replace(".norm.shift", ".norm.bias")
    for before, after in _PARTS.items():
        if name == before or name.startswith(before + "."):
            return after + name[len(before) :]
    return name


def architecture(policy: Policy) -> dict[str, object]:
    """How the parameters make a network, as the file's metadata has it."""
    network, config = policy.network, policy.network.config
    return {
        "version": policy.version,
        "config_digest": policy.config_digest,
        "learn_steps": policy.learn_steps,
        "facts": policy.facts.model_dump(mode="json"),
        "observation_width": network.observation_width,
        "padded_width": network.inputs,
        "actions": network.actions,
        "gate": config.gate,
        "attention": {"groups": config.attention_groups, "heads": config.attention_heads},
        "hidden": list(config.hidden),
        "residual_blocks": config.residual_blocks,
        "head": config.head,
        "dueling": config.dueling,
        "noisy": config.noisy,
        "spectral_cap": config.spectral_cap,
        "iqn": {
            "levels": policy.levels.tolist(),
            "weight": policy.readiness,
            "cosines": network.iqn.cosines,
        }
        if network.iqn
        else None,
        "c51": {
            "atoms": network.c51.atoms,
            "v_min": network.c51.v_min,
            "v_max": network.c51.v_max,
        }
        if network.c51
        else None,
    }


def write_weights(policy: Policy, path: Path) -> dict[str, tuple[int, ...]]:
    """Write the safetensors file, whole or not at all; gives the shapes by name.

    Raises:
        ExportError: it could not be written.
    """
    weights = named_weights(policy.network, policy.params)
    shapes = {name: values.shape for name, values in weights.items()}
    about = {**architecture(policy), "shapes": shapes}
    write_whole(path, save(weights, metadata={FORMAT: json.dumps(about)}))
    return shapes
