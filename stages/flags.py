"""Stage flags: from the command line, the environment or the config to a set of stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from onegraph.stages.registry import (
    ALL,
    NONE,
    STAGES,
    StageSet,
    StageSetError,
    by_number,
    require_valid,
    up_to,
)

ENVIRONMENT = "ONEGRAPH_STAGES"


def _number(word: str) -> int:
    for stage in STAGES:
        if word in (stage.name, str(stage.number)):
            return stage.number
    names = [s.name for s in STAGES]
    near = get_close_matches(word, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise StageSetError(
        f"stage {word!r} is unknown; {hint}use all, none, or of:"
        f" {', '.join(f'{s.number} {s.name}' for s in STAGES)}"
    )


def _range(word: str) -> set[int]:
    """The numbers that a name, a number or ``a-b`` stands for."""
    first, dash, last = word.partition("-")
    if dash and first.isdigit() and last.isdigit():
        ends = _number(first), _number(last)
        if ends[0] > ends[1]:
            raise StageSetError(f"stages {word!r} run backwards; write {last}-{first}")
        return {stage.number for stage in STAGES if ends[0] <= stage.number <= ends[1]}
    return {_number(word)}


def _names(numbers: set[int]) -> str:
    return ", ".join(by_number(n).name for n in sorted(numbers))


def parse_stages(text: str) -> StageSet:
    """The set that a flag means.

    A lone number n means 0 to n. A list is exact, of names, numbers and ranges (``0-4``).
    ``all`` and ``none`` may begin a list; ``-name`` takes a stage away: ``all,-phase-events``.

    Raises:
        StageSetError: an unknown stage, a contradiction, or a set that lacks what it requires.
    """
    words = [t.strip().lower() for t in text.split(",") if t.strip()]
    if not words:
        raise StageSetError(f"stages {text!r} names no stage; use all, none, a number or a list")
    if len(words) == 1 and words[0].isdigit():
        return require_valid(up_to(_number(words[0])))
    chosen: set[int] = set()
    named: set[int] = set()
    removed: set[int] = set()
    for position, word in enumerate(words):
        if word in ("all", "none"):
            if position:
                raise StageSetError(f"stages {text!r}: {word!r} can only stand first in a list")
            chosen = set(ALL if word == "all" else NONE)
        elif word.startswith("-"):
            number = _number(word[1:].strip())
            if number == 0:
                raise StageSetError(
                    f"stages {text!r}: every set starts from stage 0; leave {word} out"
                )
            removed.add(number)
        else:
            named |= _range(word)
            chosen |= named
    if both := removed & named:
        raise StageSetError(
            f"stages {text!r} both names and takes away {_names(both)}; keep one of the two"
        )
    if absent := removed - chosen:
        raise StageSetError(
            f"stages {text!r} takes away {_names(absent)}, which is not on; start the list with all"
        )
    try:
        return require_valid(frozenset(chosen - removed - {0}))
    except StageSetError as error:
        raise StageSetError(f"stages {text!r}: {error}") from None


@dataclass(frozen=True)
class StageChoice:
    """The set that is on, and where that was said.

    Attributes:
        text: what was said; ``all`` if nobody said anything.
    """

    stages: StageSet
    source: str
    text: str

    @property
    def optional(self) -> StageSet:
        """Stages that ``all`` brought in and nobody named: those that can't be on may be left out.

        A stage that was asked for by its name or number is on, or the run is refused.
        """
        first, *others = (word.strip().lower() for word in self.text.split(",") if word.strip())
        if first != "all":
            return NONE
        named = set[int]().union(*(_range(w) for w in others if not w.startswith("-")))
        return self.stages - named


def choose_stages(
    flag: str | None = None,
    config: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> StageChoice:
    """The set of stages by the first that speaks: ``--stages``, ``ONEGRAPH_STAGES``, the config.

    Raises:
        StageSetError: with the source that said it.
    """
    env = os.environ if environment is None else environment
    for source, text in (
        ("--stages", flag),
        (ENVIRONMENT, env.get(ENVIRONMENT)),
        ("the config's stages", config),
    ):
        if text is not None:
            try:
                return StageChoice(parse_stages(text), source, text)
            except StageSetError as error:
                raise StageSetError(f"{source}: {error}") from None
    return StageChoice(ALL, "the default", "all")
