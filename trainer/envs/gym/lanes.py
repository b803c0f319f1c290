"""The lanes of a vector environment, stepped on the host.

Which of a step's observations are an episode's end, and which a reset's: under SAME_STEP a lane
whose episode ends is reset at once; the step gives the next episode's first observation, and the
final one stands in its info. Under NEXT_STEP the step gives the final observation, and the next
step of that lane only resets: its action is not done, and it is no step of an episode. Its row is
flagged INVALID, so that it is never drawn and no return crosses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import Flag
from onegraph.trainer.envs.base import FinishedEpisodes, HostArrays
from onegraph.trainer.envs.gym.errors import GymnasiumError, gymnasium
from onegraph.trainer.envs.gym.snapshot import SnapshotError, lanes_state, put_lanes_state
from onegraph.trainer.envs.gym.spaces import Actions, Observations

#: Of a row that belongs to no episode.
NO_EPISODE = -1


def check_autoreset(envs: Any, name: str) -> Any:
    """The autoreset mode of a vector environment.

    Raises:
        GymnasiumError: it says none, or that nothing resets its lanes.
    """
    modes = gymnasium().vector.AutoresetMode
    said = envs.metadata.get("autoreset_mode")
    try:
        mode = modes(said)
    except ValueError:
        raise GymnasiumError(
            f"{name}: its metadata['autoreset_mode'] is {said!r}, so that final observations can't"
            " be told from resets; set it to what the environment does, AutoresetMode.NEXT_STEP or"
            " SAME_STEP"
        ) from None
    if mode == modes.DISABLED:
        raise GymnasiumError(
            f"{name}: its autoreset is disabled, so that lanes would go on after an episode's end;"
            " make it with autoreset_mode=AutoresetMode.SAME_STEP (or NEXT_STEP)"
        )
    return mode


@dataclass
class _Episodes:
    """What is counted of the lanes' episodes, each array [E]."""

    number: NDArray[np.int64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, lanes: int) -> _Episodes:
        return cls(np.zeros(lanes, np.int64), np.zeros(lanes), np.zeros(lanes, np.int64))


