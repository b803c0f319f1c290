"""Making environments of gymnasium's registry, with errors that say what to do."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from onegraph.trainer.envs.gym.environment import GymnasiumEnvironment, describe
from onegraph.trainer.envs.gym.errors import GymnasiumError, gymnasium


@dataclass(frozen=True)
class Registered:
    """An environment of the registry, to be made any number of times.

    Attributes:
        id: as `gymnasium.make` takes it.
        kwargs: what it is made with.
        vectorization: ``sync``, ``async`` or ``vector_entry_point``.
        max_steps: truncates an episode; 0 leaves what was registered.
    """

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    vectorization: str = "sync"
    max_steps: int = 0

    def __call__(self, lanes: int) -> Any:
        """A vector environment of `lanes`, which resets a lane in the step that ends its episode.

        An id's own vector environment chooses its autoreset mode itself.

        Raises:
            GymnasiumError: no such id, arguments that it does not take, or a dependency missing.
        """
        package = gymnasium()
        limits = {"max_episode_steps": self.max_steps} if self.max_steps else {}
        how: dict[str, Any] = {}
        if self.vectorization != "vector_entry_point":
            same_step = package.vector.AutoresetMode.SAME_STEP
            # What a step gives is copied to the device's memory before the next one.
            from onegraph.trainer.envs.gym.final import KeepsFinal

            how["wrappers"] = [KeepsFinal]
            how["vector_kwargs"] = {"autoreset_mode": same_step, "copy": False}
        with self._translated(package):
            return package.make_vec(
                self.id,
                num_envs=lanes,
                vectorization_mode=self.vectorization,
                **how,
                **limits,
                **self.kwargs,
            )

    def one(self) -> Any:
        """One lane, in this process: to ask it for its spaces."""
        if self.vectorization == "async":
            return Registered(self.id, self.kwargs, "sync", self.max_steps)(1)
        return self(1)

    @contextmanager
    def _translated(self, package: Any) -> Iterator[None]:
        errors = package.error
        try:
            with warnings.catch_warnings():
                # A newer version, or a space that it finds odd: said on the console by gymnasium.
                warnings.simplefilter("default")
                yield
        except errors.DependencyNotInstalled as error:
            raise GymnasiumError(f"env.id = {self.id!r}: {error}") from error
        except errors.UnregisteredEnv as error:
            raise GymnasiumError(
                f"env.id = {self.id!r} is not registered with gymnasium;"
                f" {self._nearest(package.registry)}"
            ) from error
        except ModuleNotFoundError as error:
            raise GymnasiumError(
                f"env.id = {self.id!r}: {error}; install what it is in, or correct the part before"
                " the colon"
            ) from error
        except (errors.Error, TypeError) as error:
            raise GymnasiumError(
                f"env.id = {self.id!r} can't be made with env.kwargs = {dict(self.kwargs)} and"
                f" env.vectorization = {self.vectorization!r}: {error}; correct those"
            ) from error

    def _nearest(self, registry: Mapping[str, Any]) -> str:
        near = difflib.get_close_matches(self.id, registry, n=3, cutoff=0.6)
        if not near:
            by_lower = {name.lower(): name for name in registry}
            close = difflib.get_close_matches(self.id.lower(), by_lower, n=3, cutoff=0.5)
            near = [by_lower[name] for name in close]
        if near:
            return f"did you mean {', '.join(near)}?"
        return "environments of another package are named 'module:Name-v0'"


def registered_environment(made: Registered, lanes: int, seed: int) -> GymnasiumEnvironment:
    """The environment of `made` with `lanes`; one lane is made, and closed, to read its spaces.

    Raises:
        GymnasiumError: it can't be made, or has spaces that the learner does not take.
    """
    one = made.one()
    try:
        return describe(one, made.id, lanes=lanes, seed=seed, open_vector=made, fresh=made)
    finally:
        one.close()
