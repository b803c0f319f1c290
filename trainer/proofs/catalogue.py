"""The learning proofs, as a table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from onegraph.trainer.proofs.measures import (
    coin_quantiles,
    discrete_start,
    goals_reached,
    greedy_episodes,
    one_value,
    right_values,
    start_value,
    validation_return,
)
from onegraph.trainer.proofs.proof import Needed, Proof, Target

GYMNASIUM = (Needed("gymnasium", "gym"),)

#: Short epochs are for the curve: nothing but its points depends on them.
PROOFS: tuple[Proof, ...] = (
    Proof(
        "chain",
        "Chain of five states, gamma .9, +1 at the right end",
        "chain",
        right_values,
        (Target("error of Q(right)", 1e-3, "at most"),),
        "Q(right) = .9^4, .9^3, .9^2, .9, 1",
        overrides={"loop.epoch_steps": 100},
    ),
    Proof(
        "truncation-probe",
        "One state, reward 1, gamma .99, truncated every 10 steps",
        "truncation-probe",
        one_value,
        (Target("Q", 100.0, "within", 0.1),),
        "1 / (1 - gamma); with truncation taken for termination at most 9.17",
        overrides={"loop.epoch_steps": 100},
    ),
    Proof(
        "cliff",
        "CliffWalking-v1 on the device, gamma .99",
        "cliff",
        start_value,
        (Target("V(start)", -12.2479, "within", 0.122),),
        "value iteration: 13 steps along the edge, -(1 - gamma^13) / (1 - gamma)",
        overrides={"loop.epoch_steps": 200},
    ),
    Proof(
        "cliffwalking",
        "CliffWalking-v1 of gymnasium, gamma .99",
        "cliffwalking",
        discrete_start,
        (Target("V(start)", -12.2479, "within", 0.122),),
        "value iteration over gymnasium's own table",
        needs=GYMNASIUM,
    ),
    Proof(
        "frozenlake",
        "FrozenLake-v1 of gymnasium, 4 x 4, slippery, gamma .99",
        "frozenlake",
        discrete_start,
        (Target("V(start)", 0.5420, "within", 0.0054),),
        "value iteration over gymnasium's own table",
        needs=GYMNASIUM,
    ),
    Proof(
        "acrobot",
        "Acrobot-v1 of gymnasium",
        "acrobot",
        greedy_episodes,
        (Target("mean return", -100.0, "at least"),),
        "the threshold that gymnasium registers",
        needs=GYMNASIUM,
        point=validation_return,
    ),
    Proof(
        "cartpole",
        "CartPole-v1 of gymnasium, by CleanRL's DQN",
        "cartpole",
        greedy_episodes,
        (
            Target("mean return", 475.0, "at least"),
            Target("mean Q", 110.0, "at most"),
        ),
        "the threshold that gymnasium registers; Q of a pole that never falls is 100",
        needs=GYMNASIUM,
        point=validation_return,
    ),
    Proof(
        "bit-flip",
        "15 bits to turn into a goal, with hindsight",
        "bit-flip",
        goals_reached,
        (Target("goals reached", 0.95, "at least"),),
        "Andrychowicz et al. 2017, section 3.1",
        overrides={"loop.epoch_steps": 200},
    ),
    Proof(
        "bit-flip-without",
        "15 bits to turn into a goal, without hindsight, in as many steps",
        "bit-flip",
        goals_reached,
        (Target("goals reached", 0.05, "at most"),),
        "Andrychowicz et al. 2017, section 3.1",
        overrides={"hindsight.strategy": "none", "loop.epoch_steps": 200},
    ),
    Proof(
        "coin",
        "Returns of 0 or 1 by chance, by quantiles",
        "coin",
        coin_quantiles,
        (
            Target("error of the quantiles", 0.03, "at most"),
            Target("mean return", 0.5, "within", 0.03),
            Target("deviation of the return", 0.5, "within", 0.05),
        ),
        "the quantiles of a fair coin are 0 below the level 1/2 and 1 above it",
        overrides={"loop.epoch_steps": 20},
    ),
)


class UnknownProofError(ValueError):
    """A name that no proof has."""


def chosen(names: Sequence[str], known: Sequence[Proof] = PROOFS) -> tuple[Proof, ...]:
    """The proofs of those names, in the table's order; all without any.

    Raises:
        UnknownProofError: a name that none has, with the nearest.
    """
    by_name = {proof.name: proof for proof in known}
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(by_name)}"
            raise UnknownProofError(f"{name!r} is no proof; {hint}")
    return tuple(proof for proof in known if not names or proof.name in names)
