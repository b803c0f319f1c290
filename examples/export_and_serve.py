"""Train, export the policy as ONNX, and serve it bar by bar over the test window.

The serving half knows the ONNX file and the bars alone: it keeps its own account of position, entry
and bars held. Its actions are those of our evaluator.
Run it: ``python examples/export_and_serve.py`` (needs onnx and onnxruntime).
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from onegraph.kernels.device import HostDevice
from onegraph.trainer.cli import main
from onegraph.trainer.config import load_config
from onegraph.trainer.evaluation import WindowEvaluator
from onegraph.trainer.loop import Loop
from onegraph.trainer.market import compute_features, load_sample
from onegraph.trainer.trainer import Trainer

try:
    import onnxruntime
except ImportError as error:
    sys.exit(f"this example needs onnxruntime ({error}); run pip install onnx onnxruntime")


def serve(session, bars, window, costs, borrow):
    """Positions taken in the window, and equity at its end, from 1."""
    about = session.get_modelmeta().custom_metadata_map
    features = compute_features(bars)
    assert json.loads(about["feature_names"]) == list(features.names)
    largest = max(abs(p) for p in json.loads(about["positions"]))
    equity, position, entry, held, taken = 1.0, 0.0, 1.0, 0, []
    for t in range(window.start, window.stop - 1):
        gain = np.log(equity / entry) if position else 0.0
        own = np.array([[position / largest, gain, held / (held + 10)]], np.float32)
        feeds = {"features": features.values[t : t + 1], "position_features": own}
        target = float(session.run(["position"], feeds)[0][0])
        # Filled at the next open; a position is a fraction of equity.
        equity *= 1 + position * (bars.open[t + 1] / bars.close[t] - 1)
        entered = target != 0 and not position * target > 0
        entry, held = (equity, 1) if entered else (entry, held + 1 if target else 0)
        equity *= 1 - costs * abs(target - position)
        equity *= 1 + target * (bars.close[t + 1] / bars.open[t + 1] - 1)
        equity *= 1 - borrow * max(-target, 0)
        position = target
        taken.append(target)
    return np.array(taken), equity


with tempfile.TemporaryDirectory() as folder:
    run, file = Path(folder) / "run", Path(folder) / "policy.onnx"
    short = {"loop.total_env_steps": 4_000, "loop.start_steps": 800, "loop.epoch_steps": 200}
    config = load_config("demo", short)
    trainer = Trainer(config, HostDevice(), frozenset(range(1, 7)))
    Loop(trainer, run).run()
    window = trainer.market.windows.test
    curve = WindowEvaluator(
        trainer.programs, trainer.workspace, trainer.market, window, "test"
    ).curve()
    if main(["export", str(run), "--onnx", str(file)]):
        sys.exit("the export failed")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

market = config.env.market
costs = market.commission + market.slippage
taken, equity = serve(session, load_sample("AAPL"), window, costs, market.borrow_rate)
ours = curve.equity[-1] / curve.equity[0]
print(f"{len(taken)} bars served, {np.count_nonzero(np.diff(taken))} changes of position")
print(f"equity {equity:.6f} served, {ours:.6f} by the evaluator")
if not np.array_equal(taken, curve.position):
    sys.exit(f"{np.count_nonzero(taken != curve.position)} positions differ")
sys.exit(0 if abs(equity - ours) < 1e-9 else "the equity differs")
