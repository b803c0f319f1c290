"""Where recorded episodes end, so that no n-step return and no hindsight goal crosses an end.

The rows of an episode stand together, in order. Its last row is marked TERMINATED or TRUNCATED in
the result, whichever way the file says so; an end that no mark explains is a truncation: the
recording was cut there, and the value of the next state still counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onegraph.kernels.common.layout import Flag
from onegraph.trainer.offline.errors import fault
from onegraph.trainer.offline.transitions import Transitions


def with_ends(transitions: Transitions, *, across_rows: bool) -> Transitions:
    """The same rows with episodes numbered from 0 on and each last row marked.

    With `episode`, a row goes on in the next one where both have the same id and the first is
    neither terminated nor truncated. Without it, a row that is neither goes on in the next row if
    that begins where it led: `next_state` of the one equals `state` of the other, in every column.

    Args:
        transitions: as recorded.
        across_rows: whether anything reads from one row on into the next (n_step > 1, hindsight).
            If nothing does, a row whose continuation the file does not show is an episode's end.

    Raises:
        TransitionsError: an episode's id comes again after other rows, or goes on past a row that
            is terminated or truncated; or, without ids and with `across_rows`, a row goes on that
            the next row does not continue. Rows that are not finite say nothing, and end no
            episode of their own: they are never drawn, and no return crosses them.
    """
    if transitions.episode is not None:
        last = _by_id(transitions)
    else:
        last = _by_states(transitions, across_rows=across_rows)
    flags = transitions.flags.copy()
    flags[last & ~transitions.ended()] |= np.uint8(Flag.TRUNCATED)
    episode = np.concatenate([[0], np.cumsum(last)[:-1]]).astype(np.int64)
    return replace(transitions, flags=flags, episode=episode)


def _by_id(transitions: Transitions) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    episode, ended = transitions.episode, transitions.ended()
    assert episode is not None
    changes = episode[1:] != episode[:-1]
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    _, first = np.unique(episode[starts], return_index=True)
    if len(first) < len(starts):
        again = int(starts[np.setdiff1d(np.arange(len(starts)), first)[0]])
        raise fault(
            transitions.file,
            f"row {again}: episode {episode[again]} comes again after rows of another",
            "write the rows of an episode together, in order, and give each episode its own id",
        )
    contradicted = ended[:-1] & ~changes
    if contradicted.any():
        row = int(np.argmax(contradicted))
        raise fault(
            transitions.file,
            f"row {row} ends episode {episode[row]} (terminated or truncated), and row {row + 1} is"
            " of that episode too",
            "give each episode its own id",
        )
    return np.append(changes, True)


def _by_states(
    transitions: Transitions, *, across_rows: bool
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    ended = transitions.ended()
    follows = (transitions.next_state[:-1] == transitions.state[1:]).all(axis=1)
    finite = transitions.finite()
    unclear = ~ended[:-1] & ~follows & finite[:-1] & finite[1:]
    if across_rows and unclear.any():
        row = int(np.argmax(unclear))
        raise fault(
            transitions.file,
            f"row {row} is neither terminated nor truncated, and row {row + 1} does not begin in"
            f" its next_state ({int(unclear.sum()):,} such rows), so that a return of several steps"
            " can't tell where the episode goes on",
            "add a column 'episode', mark the rows where recording stopped in 'truncated', or set"
            " replay.n_step = 1 without hindsight",
        )
    last = ended.copy()
    last[:-1] |= unclear
    last[-1] = True
    return last
