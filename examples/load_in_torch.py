"""A trained policy as a `torch.nn.Sequential`: the weights by name, and the same action values.

For the preset `dqn`: hidden layers with ReLU, and a dueling head, whose
``q = value + advantage - mean(advantage)`` is one linear layer.
Run it: ``python examples/load_in_torch.py`` (needs PyTorch; its CPU build does).
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

try:
    import torch
    from safetensors.torch import load_file
    from torch import nn
except ImportError as error:
    sys.exit(f"this example needs PyTorch ({error}); run pip install torch")


def load(path):
    """The network of a weights file of the preset `dqn`."""
    w = load_file(path)
    depth = sum(name.startswith("trunk.") and name.endswith(".weight") for name in w)
    layers = [(w[f"trunk.{i}.weight"], w[f"trunk.{i}.bias"]) for i in range(depth)]
    if "head.value.weight" in w:
        value, advantage = (
            [w[f"head.{part}.{kind}"] for kind in ("weight", "bias")]
            for part in ("value", "advantage")
        )
        layers.append(
            [v + a - a.mean(0, keepdim=True) for v, a in zip(value, advantage, strict=True)]
        )
    else:
        layers.append((w["head.weight"], w["head.bias"]))
    modules = []
    for weight, bias in layers:
        linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": bias})
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


if __name__ == "__main__":
    from onegraph.kernels.device import HostDevice
    from onegraph.trainer.config import load_config
    from onegraph.trainer.policy.policy import policy_of
    from onegraph.trainer.policy.weights import write_weights
    from onegraph.trainer.trainer import Trainer

    small = {"network.hidden": [32, 16], "loop.start_steps": 64, "env.lanes": 4}
    trainer = Trainer(load_config("chain", small), HostDevice(), frozenset(range(1, 7)))
    for _ in range(60):
        trainer.collect()
        if trainer.rows >= 64:
            trainer.learn()
    states = np.eye(5, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        # What `onegraph export RUN --weights weights.safetensors` writes.
        write_weights(policy_of(trainer), Path(folder) / "weights.safetensors")
        network = load(Path(folder) / "weights.safetensors")
    with torch.no_grad():
        theirs = network(torch.from_numpy(states)).numpy()
    ours = trainer.q_values(states)
    print(network)
    print(f"largest difference of an action value: {np.abs(theirs - ours).max():.2g}")
    sys.exit(0 if np.allclose(theirs, ours, rtol=0, atol=1e-5) else "the action values differ")
