"""What the trainer must do on every device, as tests over a fixture ``open_device``.

`test_contract.py` runs them on the host device, `tests/gpu/test_trainer_cuda.py` on a GPU. The
fixture gives a function that opens a device, or hands out the one there is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from trainer.setups import (
    OpenDevice,
    bit_flip,
    chain,
    end_of,
    fill,
    full,
    full_market,
    make,
    market,
    market_setup,
    short,
    small,
    steps,
    tabular,
    trajectory,
)

from onegraph.kernels.common import layout
from onegraph.kernels.common.layout import Diagnostic, Flag, ScheduleKind, ScheduleParam
from onegraph.kernels.device import Device
from onegraph.stages import exact_sets, format_set
from onegraph.stages.program import Branches
from onegraph.stages.registry import step_stages
from onegraph.stages.runner import Runner
from onegraph.stages.s5_child_graphs import REBUILDING
from onegraph.trainer.blocks import grouping
from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import reset_program
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.evaluation import WindowEvaluator
from onegraph.trainer.network import QNetwork
from onegraph.trainer.phases import PHASES
from onegraph.trainer.trainer import Trainer, TrainerError

SETS = [pytest.param(s, id=format_set(s)) for s in exact_sets(step_stages())]
#: One of each way of doing things: all on the host, thresholds from the host, launches, one graph.
FOUR_SETS = ["0", "1", "4", "all"]

#: Each stage's addition once, for parts of the learner that no stage rewrites.
FIVE_SETS = [frozenset(range(1, last + 1)) for last in (1, 2, 4, 5, 6)]

IQN = {"network__head": "iqn", "network__iqn__quantiles": 3, "network__iqn__target_quantiles": 2}
TIGHT = {"learn__budget__on": True, "learn__max_grad_norm": 0.02}

#: Every part of the learner that the config can put in: what stands between draw and priorities.
PARTS: dict[str, Config] = {
    "gate": small(network__gate=True, network__gate_l1=0.1),
    "attention": small(network__attention_groups=2, network__attention_heads=2),
    "residual": small(network__residual_blocks=2, network__drop_path=0.5),
    "residual, none left out": small(network__residual_blocks=1),
    "IQN": small(**IQN, network__iqn__ready_high=0.2, network__iqn__ready_low=0.0),
    "IQN alone": small(**IQN, network__iqn__readiness=False, network__dueling=False),
    "C51": small(network__head="c51", network__c51__atoms=7),
    "C51, not dueling, not double": small(
        network__head="c51",
        network__c51__atoms=7,
        network__dueling=False,
        network__double=False,
    ),
    "noisy": small(network__noisy=True),
    "noisy IQN": small(**IQN, network__noisy=True, network__double=False),
    "spectral": small(network__spectral_cap=0.5),
    "IQL, modulated": small(aux__iql=True, aux__iql_hidden=6, aux__modulate=True),
    "denoise": small(aux__denoise=True, aux__denoise_hidden=5),
    "denoise, gate": small(aux__denoise=True, aux__denoise_hidden=5, network__gate=True),
    "budget": small(**TIGHT, network__gate=True),
    "budget without the gate's share": small(
        **TIGHT,
        network__gate=True,
        learn__budget__selectivity=0.0,
        learn__budget__q=0.75,
    ),
    "vaccine, budget without the gate's share": small(
        **TIGHT,
        network__gate=True,
        learn__budget__selectivity=0.0,
        learn__budget__q=0.75,
        learn__vaccine=True,
        learn__batch_size=4,
    ),
    "weight decay": small(learn__weight_decay=0.1),
    "vaccine": short(learn__vaccine=True, learn__batch_size=4),
    "vaccine, hindsight": bit_flip(learn__vaccine=True, learn__batch_size=9),
    "vaccine, hindsight, random": bit_flip(
        learn__vaccine=True, learn__batch_size=9, hindsight__strategy="random"
    ),
    "full": full(),
    "full, C51, noisy": full(network__head="c51", network__c51__atoms=7, network__noisy=True),
}

#: Of these every set is run: they hold every part, or the stages rewrite their ops.
IN_ALL_SETS = {"noisy", "IQL, modulated", "vaccine", "vaccine, hindsight", "full"}

#: Every choice that puts other ops or other sizes into the programs.
VARIANTS: dict[str, Config] = {
    "chain": chain(),
    "market": market(),
    "uniform": chain(replay__alpha=0.0),
    "uniform with invalid rows": short(replay__alpha=0.0, seed=3),
    "alpha 1, eps 0": short(replay__alpha=1.0, replay__eps=0.0),
    "not stratified": short(replay__stratified=False),
    "1-step": short(replay__n_step=1),
    "Huber": short(learn__loss="huber", learn__huber_delta=0.05),
    "not dueling": short(network__dueling=False),
    "not double": short(network__double=False),
    "plain": short(network__dueling=False, network__double=False),
    "hard target": short(learn__target="hard", learn__target_every=7),
    "not clipped": short(learn__max_grad_norm=0.0),
    "always clipped": short(learn__max_grad_norm=0.01),
    "1 lane": short(env__lanes=1, replay__capacity=71),
    "batch 37, prime slots": short(
        learn__batch_size=37, env__lanes=3, replay__capacity=87, env__max_episode_steps=6
    ),
    "three layers": short(network__hidden=[12, 9, 5]),
    "warm-up": short(learn__lr__warm_up_steps=9, learn__tau__kind="linear", learn__tau__steps=12),
    "bit flip": bit_flip(hindsight__strategy="none"),
    "hindsight, future": bit_flip(),
    "hindsight, final, uniform": bit_flip(hindsight__strategy="final", replay__alpha=0.0),
    "hindsight, random": bit_flip(hindsight__strategy="random", hindsight__k=1),
    "hindsight and vaccine": bit_flip(hindsight__strategy="random", learn__vaccine=True),
    "contracts": market(
        replay__capacity=200,
        loop__epoch_steps=16,
        env__market__sizing="contracts",
        env__market__reward="scaled_pnl",
        env__market__commission=1.0,
        env__market__slippage=1.0,
    ),
    **PARTS,
}


def broken_chain(config: Config) -> TabularEnvironment:
    """The chain, with a reward that is no number for going left from state 1."""
    made = tabular(config)
    reward = made.reward.copy()
    reward[1, 0] = np.nan
    return TabularEnvironment(
        made.next_state, reward, made.terminated, made.start, 0, made.lanes, made.seed
    )


class EquivalenceContract:
    @pytest.mark.slow
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_every_set_of_stages_gives_the_bits_of_stage_0(
        self, open_device: OpenDevice, variant: str
    ) -> None:
        config = VARIANTS[variant]
        environment = broken_chain(config) if "invalid" in variant else None

        def run(stages: frozenset[int]):
            made = make(open_device(), config, stages, environment)
            return trajectory(made, config.loop.epoch_steps)

        reference = run(frozenset())
        # Or equality would mean little.
        assert len(set(reference.indices)) == config.loop.epoch_steps
        assert reference.end["theta"] != reference.end["theta_target"]
        assert np.frombuffer(reference.end["counters"], np.int64)[layout.Counter.FILLED] == (
            config.replay.capacity
        )
        differs = {}
        all_of_them = variant not in PARTS or variant in IN_ALL_SETS
        for stages in exact_sets(step_stages())[1:] if all_of_them else FIVE_SETS:
            found = run(stages)
            wrong = [n for n, values in reference.end.items() if found.end[n] != values]
            steps = zip(reference.indices, found.indices, strict=True)
            wrong += [f"indices of step {k}" for k, (a, b) in enumerate(steps) if a != b][:1]
            if wrong:
                differs[format_set(stages)] = wrong
        assert differs == {}

    @pytest.mark.parametrize("variant", ["full", "full, C51, noisy"])
    def test_passes_in_branches_keep_every_bit(
        self, open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, variant: str
    ) -> None:
        """As if each product were large enough for a launch of its own."""
        config = VARIANTS[variant]
        grouped = make(open_device(), config, "0")
        monkeypatch.setattr(grouping, "_SHARES_UP_TO", 0)
        branched = make(open_device(), config, "0")
        few, many = (
            sum(isinstance(op, Branches) for phase in t.learn_program.phases for op in phase.ops)
            for t in (grouped, branched)
        )
        grouped.close()
        assert few < many
        reference = trajectory(branched, 16)
        for stages in ("4", "5,4,2,1", "all"):
            assert trajectory(make(open_device(), config, stages), 16) == reference, stages

    @pytest.mark.parametrize("variant", ["full", "full, C51, noisy"])
    def test_two_runs_are_one(self, open_device: OpenDevice, variant: str) -> None:
        config = VARIANTS[variant]
        first, second = (trajectory(make(open_device(), config), 30) for _ in range(2))
        assert first == second

    @pytest.mark.slow
    def test_the_variants_differ(self, open_device: OpenDevice) -> None:
        """A field that no op reads would make its variant the chain."""
        ends = {}
        for name, config in {"short": short(), "small": small(), **VARIANTS}.items():
            environment = broken_chain(config) if "invalid" in name else None
            made = make(open_device(), config, "all", environment)
            ends[name] = trajectory(made, 40).end["theta"]
        same = {(a, b) for a in ends for b in ends if a < b and ends[a] == ends[b]}
        assert same == set()

    @pytest.mark.parametrize("stages", SETS)
    @pytest.mark.parametrize("config", [chain(), market(), full()], ids=["chain", "market", "full"])
    def test_a_steady_step_makes_the_calls_of_its_program_within_its_budget(
        self, open_device: OpenDevice, stages: frozenset[int], config: Config
    ) -> None:
        trainer = make(open_device(), config, stages)
        steps(fill(trainer), 2)
        for program, step in (
            (trainer.learn_program, trainer.learn),
            (trainer.collect_program, trainer.collect),
        ):
            allowed = trainer.budget(program)
            for timed in (False, True, True, False):
                allowed.check(program.calls(timed=timed), program, timed=timed)
                counts = step(timed=timed).counts
                allowed.check(counts, program, timed=timed)
                assert counts == program.calls(timed=timed)
        trainer.close()

    @pytest.mark.parametrize("config", [market(), full_market()], ids=["dqn", "full"])
    def test_with_every_stage_a_step_is_one_graph_launch(
        self, open_device: OpenDevice, config: Config
    ) -> None:
        device = open_device()
        trainer = make(device, config, "all")
        steps(fill(trainer), 1)
        for _ in range(20):
            assert trainer.learn().by_kind() == Counter(graph_launch=1)
            assert trainer.collect().by_kind() == Counter(graph_launch=1)
        timed = trainer.learn(timed=True).by_kind()
        assert timed == Counter(graph_launch=1, event_set=len(PHASES) + 1)
        assert trainer.learn().by_kind() == Counter(graph_launch=1)
        trainer.close()

    @pytest.mark.parametrize(
        ("config", "absent"),
        [(chain(), {"spectral", "aux", "iql_modulate"}), (full(), set[str]())],
        ids=["dqn", "full"],
    )
    def test_with_child_graphs_a_step_is_one_launch_for_each_phase_that_has_work(
        self, open_device: OpenDevice, config: Config, absent: set[str]
    ) -> None:
        trainer = make(open_device(), config, "5,4,2,1")
        steps(fill(trainer), 1)
        assert trainer.learn().counts == {
            (phase, "graph_launch"): 1 for phase in PHASES if phase not in absent
        }
        assert set(trainer.graph_nodes()) == set(PHASES) - absent
        trainer.close()

    def test_stage_0_reads_back_and_uploads_in_each_step(self, open_device: OpenDevice) -> None:
        """What the later stages are measured against is really there."""
        trainer = make(open_device(), chain(network__dueling=False), "0")
        steps(fill(trainer), 1)
        calls = trainer.learn().by_kind()
        assert calls["dtoh"] == 4  # loss statistics, norm, skip flag, TD errors
        assert calls["htod"] == 8  # six of the batch, counters, schedules
        assert calls["alloc"] == calls["free"] == 2
        assert calls["sync"] == 5  # each read-back, and the memset that blocks
        trainer.close()

    @pytest.mark.parametrize("stages", ["4", "5", "all"])
    @pytest.mark.parametrize("config", [market(), full_market()], ids=["dqn", "full"])
    def test_no_kernel_is_launched_from_a_shared_module(
        self, open_device: OpenDevice, config: Config, stages: str
    ) -> None:
        device = open_device()
        device.launch_sites.clear()  # of earlier tests, where the device is shared
        trainer = make(device, config, stages)
        steps(fill(trainer), 2)
        assert trainer.market is not None
        walk = WindowEvaluator(
            trainer.programs, trainer.workspace, trainer.market, slice(2600, 2610), "short"
        )
        walk.metrics()
        walk.baselines()
        sites = device.launch_sites
        assert {module for _, module in sites} == {"graphed", "ungraphed"} - (
            {"graphed"} if stages == "4" else set()
        )
        for (kernel, module), where in sites.items():
            wanted = {"captured", "warm-up"} if module == "graphed" else {"eager"}
            assert where <= wanted, (kernel, module)
        trainer.close()


# ------------------------------------------------------------------------ gradients


def loss_of(
    theta: np.ndarray, network: QNetwork, batch: dict[str, np.ndarray], config: Config
) -> tuple[float, np.ndarray]:
    """Mean weighted loss and TD errors in float64, written without the trainer's own parts.

    `batch` holds ``target``, which is no function of `theta`.
    """
    q = values_of(theta, network, batch["s_tm1"])
    taken = q[np.arange(len(q)), batch["a_tm1"]]
    td = batch["target"] - taken
    if config.learn.loss == "mse":
        cost = td**2 / 2
    else:
        delta = config.learn.huber_delta
        cost = np.where(np.abs(td) <= delta, td**2 / 2, delta * (np.abs(td) - delta / 2))
    return float((batch["weight"] * cost).sum() / len(q)), td


def values_of(theta: np.ndarray, network: QNetwork, x: np.ndarray) -> np.ndarray:
    """Action values, parameters being [W0, b0, W1, b1, …], each begun at a multiple of 8 floats."""
    widths = [x.shape[1], *network.config.hidden, network.stride]
    at = 0
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        weight = theta[at : at + n_in * n_out].reshape(n_in, n_out)
        at = math.ceil((at + n_in * n_out) / 8) * 8
        bias = theta[at : at + n_out]
        at = math.ceil((at + n_out) / 8) * 8
        x = x @ weight + bias
        if i < len(widths) - 2:
            x = np.maximum(x, 0)
    assert at == theta.size
    if not network.dueling:
        return x
    advantage, value = x[:, :-1], x[:, -1:]
    return value + advantage - advantage.mean(1, keepdims=True)


class GradientContract:
    @pytest.mark.parametrize(
        "hidden", [[6], [6, 5], [6, 5, 7], [8, 4]], ids=["1", "2", "3", "fused"]
    )
    @pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
    @pytest.mark.parametrize("dueling", [True, False], ids=["dueling", "plain"])
    @pytest.mark.parametrize("loss", ["huber", "mse"])
    def test_the_gradient_is_that_of_central_differences(
        self, open_device: OpenDevice, loss: str, dueling: bool, double: bool, hidden: list[int]
    ) -> None:
        device = open_device()
        fused = hidden == [8, 4] and device.largest_cluster > 1
        config = market(
            network__hidden=hidden,
            network__dueling=dueling,
            network__double=double,
            learn__loss=loss,
            learn__huber_delta=0.15,
            learn__gamma=0.9,
            fusion="rows8-cluster4" if fused else "none",
        )
        trainer = make(device, config, "all")
        steps(fill(trainer), 3)
        read = trainer.workspace.read
        theta, behind = (read(n).astype(np.float64) for n in ("theta", "theta_target"))
        trainer.learn()
        grad = read("grad")
        names = ("s_tm1", "a_tm1", "r_t", "discount_t", "s_t", "weight", "td", "loss")
        batch = {n: read(n).astype(np.int64 if n == "a_tm1" else np.float64) for n in names}
        trainer.close()

        network = trainer.network
        target_q = values_of(behind, network, batch["s_t"])
        chosen = values_of(theta, network, batch["s_t"]) if double else target_q
        bootstrap = target_q[np.arange(len(chosen)), chosen.argmax(axis=1)]
        batch["target"] = batch["r_t"] + batch["discount_t"] * bootstrap
        mean, td = loss_of(theta, network, batch, config)
        np.testing.assert_allclose(batch["td"], td, rtol=0, atol=2e-5 * np.abs(td).max())
        assert batch["loss"].mean() == pytest.approx(mean, rel=1e-4)
        if loss == "huber":  # both of its branches are in the batch
            assert 0 < (np.abs(td) > config.learn.huber_delta).sum() < len(td)

        wanted = np.zeros(theta.size)
        step = 1e-6
        for i in range(theta.size):
            up, down = theta.copy(), theta.copy()
            up[i] += step
            down[i] -= step
            rise = loss_of(up, network, batch, config)[0] - loss_of(down, network, batch, config)[0]
            wanted[i] = rise / (2 * step)
        # float32 against float64; central differences are good to about 1e-9 here.
        assert np.linalg.norm(grad - wanted) <= 2e-5 * np.linalg.norm(wanted)


# ------------------------------------------------------------------------ schedules


def captures(device: Device) -> int:
    """Captures, ops captured and instantiations so far on the device.

    Not modules: whoever launches a kernel for the first time loads it, an evaluation too.
    """
    totals = device.ledger.totals
    return sum(n for (_, _, kind), n in totals.items() if kind in REBUILDING[:3])


class ScheduleContract:
    @pytest.mark.parametrize("stages", FOUR_SETS)
    def test_each_step_uses_the_schedules_at_its_own_number(
        self, open_device: OpenDevice, stages: str
    ) -> None:
        config = chain(
            learn__lr__kind="linear",
            learn__lr__start=1e-2,
            learn__lr__end=1e-3,
            learn__lr__steps=30,
            learn__lr__warm_up_steps=8,
            learn__tau__kind="cosine",
            learn__tau__start=0.2,
            learn__tau__end=0.1,
            learn__tau__steps=25,
            learn__epsilon__steps=4 * 80,
            replay__beta_start=0.4,
            replay__beta_end=1.0,
            replay__beta_steps=20,
        )
        trainer = make(open_device(), config, stages)
        steps(fill(trainer), 40)
        seen = trainer.history(40)
        k = np.arange(40)
        assert seen["adam_step"].tolist() == (k + 1).tolist()
        assert seen["stamp_end"].tolist() == (k + 1).tolist()
        rate = 1e-2 + (1e-3 - 1e-2) * np.minimum(k / 30, 1)
        np.testing.assert_allclose(
            seen["learning_rate"], rate * np.minimum((k + 1) / 8, 1), rtol=1e-12
        )
        x = np.minimum(k / 25, 1)
        tau = 0.1 + 0.1 * (1 + np.cos(np.pi * x)) / 2
        np.testing.assert_allclose(seen["tau"], tau, rtol=1e-12)
        # The record has the beta of the next draw.
        np.testing.assert_allclose(
            seen["beta"], 0.4 + 0.6 * np.minimum((k + 1) / 20, 1), rtol=1e-12
        )
        # 40 vector steps filled the replay, then one followed each learning step.
        np.testing.assert_allclose(
            seen["epsilon"], 1 + (0.1 - 1) * np.minimum((40 + k) / 80, 1), rtol=1e-12
        )
        trainer.close()

    def test_a_changed_schedule_takes_effect_without_a_capture(
        self, open_device: OpenDevice
    ) -> None:
        device = open_device()
        trainer = make(device, chain(), "all")
        steps(fill(trainer), 5)
        before, at_start = trainer.parameters(), captures(device)
        changed = trainer.workspace.read("schedule_params")
        for which, value in (
            (ScheduleParam.LEARNING_RATE, 0.0),
            (ScheduleParam.TAU, 1.0),
            (ScheduleParam.EPSILON, 0.25),
            (ScheduleParam.BETA, 0.75),
        ):
            changed[which : which + 4] = ScheduleKind.CONSTANT, value, value, 1
        trainer.workspace.write("schedule_params", changed)
        steps(trainer, 2)
        np.testing.assert_array_equal(trainer.parameters(), before)
        np.testing.assert_array_equal(trainer.workspace.read("theta_target"), before)
        seen = trainer.history(1)
        for name, value in (("learning_rate", 0), ("tau", 1), ("epsilon", 0.25), ("beta", 0.75)):
            assert seen[name].tolist() == [value]
        assert captures(device) == at_start
        assert trainer.learn().by_kind() == Counter(graph_launch=1)
        trainer.close()


# ------------------------------------------------------------------------ what is no number


class NonFiniteContract:
    @pytest.mark.parametrize("stages", FOUR_SETS)
    @pytest.mark.parametrize("alpha", [0.6, 0.0])
    def test_a_row_with_a_broken_reward_is_never_drawn(
        self, open_device: OpenDevice, stages: str, alpha: float
    ) -> None:
        config = chain(replay__alpha=alpha)
        trainer = make(open_device(), config, stages, broken_chain(config))
        fill(trainer)
        read = trainer.workspace.read
        drawn = 0
        for _ in range(30):
            trainer.learn()
            invalid = (read("replay_flags") & Flag.INVALID) != 0
            drawn += int(invalid[trainer.indices()].sum())
            trainer.collect()
        assert drawn == 0
        invalid = (read("replay_flags") & Flag.INVALID) != 0
        assert 0 < invalid.sum() < 300
        leaves = read("replay_leaves")
        assert (leaves[invalid] == 0).all()
        assert (leaves[~invalid] > 0).sum() == trainer.rows - invalid.sum()
        assert read("diagnostics")[Diagnostic.INVALID_ROW] >= invalid.sum()
        assert np.isfinite(trainer.parameters()).all()
        assert trainer.history(1)["skipped"].tolist() == [0]
        assert np.isfinite(read("replay_reward")).all()
        trainer.close()

    def test_a_bar_whose_features_are_no_numbers_is_left_out(self, open_device: OpenDevice) -> None:
        config = market()
        features = market_setup(config).environment.features.copy()
        features[::7] = np.nan
        environment = replace(market_setup(config).environment, features=features)
        trainer = make(open_device(), config, "all", environment)
        steps(fill(trainer), 20)
        read = trainer.workspace.read
        invalid = (read("replay_flags") & Flag.INVALID) != 0
        assert 0.2 < invalid.mean() < 0.4  # a bad bar spoils the step to it and the step from it
        assert (read("replay_leaves")[invalid] == 0).all()
        assert np.isfinite(read("replay_state")).all()
        assert np.isfinite(trainer.parameters()).all()
        assert trainer.history(1)["skipped"].tolist() == [0]
        trainer.close()

    @pytest.mark.parametrize("stages", FOUR_SETS)
    def test_a_gradient_that_is_no_number_skips_the_step(
        self, open_device: OpenDevice, stages: str
    ) -> None:
        """A target network with a NaN in its head makes every TD error, and the gradient, NaN."""
        trainer = make(open_device(), chain(network__dueling=False), stages)
        steps(fill(trainer), 5)
        space = trainer.workspace
        target = space.read("theta_target")
        broken = target.copy()
        trainer.network.layout["head.bias"].values(broken)[:] = np.nan
        before = {name: space.read(name) for name in ("theta", "adam_m", "adam_v")}
        space.write("theta_target", broken)
        for skipped in (1, 2):
            leaves, counted = space.read("replay_leaves"), space.read("diagnostics")
            trainer.learn()
            for name, values in before.items():
                np.testing.assert_array_equal(space.read(name), values, err_msg=name)
            np.testing.assert_array_equal(space.read("theta_target"), broken)
            seen = trainer.history(1)
            assert seen["skipped"].tolist() == [skipped]
            assert seen["adam_step"].tolist() == [6]  # t of the first is not used up
            assert np.isnan(seen["loss"]).all()
            # A row that terminates has a TD error all the same; the others keep their leaf.
            nan = np.isnan(space.read("td"))
            assert 0 < nan.sum() < len(nan)
            kept = trainer.indices()[nan]
            np.testing.assert_array_equal(space.read("replay_leaves")[kept], leaves[kept])
            counted = space.read("diagnostics") - counted
            assert counted[Diagnostic.NONFINITE_TD] == nan.sum()

        space.write("theta_target", target)
        steps(trainer, 1)
        seen = trainer.history(1)
        assert (seen["adam_step"][0], seen["skipped"][0]) == (6, 2)
        assert np.isfinite(seen["loss"][0])
        assert (trainer.parameters() != before["theta"]).any()
        trainer.close()


# ------------------------------------------------------------------------ state


class StateContract:
    @pytest.mark.parametrize(
        "config",
        [chain(), chain(replay__alpha=0.0), full(loop__epoch_steps=30)],
        ids=["prioritized", "uniform", "full"],
    )
    @pytest.mark.parametrize(
        "pair", [("0", "0"), ("all", "all"), ("0", "all"), ("all", "0")], ids=str
    )
    def test_a_state_goes_on_at_other_stages_as_if_nothing_had_been(
        self, open_device: OpenDevice, pair: tuple[str, str], config: Config
    ) -> None:
        straight = steps(fill(make(open_device(), config, "all")), 30)
        first = steps(fill(make(open_device(), config, pair[0])), 15)
        state, progress = first.state(), first.progress
        first.close()
        second = make(open_device(), config, pair[1])
        second.restore(state, progress)
        steps(second, 15)
        wanted, found = end_of(straight), end_of(second)
        assert [n for n in wanted if n in found and wanted[n] != found[n]] == []
        straight.close()
        second.close()

    def test_a_batch_is_not_drawn_from_fewer_rows(self, open_device: OpenDevice) -> None:
        trainer = make(open_device(), chain(), "all")
        for _ in range(7):
            trainer.collect()
        with pytest.raises(
            TrainerError,
            match="a batch of 32 can't be drawn from a replay that holds 28 rows; collect 4 more",
        ):
            trainer.learn()
        trainer.collect()
        trainer.learn()
        trainer.close()


# ------------------------------------------------------------------------ evaluation


class EvaluationContract:
    @pytest.fixture(params=["dqn", "full", "noisy C51"])
    def trained(self, request: pytest.FixtureRequest, open_device: OpenDevice):
        config = {
            "dqn": market(),
            "full": full_market(),
            "noisy C51": full_market(network__head="c51", network__noisy=True),
        }[request.param]
        trainer = steps(fill(make(open_device(), config, "all")), 20)
        yield trainer
        trainer.close()

    def test_a_walk_is_the_same_each_time_and_changes_nothing(self, trained: Trainer) -> None:
        assert trained.market is not None
        window = trained.market.windows.validation
        walk = WindowEvaluator(
            trained.programs, trained.workspace, trained.market, window, "validation"
        )
        before = trained.state()
        first, second = walk.curve(), walk.curve()
        for name, values in trained.state().items():
            np.testing.assert_array_equal(values, before[name], err_msg=name)
        for name in ("time", "equity", "position", "reward"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        bars = window.stop - window.start
        assert len(first.time) == bars - 1
        assert first.time[-1] == trained.market.bars.time[window.stop - 1]
        assert set(first.position.tolist()) <= {-1.0, 0.0, 1.0}
        # The log rewards are the log of the equity's growth.
        assert math.fsum(first.reward) == pytest.approx(
            math.log(first.equity[-1] / first.equity[0]), rel=1e-12, abs=1e-13
        )

    def test_each_action_is_the_greedy_one(self, trained: Trainer) -> None:
        """Also while collecting still explores."""
        assert trained.history(1)["epsilon"][0] > 0.9
        assert trained.market is not None
        lane = trained.market.environment.over(slice(2600, 2660), "short")
        space = trained.workspace
        Runner(reset_program(lane), space).step()
        step = Runner(trained.programs.evaluate(lane), space)
        for _ in range(50):
            q = trained.q_values(space.read("short_obs"))[0]
            step.step()
            taken = q[space.read("short_action")[0]]
            # float32 may not tell them apart; an expectation over atoms cancels most of itself.
            assert taken >= q.max() - 1e-4 * np.abs(q).max() - 1e-5

    def test_baselines_are_flat_and_buy_and_hold(self, trained: Trainer) -> None:
        assert trained.market is not None
        bars, rules = trained.market.bars, trained.environment.rules  # type: ignore[attr-defined]
        window = trained.market.windows.test
        walk = WindowEvaluator(trained.programs, trained.workspace, trained.market, window, "test")
        found = walk.baselines()
        flat = found["flat"]
        assert (flat.total_return, flat.sharpe, flat.max_drawdown, flat.turnover) == (0, 0, 0, 0)
        # Bought at the open of the bar after the first, marked to the last close.
        paid = 1 - (rules.commission + rules.slippage)
        growth = paid * bars.close[window.stop - 1] / bars.open[window.start + 1]
        assert found["buy and hold"].total_return == pytest.approx(growth - 1, rel=1e-9)
        steps_walked = window.stop - window.start - 1
        assert found["buy and hold"].bars == steps_walked
        assert found["buy and hold"].turnover == pytest.approx(1 / steps_walked)

    def test_evaluating_between_steps_does_not_disturb_training(
        self, open_device: OpenDevice
    ) -> None:
        config = market()

        def run(stages: str, *, evaluate: bool):
            device = open_device()
            at_start = captures(device)
            trainer = fill(make(device, config, stages))
            assert trainer.market is not None
            walk = WindowEvaluator(
                trainer.programs, trainer.workspace, trainer.market, slice(2600, 2640), "short"
            )
            indices = []
            for k in range(12):
                steps(trainer, 1)
                indices.append(trainer.indices().tobytes())
                if evaluate and k % 3 == 0:
                    walk.metrics()
            # A re-capture would mean that a buffer had moved.
            made = captures(device) - at_start
            if evaluate:
                walk.baselines()
            end = end_of(trainer)
            trainer.close()
            return indices, end, made

        alone = run("all", evaluate=False)
        assert run("all", evaluate=True) == alone
        assert run("0", evaluate=True)[:2] == alone[:2]