class GymnasiumLanes:
    """A live vector environment.

    Args:
        envs: a `gymnasium.vector.VectorEnv`.
        name: for messages.
        lanes: E, which it must have.

    Raises:
        GymnasiumError: other lanes, or an autoreset mode that can't be used.
    """

    def __init__(
        self, envs: Any, name: str, lanes: int, observations: Observations, actions: Actions
    ) -> None:
        self.envs, self.name, self.lanes = envs, name, lanes
        self.observations, self.actions = observations, actions
        if envs.num_envs != lanes:
            raise GymnasiumError(
                f"{name}: the vector environment has {envs.num_envs} lanes, and {lanes} are asked"
                " for; make them equal (env.lanes)"
            )
        mode = check_autoreset(envs, name)
        self._same_step = mode == gymnasium().vector.AutoresetMode.SAME_STEP
        self._resets_next = np.zeros(lanes, np.bool_)
        self._lane = np.arange(lanes, dtype=np.int64)
        self._count = _Episodes.of(lanes)
        self._finished: list[tuple[int, float, int]] = []
        self._steps = 0
        self._worker_lost = False
        #: Why the lanes could not be saved; empty if they could, or nobody tried.
        self.unsaved = ""

    # ---------------------------------------------------------------- stepping

    def reset(self, seeds: NDArray[np.int64], into: HostArrays) -> None:
        """Begin an episode in every lane, by one seed a lane, and show it."""
        vector = gymnasium().vector
        several = isinstance(self.envs.unwrapped, vector.SyncVectorEnv | vector.AsyncVectorEnv)
        # A vector environment of an id's own has one generator.
        seed = [int(s) for s in seeds] if several else int(seeds[0])
        with self._explained():
            observations, _ = self.envs.reset(seed=seed)
        self._resets_next[:] = False
        self._count.returns[:] = 0.0
        self._count.lengths[:] = 0
        self.observations.put(observations, into.obs)

    def step(self, actions: NDArray[np.int32], into: HostArrays) -> int:
        """Do `actions` [E], counted from 0, and write what came of them.

        Returns:
            How many lanes did a step of an episode; the others were only reset.

        Raises:
            GymnasiumError: a worker died, or the environment does not do what its spaces and its
                autoreset mode say.
            Exception: whatever the environment raised, with a note.
        """
        offset = actions.astype(np.int64)
        offset += self.actions.start
        with self._explained():
            observations, rewards, terminated, truncated, infos = self.envs.step(offset)
        self._steps += 1
        only_reset = self._resets_next
        resets = not self._same_step and only_reset.any()
        flags = into.flags
        np.copyto(flags, terminated, casting="unsafe")
        flags |= np.asarray(truncated, np.uint8) << 1  # Flag.TRUNCATED
        with np.errstate(over="ignore"):  # an infinity marks the row invalid where it is stored
            into.reward[:] = rewards
        if resets:
            flags[only_reset] = Flag.INVALID
            into.reward[only_reset] = 0.0
        self.observations.put(observations, into.obs)
        self._count_step(into, rewards, only_reset if resets else None)
        ended = (flags & (Flag.TERMINATED | Flag.TRUNCATED)) != 0
        if ended.any():
            self._end(ended, infos, into)
        if not self._same_step:
            self._resets_next = ended
        return self.lanes - int(np.count_nonzero(only_reset)) if resets else self.lanes

    def _count_step(
        self, into: HostArrays, rewards: NDArray[Any], only_reset: NDArray[np.bool_] | None
    ) -> None:
        count = self._count
        np.multiply(count.number, self.lanes, out=into.episode)
        np.add(into.episode, self._lane, out=into.episode)
        if only_reset is None:
            count.returns += rewards
            count.lengths += 1
        else:
            into.episode[only_reset] = NO_EPISODE
            count.returns += np.where(only_reset, 0.0, rewards)
            count.lengths += ~only_reset

    def _end(self, ended: NDArray[np.bool_], infos: Mapping[str, Any], into: HostArrays) -> None:
        lanes = np.flatnonzero(ended)
        count = self._count
        self._finished += zip(
            lanes.tolist(),
            count.returns[lanes].tolist(),
            count.lengths[lanes].tolist(),
            strict=True,
        )
        count.returns[lanes] = 0.0
        count.lengths[lanes] = 0
        count.number[lanes] += 1
        if not self._same_step:
            into.final[lanes] = into.obs[lanes]
            return
        finals = infos.get("final_obs")
        rows: list[Any] = [None if finals is None else finals[lane] for lane in lanes]
        if any(row is None for row in rows):
            raise GymnasiumError(
                f"{self.name}: the episode of lane {lanes[0]} ended, and the step's info has no"
                " final_obs for it, which autoreset in the same step has to give"
            )
        wide = np.zeros((len(lanes), into.final.shape[1]), np.float32)
        self.observations.put(np.stack(rows), wide)
        into.final[lanes] = wide

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in which step the environment raised; a worker that died is named by its lane."""
        try:
            yield
        except Exception as error:
            processes = getattr(self.envs.unwrapped, "processes", ())
            dead = [
                f"lane {lane} (exit code {process.exitcode})"
                for lane, process in enumerate(processes)
                if not process.is_alive()
            ]
            if dead and isinstance(error, EOFError | OSError):
                self._worker_lost = True
                raise GymnasiumError(
                    f"{self.name}: the worker of {', '.join(dead)} died in vector step"
                    f" {self._steps}; run with env.vectorization = 'sync' to see why, or resume"
                    " from the last checkpoint"
                ) from error
            error.add_note(f"in vector step {self._steps} of {self.name}")
            raise

    # ---------------------------------------------------------------- what the host keeps

    def take_finished(self) -> FinishedEpisodes:
        """The episodes that ended since the last call."""
        taken, self._finished = self._finished, []
        return FinishedEpisodes(
            np.array([lane for lane, _, _ in taken], np.int64),
            np.array([gain for _, gain, _ in taken], np.float64),
            np.array([steps for _, _, steps in taken], np.int64),
        )

    def state(self) -> dict[str, Any]:
        """All that stepping goes on from, as plain data; without the lanes if they can't be saved.

        `unsaved` then says why.
        """
        try:
            lanes = lanes_state(self.envs)
        except SnapshotError as reason:
            lanes, self.unsaved = None, str(reason)
        count = self._count
        return {
            "lanes": lanes,
            "resets_next": self._resets_next.copy(),
            "number": count.number.copy(),
            "returns": count.returns.copy(),
            "lengths": count.lengths.copy(),
            "finished": list(self._finished),
        }

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Go on from a saved state; says whether the lanes are where they were.

        If not they have to be reset: their episodes were broken off.

        Raises:
            GymnasiumError: it is of other lanes.
        """
        if len(state["number"]) != self.lanes:
            raise GymnasiumError(
                f"{self.name}: {len(state['number'])} lanes were saved, and there are {self.lanes}"
            )
        self._count.number[:] = state["number"]
        self._finished = list(state["finished"])
        if state["lanes"] is None:
            self._count.number += 1
            return False
        try:
            put_lanes_state(self.envs, state["lanes"])
        except SnapshotError as error:
            raise GymnasiumError(
                f"{self.name}: its saved lanes can't be put back: {error}; resume with the"
                " environment that the run had"
            ) from error
        self._resets_next = np.array(state["resets_next"], np.bool_)
        self._count.returns[:] = state["returns"]
        self._count.lengths[:] = state["lengths"]
        return True

    def close(self) -> None:
        """Close the environments."""
        if self._worker_lost:  # the others can't be asked in order any more
            self.envs.close(terminate=True)
        else:
            self.envs.close()
