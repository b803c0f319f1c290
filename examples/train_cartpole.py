"""CartPole of gymnasium: a vector environment of your own, trained on, against random actions.

The lanes are stepped on the host, between a graph launch that acts and one that learns
(docs/gymnasium.md). It checks its own answer: the greedy policy has to keep the pole up at least
three times as long as chance does. Run it: ``python examples/train_cartpole.py [learning steps]``.
"""

import sys

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from onegraph.kernels.device import open_device
from onegraph.stages.registry import ALL
from onegraph.trainer.config import load_config
from onegraph.trainer.envs.gym import over_vector_environment
from onegraph.trainer.episodes import EpisodeEvaluator
from onegraph.trainer.trainer import Trainer

LANES, EPISODES, MARGIN = 8, 20, 3.0


def cartpoles(lanes):
    """Wrap it as you like: the trainer sees a vector environment."""
    return gymnasium.make_vec(
        "CartPole-v1",
        num_envs=lanes,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )


def chance(episodes):
    """Mean return of random actions."""
    env = gymnasium.make("CartPole-v1")
    env.action_space.seed(0)
    returns = np.zeros(episodes)
    for i in range(episodes):
        env.reset(seed=i)
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            returns[i] += reward
            ended = terminated or truncated
    return returns.mean()


def main(steps=2_000, device="host"):
    """Train, and compare."""
    settings = {
        "env.lanes": LANES,
        "network.hidden": [64, 64],
        "learn.batch_size": 64,
        "learn.lr.start": 1e-3,
        "learn.epsilon.steps": LANES * steps // 2,
        "loop.start_steps": 1_000,
    }
    environment = over_vector_environment(cartpoles(LANES), seed=1, evaluation=cartpoles)
    config = load_config("gymnasium", settings)
    # The host steps these lanes, so one of the stages can't be on.
    trainer = Trainer(config, open_device(device), ALL, environment=environment, optional=ALL)
    while trainer.rows < config.loop.start_steps:
        trainer.collect()
    for _ in range(steps):
        calls = trainer.collect().by_kind() + trainer.handover.by_kind()
        trainer.learn()
    learned = EpisodeEvaluator(trainer, environment, EPISODES).run()
    random = chance(EPISODES)
    print(f"a vector step asked the device for {dict(calls)}")
    print(f"mean return: {learned.mean_return:.1f} greedy, {random:.1f} by chance")
    trainer.close()
    assert learned.mean_return > MARGIN * random, "the policy has not learned to balance"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
