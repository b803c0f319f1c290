"""Market bars: reading, features, windows and metrics, in NumPy alone.

The main path: `read_bars` (or `load_sample`) -> `split` or `walk_forward` -> `compute_features` ->
`Normaliser.fit` on the training window -> the environment -> `evaluate_curve`.
"""

from onegraph.trainer.market.adjust import AdjustmentTable, adjust_by_table, read_adjustments
from onegraph.trainer.market.bars import Bars
from onegraph.trainer.market.errors import MarketDataError
from onegraph.trainer.market.features import FeatureList, Features, Normaliser, compute_features
from onegraph.trainer.market.metrics import (
    Metrics,
    comparison_rows,
    evaluate_curve,
    periods_per_year,
)
from onegraph.trainer.market.read import read_bars
from onegraph.trainer.market.sample import SAMPLE_SYMBOLS, load_sample
from onegraph.trainer.market.windows import Windows, split, walk_forward, walk_forward_months

__all__ = [
    "SAMPLE_SYMBOLS",
    "AdjustmentTable",
    "Bars",
    "FeatureList",
    "Features",
    "MarketDataError",
    "Metrics",
    "Normaliser",
    "Windows",
    "adjust_by_table",
    "comparison_rows",
    "compute_features",
    "evaluate_curve",
    "load_sample",
    "periods_per_year",
    "read_adjustments",
    "read_bars",
    "split",
    "walk_forward",
    "walk_forward_months",
]
