"""The runner: the one place where a program becomes device calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from onegraph.guards.markers import cold_path, hot_path
from onegraph.kernels.device.base import (
    DeviceArray,
    DeviceError,
    DeviceEvent,
    Graph,
    GraphExec,
    Matmul,
    Product,
)
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.children import children_of, places
from onegraph.stages.dag import Dag
from onegraph.stages.program import (
    Alloc,
    Branches,
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
    Ref,
    StepProgram,
    Sync,
    WhileGraph,
    opened,
)
from onegraph.stages.runnable import require_runnable
from onegraph.stages.workspace import Workspace

Action = Callable[[], None]


@dataclass(frozen=True)
class PhaseTimes:
    """Milliseconds by phase of each timed step, oldest first; every list is as long as `steps`.

    Attributes:
        phases: device time between the phase's boundary events. A device that idles for the host
            inside a phase counts there too: the events can't tell.
        host: time in which the host was at work in the phase (its own ops, and handing work to a
            device that runs it later), waiting for the device left out.
    """

    steps: tuple[int, ...]
    phases: dict[str, tuple[float, ...]]
    host: dict[str, tuple[float, ...]] = field(default_factory=dict)


class _BoundGraph:
    """A `GraphLaunch` on a device: run eagerly and captured the first time, launched after that."""

    def __init__(self, op: GraphLaunch, runner: Runner) -> None:
        self.op, self.runner, self.device = op, runner, runner.device
        self.plain: GraphExec | None = None
        self.timed: GraphExec | None = None
        self._items: list[Graph | RecordEvent] = []

    @hot_path
    def __call__(self) -> None:
        if self.plain is None:
            self._warm_up()
        elif self.timed is not None and self.runner.timing:
            events = [
                self.runner.event(e.index) for e in self.op.body if isinstance(e, RecordEvent)
            ]
            self.device.set_graph_events(self.timed, events)
            self.device.graph_launch(self.timed)
        else:
            self.device.graph_launch(self.plain)

    @cold_path("once for each captured program")
    def _warm_up(self) -> None:
        with self.device.warm_up():
            for action in self._eager(self.op):
                action()
        try:
            self._capture()
            self.plain = self._instantiate(with_events=False)
            if self.op.events and self.runner.keeps_times:
                self.timed = self._instantiate(with_events=True)
        except BaseException:
            self.release()
            raise

    def _eager(self, op: GraphLaunch) -> list[Action]:
        actions: list[Action] = []
        for inner in opened(op.body):
            if isinstance(inner, GraphLaunch):
                actions.append(partial(self._enter, inner.name))
                actions += self._eager(inner)
            else:
                actions.append(self.runner.bind(inner))
        return actions

    def _enter(self, phase: str) -> None:
        self.device.ledger.phase = phase

    def _capture(self) -> None:
        """The body as graphs, one for each child and each run of loose ops, and events between."""
        items = self._items
        loose: list[Op] = []

        def flush() -> None:
            if loose:
                items.append(self._captured(self.op.name, loose))
                loose.clear()

        for op in self.op.body:
            if isinstance(op, GraphLaunch):
                flush()
                items.append(self._captured(op.name, op.body))
            elif isinstance(op, RecordEvent):
                flush()
                items.append(op)
            else:
                loose.append(op)
        flush()

    def _captured(self, name: str, ops: Sequence[Op]) -> Graph:
        before, self.device.ledger.phase = self.device.ledger.phase, name
        actions = [self.runner.bind(op) for op in ops]
        with self.device.capture(name) as graph:
            for action in actions:
                action()
        self.device.ledger.phase = before
        return graph

    def _instantiate(self, *, with_events: bool) -> GraphExec:
        graphs = [i for i in self._items if isinstance(i, Graph)]
        if len(self._items) == 1 and graphs and not with_events:
            return self.device.instantiate(graphs[0])
        items: list[Graph | DeviceEvent] = []
        for item in self._items:
            if isinstance(item, Graph):
                items.append(item)
            elif with_events:
                items.append(self.runner.event(item.index))
        label = f"{self.op.name}{' timed' if with_events else ''}"
        # Boundaries are in a row, and so is what stands between them.
        after = None if with_events else _places(self.op)
        composed = self.device.compose(label, items, after)
        try:
            return self.device.instantiate(composed)
        except BaseException:
            composed.close()
            raise

    def nodes(self) -> int:
        """Nodes of the plain form; 0 before the capture."""
        return 0 if self.plain is None else self.plain.graph.node_count()

    def release(self) -> None:
        for executable in (self.plain, self.timed):
            if executable is not None:
                executable.graph.close()
        for item in self._items:
            if isinstance(item, Graph):
                item.close()
        self.plain = self.timed = None
        self._items = []


class _BoundLoop(_BoundGraph):
    """A `WhileGraph` on a device: its first turn is run eagerly, and then it is captured.

    The control's decisions are about what has been done so far, so the loop goes on in the graph
    where the eager turn left it.
    """

    def __init__(self, op: WhileGraph, runner: Runner) -> None:
        super().__init__(op, runner)
        self.loop = op
        self._after: list[tuple[int, ...]] = []

    @cold_path("once for each captured program")
    def _warm_up(self) -> None:
        with self.device.warm_up():
            self.runner.bind(self.loop.control)()
            if not self._goes_on():
                return  # nothing has been planned yet: the next launch is the first again
            phase = self.device.ledger.phase
            for action in self._eager(self.loop):
                action()
            self.device.ledger.phase = phase  # the launch below is the loop's, not its last phase's
        try:
            self._capture()
            self.plain = self._instantiate(with_events=False)
        except BaseException:
            self.release()
            raise
        self.device.graph_launch(self.plain)

    def _goes_on(self) -> bool:
        found = self.runner.workspace.resolve(self.loop.go)
        return bool(found.to_host_checkpoint()[0])

    def _capture(self) -> None:
        """The turn as graphs, one for each child; a step that stands there twice, captured once."""
        known: dict[int, list[Graph]] = {}
        self._after, ends = list[tuple[int, ...]](), tuple[int, ...]()
        for op in self.loop.turn:
            graphs = known.get(id(op))
            if graphs is None:
                inner = op.body if isinstance(op, GraphLaunch) else (op,)
                pieces = list(_pieces(getattr(op, "name", self.loop.name), inner))
                graphs = known[id(op)] = [self._captured(name, ops) for name, ops in pieces]
            start = len(self._items)
            self._items += graphs
            inside = _places(op) or [(i - 1,) if i else () for i in range(len(graphs))]
            self._after += [tuple(start + place for place in at) or ends for at in inside]
            awaited = {place for at in inside for place in at}
            ends = tuple(start + i for i in range(len(graphs)) if i not in awaited)

    def _instantiate(self, *, with_events: bool) -> GraphExec:
        del with_events
        device, space, control = self.device, self.runner.workspace, self.loop.control
        graphs = [i for i in self._items if isinstance(i, Graph)]
        decide = device.prepare(
            control.kernel, self.runner.arguments(control), module=control.module
        )
        go = space.resolve(self.loop.go)
        looped = device.loop(self.loop.name, graphs, decide, go, self._after)
        try:
            return device.instantiate(looped)
        except BaseException:
            looped.close()
            raise


def _places(op: Op) -> list[tuple[int, ...]] | None:
    """Of each child of a graph the places of those that it waits for; ``None``: all in a row."""
    if not isinstance(op, GraphLaunch):
        return None
    body = [inner for inner in op.body if not isinstance(inner, RecordEvent)]
    children = children_of(body)
    return places(children) if len(children) == len(body) else None


def _pieces(name: str, ops: Sequence[Op]) -> Iterator[tuple[str, list[Op]]]:
    """What is captured at once: the ops of each child, and runs of loose ops, by graph name."""
    loose: list[Op] = []
    for op in ops:
        if not isinstance(op, GraphLaunch):
            loose.append(op)
            continue
        if loose:
            yield name, loose
            loose = []
        yield from _pieces(op.name, op.body)
    if loose:
        yield name, loose


class Runner:
    """Runs one program, step after step, on a device.

    Args:
        workspace: holds the arrays; several runners share one.
        timed_sets: how many timed steps keep their events until `timings` reads them.

    Raises:
        ProgramError: no device could run the program (`onegraph.stages.runnable`).
    """

    def __init__(self, program: StepProgram, workspace: Workspace, *, timed_sets: int = 8) -> None:
        require_runnable(program)
        self.program, self.workspace, self.device = program, workspace, workspace.device
        self.index = 0
        self.timing = False
        self._buffers = program.buffer
        self._boundaries = [op for _, op, _ in program.all_ops() if isinstance(op, RecordEvent)]
        self._event_sets = [
            [self.device.create_event(f"{program.name}.{op.index}") for op in self._boundaries]
            for _ in range(timed_sets if self._boundaries else 0)
        ]
        self._timed_steps: list[tuple[int, int, dict[str, float]]] = []
        self._set = 0
        self._graphs: list[_BoundGraph] = []
        self._plan: list[tuple[str, str, bool, bool, Action]] = []
        self._bound = -1
        self._retired = ""
        workspace.owners.add(self)

    # ---------------------------------------------------------------- running

    @hot_path
    def step(self, *, timed: bool = False) -> StepCounts:
        """Run one step; `timed` also records the boundary events that stage 3 put in.

        A step that fails half way leaves its buffers as the ops before the failure left them: put
        a saved state back before the next one. Graphs that it had not finished are captured anew.

        Returns:
            The device calls it made.

        Raises:
            DeviceError: with the phase in which the device refused a call.
            Exception: whatever host code raised, with a note that names the phase.
        """
        if self._bound != self.workspace.generation:
            self._bind_all()
        self.timing = timed and self.keeps_times
        if self.timing:
            self._set = (self._set + 1) % len(self._event_sets)
            # Its events are about to be recorded again, also if this step fails half way.
            self._timed_steps = [s for s in self._timed_steps if s[1] != self._set]
        ledger = self.device.ledger
        host: dict[str, float] = {}
        ledger.begin(self.program.scope, self.index)
        try:
            for phase, label, only_timed, by_host, action in self._plan:
                if only_timed and not self.timing:
                    continue
                ledger.phase, ledger.op = phase, label
                if not (self.timing and by_host):
                    action()
                    continue
                before = perf_counter()
                action()
                host[phase] = host.get(phase, 0.0) + (perf_counter() - before) * 1e3
        except BaseException as error:
            if not isinstance(error, DeviceError):  # that one says so itself
                error.add_note(
                    f"in program {self.program.name}, step {self.index}, phase {ledger.phase}:"
                    f" {ledger.op}"
                )
            self._free_transients()
            raise
        finally:
            counts = ledger.end()
        if self.timing:
            self._timed_steps.append((self.index, self._set, host))
        self.index += 1
        return counts

    @cold_path("once an epoch")
    def timings(self) -> PhaseTimes:
        """Times of the timed steps since the last call. Waits for the last event.

        Phases are those between the boundaries, named by the phase that begins.
        """
        names = [op.before for op in self._boundaries]
        phases: dict[str, list[float]] = {name: [] for name in names[:-1]}
        for _, index, _ in self._timed_steps:
            events = self._event_sets[index]
            for name, start, end in zip(names[:-1], events[:-1], events[1:], strict=True):
                phases[name].append(self.device.elapsed_ms(start, end))
        steps = tuple(step for step, _, _ in self._timed_steps)
        host = {name: tuple(h.get(name, 0.0) for _, _, h in self._timed_steps) for name in phases}
        self._timed_steps = []
        return PhaseTimes(steps, {name: tuple(values) for name, values in phases.items()}, host)

    @property
    def keeps_times(self) -> bool:
        """Whether a step can be timed: the program has boundary events, and there are sets."""
        return bool(self._event_sets)

    def graph_nodes(self) -> dict[str, int]:
        """Nodes of each captured graph by name; empty before capture."""
        return {g.op.name: g.nodes() for g in self._graphs if g.nodes()}

    def graph_dots(self) -> dict[str, str]:
        """The driver's DOT text of each captured graph by name; empty where there is no driver."""
        found = {}
        for graph in self._graphs:
            if graph.plain is not None and (dot := self.device.graph_dot(graph.plain.graph)):
                found[graph.op.name] = dot
        return found

    def event(self, index: int) -> DeviceEvent:
        """The event that boundary `index` records into on the present timed step."""
        return self._event_sets[self._set][index]

    def release_graphs(self) -> None:
        """Let go of every graph; the next step warms up and captures again."""
        for graph in self._graphs:
            graph.release()
        self._bound = -1

    def retire(self, why: str) -> None:
        """Refuse further steps: `why` ends the sentence of the error.

        For a program that another one has taken the place of on the same workspace: to run both
        would re-allocate the buffers on which they differ, back and forth, and lose what they hold.
        """
        self.release_graphs()
        self._retired = why

    @property
    def retired(self) -> bool:
        """Whether it refuses further steps."""
        return bool(self._retired)

    # ---------------------------------------------------------------- binding

    @cold_path("when an array has moved")
    def _bind_all(self) -> None:
        if self._retired:
            raise ProgramError(f"program {self.program.name} can't run any more: {self._retired}")
        self.release_graphs()
        self.workspace.ensure(self.program.buffers)
        self._graphs = []
        self._plan = [
            (phase, op.label, isinstance(op, RecordEvent), self._by_host(op), self.bind(op))
            for phase, op in self.program.ops()
        ]
        self._bound = self.workspace.generation

    def _by_host(self, op: Op) -> bool:
        """Whether it is the host that works while `op` is called, and not what it waits for.

        A graph with boundary events in it is launched before its first phase begins: that time
        lies outside the phases as it is.
        """
        match op:
            case Host():
                return True
            case Sync() | Memset(blocking=True) | Copy(direction="dtoh"):
                return False
            case GraphLaunch() if op.events:
                return False
        return self.device.runs_later

    def bind(self, op: Op, *, late: bool = False) -> Action:
        """The call that does `op` on the workspace's present arrays.

        What touches a transient buffer is bound each time it is done (`late`), because the buffer
        is another array in each step.
        """
        device, space = self.device, self.workspace
        match op:
            case GraphLaunch():
                graph = (
                    _BoundLoop(op, self) if isinstance(op, WhileGraph) else _BoundGraph(op, self)
                )
                self._graphs.append(graph)
                return graph
            case RecordEvent():
                return partial(self._record, op.index)
            case Launch() | LaunchGroup() | MatmulOp() | MatmulGroup() | Memset() | Copy() if (
                self._moves(op) and not late
            ):
                return partial(self._bind_and_do, op)
            case Launch():
                return partial(
                    device.launch, device.prepare(op.kernel, self.arguments(op), module=op.module)
                )
            case LaunchGroup():
                members = [self.arguments(member) for member in op.members]
                group = device.prepare_group(op.kernel, members, module=op.module)
                return partial(device.launch_group, group)
            case MatmulOp():
                p = self._product(op)
                return partial(device.matmul, p.spec, p.a, p.b, p.out, p.extra, module=op.module)
            case MatmulGroup():
                products = tuple(map(self._product, op.members))
                return partial(device.matmul_group, products, module=op.module)
            case Branches():
                return self._bind_branches(op)
            case Dag():
                return self._bind_dag(op)
            case Memset():
                call = device.memset_sync if op.blocking else device.memset
                return partial(call, space.resolve(op.dst))
            case Copy():
                return self._bind_copy(op)
            case Alloc():
                return partial(self._alloc, op.buffer)
            case Free():
                return partial(self._free, op.buffer)
            case Host():
                return partial(self._host, op, self._host_arrays(op))
            case Sync():
                return device.synchronize
        raise ProgramError(f"program {self.program.name}: the runner has no way to do {op!r}")

    def _moves(self, op: Op) -> bool:
        names = op.reads() | op.writes()
        return any(self._buffers[name].transient for name in names)

    def arguments(self, op: Launch) -> dict[str, DeviceArray | int | float]:
        """What `op` launches its kernel with."""
        return {
            name: self.workspace.resolve(value) if isinstance(value, Ref) else value
            for name, value in op.args.items()
        }

    def _product(self, op: MatmulOp) -> Product:
        a, b, out = (self.workspace.resolve(r) for r in (op.a, op.b, op.out))
        extra = None if op.extra is None else self.workspace.resolve(op.extra)
        return Product(op.spec, a, b, out, extra)

    def _bind_branches(self, op: Branches) -> Action:
        """Branches in a graph; outside one their members are bound, one by one."""
        products = [
            [inner.spec for inner in branch if isinstance(inner, MatmulOp)]
            for branch in op.branches
        ]
        self.device.reserve_branches(products)
        return partial(self._branch, [[self.bind(inner) for inner in b] for b in op.branches])

    def _branch(self, branches: Sequence[Sequence[Action]]) -> None:
        with self.device.branches(len(branches)) as branch:
            for index, actions in enumerate(branches):
                with branch(index):
                    for action in actions:
                        action()

    def _bind_dag(self, op: Dag) -> Action:
        """A dag in a graph; one of a single lane needs no fork."""
        actions = [self.bind(inner) for inner in op.ops]
        if op.width == 1:
            return partial(self._one_by_one, actions)
        products: list[list[Matmul]] = [[] for _ in range(op.width)]
        for inner, lane in zip(op.ops, op.lanes, strict=True):
            if isinstance(inner, MatmulOp):
                products[lane].append(inner.spec)
        awaited = sorted({place for places in op.after for place in places})
        mark = {place: number for number, place in enumerate(awaited)}
        self.device.reserve_branches(products, len(mark))
        steps = [
            (lane, [mark[place] for place in places], mark.get(i), action)
            for i, (lane, places, action) in enumerate(
                zip(op.lanes, op.after, actions, strict=True)
            )
        ]
        return partial(self._in_lanes, op.width, len(mark), op.background, steps)

    @staticmethod
    def _one_by_one(actions: Sequence[Action]) -> None:
        for action in actions:
            action()

    def _in_lanes(
        self,
        count: int,
        marks: int,
        background: int,
        steps: Sequence[tuple[int, list[int], int | None, Action]],
    ) -> None:
        with self.device.lanes(count, marks, background) as lane:
            for index, after, mark, action in steps:
                with lane(index, after, mark):
                    action()

    def _bind_and_do(self, op: Op) -> None:
        self.bind(op, late=True)()

    def _bind_copy(self, op: Copy) -> Action:
        if op.direction == "dtoh":
            return partial(self._copy_dtoh, op)
        if op.direction == "htod":
            return partial(self._copy_htod, op)
        space = self.workspace
        return partial(self.device.copy_dtod, space.resolve(op.dst), space.resolve(op.src))

    def _copy_dtoh(self, op: Copy) -> None:
        target = self.workspace.host[op.dst.buffer].reshape(-1)
        size = target.size - op.dst.offset if op.dst.size is None else op.dst.size
        window = target[op.dst.offset : op.dst.offset + size]
        source = self.workspace.resolve(op.src)
        if op.via == "to_host":
            window[:] = source.to_host().reshape(-1)
        else:
            self.device.copy_dtoh(window, source)

    def _copy_htod(self, op: Copy) -> None:
        source = self.workspace.host[op.src.buffer].reshape(-1)
        size = source.size - op.src.offset if op.src.size is None else op.src.size
        window = source[op.src.offset : op.src.offset + size]
        self.device.copy_htod(self.workspace.resolve(op.dst), window)

    def _alloc(self, name: str) -> None:
        buffer = self._buffers[name]
        self.workspace.arrays[name] = self.device.allocate(buffer.shape, buffer.dtype, name)

    def _free(self, name: str) -> None:
        self.device.free(self.workspace.arrays.pop(name))

    def _free_transients(self) -> None:
        """Free what a step that failed had allocated, or the next one would leak it."""
        for buffer in self.program.buffers:
            if buffer.transient and buffer.name in self.workspace.arrays:
                with suppress(DeviceError):  # the error that ended the step is the one to show
                    self._free(buffer.name)

    def _host_arrays(self, op: Host) -> dict[str, NDArray[Any]]:
        """The arrays that `op` names, and those that it only reads not writable."""
        arrays = {name: self.workspace.host[name] for name in op.writes_to}
        for name in op.reads_from:
            if name not in arrays:
                arrays[name] = self.workspace.host[name].view()
                arrays[name].flags.writeable = False
        return arrays

    def _host(self, op: Host, arrays: dict[str, NDArray[Any]]) -> None:
        self.device.host_op(op.name)
        op.run(arrays)

    def _record(self, index: int) -> None:
        if self.timing:
            self.device.record_event(self.event(index))
