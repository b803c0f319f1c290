"""What a config starts from when it names a preset; a file and overrides go over it."""

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "dqn": {},
    # Noise on the weights is the other way to explore, hindsight needs an environment with goals:
    # both are left off.
    "full": {
        "network": {
            "gate": True,
            "attention_groups": 8,
            "hidden": [256],
            "residual_blocks": 2,
            "drop_path": 0.1,
            "head": "iqn",
            "spectral_cap": 4.0,
        },
        "aux": {"iql": True, "modulate": True, "denoise": True},
        "learn": {
            "batch_size": 256,
            "weight_decay": 1e-4,
            "vaccine": True,
            "budget": {"on": True},
        },
    },
}
