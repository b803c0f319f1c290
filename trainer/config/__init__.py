"""The config of a run.

It comes from defaults, then a TOML file, then dotted overrides, and is frozen once loaded. A field
that does not exist, a value of the wrong type or outside its bounds, and values that do not fit one
another are each refused with one line that names the place, the field, the value and the remedy.
`config_reference` lists every field, so that ``--help`` is the manual.
"""

from .dump import config_to_json, config_to_toml
from .errors import ConfigError
from .load import (
    config_from_json,
    load_config,
    override_config,
    parse_override,
    shipped_configs,
)
from .reference import ConfigField, config_reference
from .schema import (
    AuxConfig,
    BudgetConfig,
    C51Config,
    Config,
    EnvConfig,
    EpsilonSchedule,
    HindsightConfig,
    IqnConfig,
    LearnConfig,
    LearningRateSchedule,
    LoopConfig,
    MarketConfig,
    MarketFeatures,
    MismatchError,
    NetworkConfig,
    OfflineConfig,
    ReplayConfig,
    Schedule,
    TauSchedule,
    WalkforwardConfig,
)

__all__ = [
    "AuxConfig",
    "BudgetConfig",
    "C51Config",
    "Config",
    "ConfigError",
    "ConfigField",
    "EnvConfig",
    "EpsilonSchedule",
    "HindsightConfig",
    "IqnConfig",
    "LearnConfig",
    "LearningRateSchedule",
    "LoopConfig",
    "MarketConfig",
    "MarketFeatures",
    "MismatchError",
    "NetworkConfig",
    "OfflineConfig",
    "ReplayConfig",
    "Schedule",
    "TauSchedule",
    "WalkforwardConfig",
    "config_from_json",
    "config_reference",
    "config_to_json",
    "config_to_toml",
    "load_config",
    "override_config",
    "parse_override",
    "shipped_configs",
]
