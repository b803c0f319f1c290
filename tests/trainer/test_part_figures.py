"""What an epoch says of the learner's optional parts: in metrics.jsonl, its line and the page."""

import json

import numpy as np
import pytest
from trainer.setups import fill, make, short

from onegraph.kernels.device import HostDevice
from onegraph.trainer.loop import EpochSummary, Loop
from onegraph.trainer.page.part_curves import part_curves
from onegraph.trainer.page.run_folder import EpochRecord, read_run
from onegraph.trainer.part_figures import PartFigures, part_figures

COMPONENTS = ["q", "iql_high", "iql_low", "denoise", "attention", "selectivity"]
FULL = {
    "preset": "full",
    "network__attention_groups": 2,
    "network__iqn__quantiles": 4,
    "network__iqn__target_quantiles": 4,
    "learn__batch_size": 32,
    "learn__max_grad_norm": 0.5,
}


def stepped(count=3, **changes):
    trainer = fill(make(HostDevice(), short(**changes)))
    for _ in range(count):
        trainer.learn()
    return trainer


def values(figures):
    """What was said, by name: nothing empty or absent."""
    return {name for name, value in vars(figures).items() if value is not None and value != {}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network__head": "iqn"}, {"quantile_loss", "quantile_weight"}),
        ({"aux__iql": True}, {"aux_losses"}),
        ({"aux__denoise": True}, {"aux_losses"}),
        ({"network__spectral_cap": 1.0}, {"spectral_norms"}),
        ({"learn__vaccine": True}, {"vaccine_removed"}),
        (
            {"learn__budget__on": True, "learn__max_grad_norm": 1.0},
            {"gradient_norms", "gradient_scales"},
        ),
    ],
)
def test_a_part_speaks_for_itself_alone(changes, said):
    assert values(part_figures(stepped(**changes))) == said


@pytest.mark.parametrize(
    "changes", [{}, {"network__head": "iqn", "network__iqn__readiness": False}]
)
def test_without_such_parts_nothing_is_said(changes):
    assert part_figures(stepped(**changes)) is None


def test_losses_are_named_by_what_they_train():
    assert set(part_figures(stepped(aux__iql=True)).aux_losses) == {"iql_high", "iql_low"}
    assert set(part_figures(stepped(aux__denoise=True)).aux_losses) == {"denoise"}


def test_scales_hold_the_norms_to_their_shares():
    shares = {"q": 0.2, "iql_high": 0.0, "iql_low": 0.2, "denoise": 0.2, "attention": 0.2}
    fields = {f"learn__budget__{name}": share for name, share in shares.items()}
    on = {"learn__budget__on": True, "learn__budget__selectivity": 0.2}
    found = part_figures(stepped(**FULL | fields | on | {"learn__max_grad_norm": 0.1}))
    assert list(found.gradient_norms) == list(found.gradient_scales) == COMPONENTS
    assert found.gradient_scales["iql_high"] == 0
    kept = {n: found.gradient_norms[n] * found.gradient_scales[n] for n in COMPONENTS}
    assert max(kept.values()) <= 0.02 * (1 + 1e-6)
    assert any(0 < scale < 1 for scale in found.gradient_scales.values())
    for name, scale in found.gradient_scales.items():
        assert scale in (0, 1) or kept[name] == pytest.approx(0.02)


def test_spectral_norms_are_the_largest_singular_values():
    # The step changed the weights after their iteration: so little that it does not matter.
    trainer = stepped(40, network__spectral_cap=1.0, learn__lr__start=1e-6)
    found = part_figures(trainer).spectral_norms
    named = trainer.network.named(trainer.parameters())
    assert set(found) == {"hidden.0.weight"}
    for name, sigma in found.items():
        largest = np.linalg.svd(named[name], compute_uv=False)[0]
        assert sigma == pytest.approx(largest, rel=1e-3)


def test_the_quantiles_weight_follows_from_their_loss():
    limits = {"network__iqn__ready_low": 1e-3, "network__iqn__ready_high": 1.0}
    found = part_figures(stepped(network__head="iqn", **limits))
    assert 1e-3 < found.quantile_loss < 1
    assert found.quantile_weight == pytest.approx((1 - found.quantile_loss) / (1 - 1e-3))


@pytest.mark.slow
def test_a_run_of_the_full_learner_says_it_once_an_epoch(tmp_path):
    trainer = make(HostDevice(), short(**FULL, loop__total_env_steps=64 + 4 * 31))
    loop = Loop(trainer, tmp_path)
    loop.run()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert set(line["parts"]) == set(vars(PartFigures()))
        assert list(line["parts"]["gradient_norms"]) == COMPONENTS
        assert line["parts"]["vaccine_removed"] <= 0
    # Nothing ran after the last epoch's last step.
    assert lines[-1]["parts"]["aux_losses"] == part_figures(trainer).aux_losses
    said = loop.epochs[-1].line()
    for word in ("quantile weight", "iql_high", "denoise", "scale", "largest sigma", "vaccine"):
        assert word in said
    curves = part_curves(read_run(tmp_path).epochs)
    assert len(curves) == 6
    for name in ("gradient-norms", "gradient-scales", "readiness", "spectral-norms", "vaccine"):
        assert any(f'id="figure-{name}"' in curve for curve in curves)
    text = "".join(curves)
    for name in (*COMPONENTS, "hidden.0.weight", "average loss"):
        assert name in text


def epoch(learn_steps, **fields):
    plain = dict.fromkeys(
        ("seconds", "step_ms", "loss", "grad_norm", "td_mean", "q_mean", "learning_rate", "epsilon")
    )
    return EpochRecord(epoch=1, learn_steps=learn_steps, env_steps=1, **plain, **fields)


def test_the_page_of_a_plain_run_has_no_such_chart():
    assert part_curves([epoch(10), epoch(20)]) == []


def test_a_figure_that_is_missing_or_null_leaves_a_gap():
    epochs = [
        epoch(10),  # of an earlier version
        epoch(20, parts={"quantile_loss": None, "quantile_weight": 0.0}),
        epoch(30, parts={"quantile_loss": 0.5, "quantile_weight": 0.25, "unknown": 1}),
        epoch(40, parts={"quantile_weight": 0.5}),
    ]
    (curve,) = part_curves(epochs)
    assert "Readiness of the quantile head" in curve


def summary(parts):
    figures = dict.fromkeys(
        ("seconds", "step_ms", "loss", "grad_norm", "td_mean", "q_mean", "learning_rate"), 1.0
    )
    counts = dict.fromkeys(("epoch", "learn_steps", "env_steps", "skipped", "nonfinite_td"), 1)
    return EpochSummary(**figures, **counts, epsilon=1.0, invalid_rows=0, parts=parts)


def test_the_line_names_what_was_scaled():
    parts = PartFigures({"q": 3.0, "denoise": 0.1}, {"q": 0.25, "denoise": 1.0})
    assert summary(parts).line().endswith(" · scaled q 0.25")
    assert summary(PartFigures({"q": 1.0}, {"q": 1.0})).line().endswith(" · no gradient scaled")
    assert summary(None).line().endswith("1.0 s")


def test_a_figure_that_is_no_number_is_null():
    parts = json.loads(summary(PartFigures(quantile_loss=float("nan"))).as_json())["parts"]
    assert parts["quantile_loss"] is None
    assert json.loads(summary(None).as_json())["parts"] is None
