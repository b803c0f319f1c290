"""Train on bars of your own: a CSV file, what is in it, a short run, and how it did.

The file that this writes is what a data vendor may give you: newest day first, German dates, other
columns beside those that are needed. Run it: ``python examples/train_on_your_csv.py``.
"""

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

from onegraph.kernels.device import open_device
from onegraph.trainer.config import load_config
from onegraph.trainer.evaluation import WindowEvaluator
from onegraph.trainer.loop import Loop
from onegraph.trainer.market import comparison_rows, compute_features, read_bars
from onegraph.trainer.trainer import Trainer


def write_csv(path, days=900):
    """A random walk that tends to go on as it went."""
    rng, drift, close = np.random.default_rng(7), 0.0, 100.0
    date, rows = np.datetime64("2015-01-01"), []
    for _ in range(days):
        drift = 0.9 * drift + rng.normal(0, 0.002)
        opened, close = close, close * np.exp(drift + rng.normal(0, 0.003))
        high, low = max(opened, close) * 1.002, min(opened, close) * 0.998
        year, month, day = str(date).split("-")
        prices = [f"{x:.4f}" for x in (opened, high, low, close)]
        rows.append([f"{day}.{month}.{year}", *prices, rng.integers(1000, 5000), "XETRA"])
        date = np.busday_offset(date, 1, roll="forward")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Date", "Open", "High", "Low", "Close", "Volume", "Venue"])
        writer.writerows(reversed(rows))


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "mine.csv"
    write_csv(path)

    bars = read_bars(path)
    features = compute_features(bars)
    first, last = (str(t.astype("datetime64[D]")) for t in bars.time[[0, -1]].view("M8[ns]"))
    print(f"{len(bars)} bars of {bars.symbol}, {first} to {last}; features from bar")
    print(f"{features.first_valid} on: {', '.join(features.names)}")

    # The same as `onegraph train --config demo --set env.market.data=mine.csv --set ...`.
    short = {"loop.total_env_steps": 4_000, "loop.start_steps": 800, "loop.epoch_steps": 100}
    config = load_config("demo", {"env.market.data": str(path), **short})
    with open_device("host") as device:
        trainer = Trainer(config, device, frozenset(range(1, 7)))
        print(trainer.market.windows.describe(bars.time))
        Loop(trainer, Path(folder) / "run").run()
        test = trainer.market.windows.test
        evaluator = WindowEvaluator(
            trainer.programs, trainer.workspace, trainer.market, test, "test"
        )
        figures = {"policy": evaluator.metrics(), **evaluator.baselines()}
        trainer.close()

    for row in comparison_rows(figures):
        print("  ".join(f"{cell:>16}" for cell in row))

flat, hold = figures["flat"], figures["buy and hold"]
held = bars.close[test.stop - 1] / bars.open[test.start + 1] - 1
right = (
    len(bars) == 900
    and bars.time[0] < bars.time[-1]
    and flat.total_return == 0.0
    and abs(hold.total_return - held) < 0.01  # but for what it costs to buy
    and np.isfinite(figures["policy"].total_return)
)
sys.exit(0 if right else "the figures are not what they should be")
