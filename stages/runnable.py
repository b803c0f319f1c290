"""What a program must hold to before it is run, said with the phase and the op.

A program half way through a rewrite need not pass: one group may name a buffer as the replacement
of another group already declares it. So this is checked by the runner, and not on construction.
"""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.stages.program import (
    Alloc,
    Copy,
    Free,
    GraphLaunch,
    Host,
    Launch,
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Memset,
    Op,
    ProgramError,
    RecordEvent,
    Space,
    StepProgram,
    WhileGraph,
    graphable,
)

_DEVICE: tuple[Space, ...] = ("device", "pinned")
_HOST: tuple[Space, ...] = ("host", "pinned")


def require_runnable(program: StepProgram) -> None:
    """Refuse a program that no device could run.

    Raises:
        ProgramError: a buffer in the wrong space, scratch used outside its lifetime or never
            freed, an op in a graph that no graph can hold, graphs nested more than two deep (in a
            loop three), a boundary event in a loop, or boundary events that do not count up from 0.
    """
    boundaries: list[int] = []
    live: set[str] = set()
    looped = 0  # deeper by that are the ops of the loop we are in
    for phase, op, depth in program.all_ops():
        where = f"program {program.name}, phase {phase}: {op.label}"
        if not depth:
            looped = int(isinstance(op, WhileGraph))
        elif looped and isinstance(op, RecordEvent):
            raise ProgramError(f"{where} stands in a loop, where no event can be recorded")
        else:
            depth -= looped if depth > 1 else 0
        _require_spaces(where, op, program)
        _require_graphable(where, op, depth)
        _require_alive(where, op, program, live)
        if isinstance(op, RecordEvent):
            boundaries.append(op.index)
    if live:
        raise ProgramError(
            f"program {program.name}: {sorted(live)[0]!r} is allocated in each step and never freed"
        )
    if boundaries != list(range(len(boundaries))):
        raise ProgramError(
            f"program {program.name}: boundary events {boundaries} do not count up from 0"
        )


def _spaces(op: Op) -> Iterator[tuple[str, tuple[Space, ...]]]:
    """The buffers that `op` names, each with the spaces it may be in."""
    match op:
        case Copy():
            yield op.src.buffer, _HOST if op.direction == "htod" else _DEVICE
            yield op.dst.buffer, _HOST if op.direction == "dtoh" else _DEVICE
        case Host():
            for name in sorted(op.reads() | op.writes()):
                yield name, _HOST
        case Launch() | LaunchGroup() | MatmulOp() | MatmulGroup() | Memset():
            for name in sorted(op.reads() | op.writes()):
                yield name, _DEVICE


def _require_spaces(where: str, op: Op, program: StepProgram) -> None:
    for name, allowed in _spaces(op):
        if (buffer := program.buffer[name]).space not in allowed:
            raise ProgramError(
                f"{where} needs {name!r} in {' or '.join(allowed)} memory; it is declared as"
                f" {buffer}, in {buffer.space} memory"
            )


def _require_graphable(where: str, op: Op, depth: int) -> None:
    if not depth:
        return
    if isinstance(op, RecordEvent):
        if depth > 1:
            raise ProgramError(f"{where} stands in a child graph, where it can't be timed")
    elif isinstance(op, WhileGraph):
        raise ProgramError(f"{where} stands in a graph; a loop is launched by itself")
    elif not graphable(op):
        raise ProgramError(f"{where} stands in a graph, which can't hold it")
    elif isinstance(op, GraphLaunch) and depth > 1:
        raise ProgramError(f"{where} is nested more than two deep")


def _require_alive(where: str, op: Op, program: StepProgram, live: set[str]) -> None:
    """Follow the transient buffers through the step; `live` are those allocated so far."""
    buffers = program.buffer
    if isinstance(op, Alloc | Free) and not buffers[op.buffer].transient:
        raise ProgramError(f"{where}, which is not declared transient")
    if isinstance(op, Alloc):
        if op.buffer in live:
            raise ProgramError(f"{where}, which is allocated already")
        live.add(op.buffer)
    elif not isinstance(op, GraphLaunch):
        for name in sorted(op.reads() | op.writes()):
            if buffers[name].transient and name not in live:
                raise ProgramError(
                    f"{where} uses {name!r}, which is not allocated there; put an alloc before it"
                    " and a free after it"
                )
    if isinstance(op, Free):
        live.discard(op.buffer)
