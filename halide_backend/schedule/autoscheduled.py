"""Steps from the text in which Halide's autoschedulers print their schedules: C++, or nearly.

A statement is a Func, or its update, and a chain of directives, each on a line of its own:

    Var x0(out_ptr0.get_schedule().dims()[1].var);
    RVar r_0_xi("r_0$xi");
    sum_0.update(0)
        .split(x0, x0, x0i, 16, TailStrategy::GuardWithIf)
        .vectorize(x0i);

Li2018 leaves out declarations and some semicolons, and names what `rfactor` makes: `sum_0_intm = sum_0.update(0)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.legality.directives import Directives
from halide_backend.schedule.legality.nests import Kind, Nests
from halide_backend.schedule.stage import Role, StageGraph
from halide_backend.schedule.steps import (
    Atomic,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    Fuse,
    Parallel,
    Reorder,
    ReorderStorage,
    RFactor,
    Split,
    Step,
    StoreAt,
    StoreRoot,
    Unroll,
    Vectorize,
)

#: Statements that say nothing: how the printed program gets the pipeline and its Funcs.
_PREAMBLE = re.compile(r"(Pipeline|auto|Func)\b.*= *(get_pipeline\(\)|pipeline\.get_func\(\d+\))")

_NAMED = re.compile(r'R?Var ([\w$]+)\("([^"]+)"\)')
_DIMENSION = re.compile(
    r"R?Var ([\w$]+)\((\w+)(\.update\(\d*\))?\.get_schedule\(\)\.r?(?:dim|var)s\(\)\[(\d+)\]\.var\)"
)
_ARGUMENT = re.compile(r"Var (\w+) = (\w+)\.args\(\)\[(\d+)\]")
_HEAD = re.compile(r"(?:(\w+) *= *)?(\w+)(?:\.update\((\d*)\))?(?=\.|$)")
_CALL = re.compile(r"\.(\w+)\(([^()]*)\)")


def imported(source: str, graph: StageGraph) -> tuple[Step, ...]:
    """The steps that `source` says, for the Funcs of `graph`; they are not checked.

    Tails become guards, whatever `source` says: its other strategies compute something twice, or beyond an end.

    Raises:
        IllegalPlan: a statement means nothing here.
    """
    reader = _Reader(graph)
    for statement in _statements(source):
        reader.take(statement)
    return (*reader.steps, *_vectors_first(reader.steps, graph))


def _vectors_first(steps: Sequence[Step], graph: StageGraph) -> list[Step]:
    """Steps that put loops which are vectors inside of all others of their definitions: where they are not, Halide
    runs the loops inside of them once, with vectors, all the same. None where a step is illegal.
    """
    nests = Nests.of(graph, None)
    try:
        Directives(nests).follow(steps)
    except IllegalPlan:
        return []
    found: list[Step] = []
    for nest in nests.nests.values():
        place = next((k for k, loop in enumerate(nest.loops) if loop.kind is Kind.VECTOR), 0)
        if place:
            names = (loop.name for loop in (nest.loops[place], *nest.loops[:place]))
            found.append(Reorder(nest.stage.name, tuple(names), nest.update))
    return found


def _statements(source: str) -> Iterator[str]:
    """A line that begins with a point goes on with the statement before it."""
    statement = ""
    for line in source.splitlines():
        text = line.strip().rstrip(";").strip()
        if text.startswith("."):
            statement += text
        elif text not in ("", "{", "}"):
            if statement:
                yield statement
            statement = text
    if statement:
        yield statement


class _Reader:
    def __init__(self, graph: StageGraph) -> None:
        self.steps: list[Step] = []
        self._loops = {stage.name: [loop.name for loop in stage.loops] for stage in graph.stages}
        self._updates = {stage.name: [loop.name for loop in stage.updates] for stage in graph.stages}
        self._outputs = {stage.name for stage in graph.stages if stage.role in (Role.OUTPUT, Role.SCATTER)}
        #: What the printed program calls loops -> their names.
        self._names: dict[str, str] = {}
        self._atomic: set[str] = set()

    def take(self, statement: str) -> None:
        """Add the steps of a statement."""
        if _PREAMBLE.fullmatch(statement):
            return
        if found := _NAMED.fullmatch(statement):
            self._names[found[1]] = found[2]
        elif found := _DIMENSION.fullmatch(statement):
            self._names[found[1]] = self._dimension(
                statement, self._updates if found[3] else self._loops, *found.group(2, 4)
            )
        elif found := _ARGUMENT.fullmatch(statement):
            self._names[found[1]] = self._dimension(statement, self._loops, *found.group(2, 3))
        else:
            self._chain(statement)

    def _dimension(self, statement: str, loops: dict[str, list[str]], func: str, number: str) -> str:
        names = loops.get(func, [])
        if int(number) >= len(names):
            raise _meaningless(statement, f"there is no loop {number} of {func}")
        return names[int(number)]

    def _chain(self, statement: str) -> None:
        head = _HEAD.match(statement)
        if head is None:
            raise _meaningless(statement, "it is no chain of directives")
        made, func, number = head.groups()
        if func.endswith("_im") and func not in self._loops:
            return  # What Li2018 says of an operand: it would be copied as a whole first, which nothing needs.
        update = None if number is None else int(number or 0)
        place = head.end()
        while place < len(statement):
            call = _CALL.match(statement, place)
            if call is None:
                raise _meaningless(statement, f"{statement[place:]!r} is no call")
            name = call[1]
            arguments = [part for part in re.split(r"[\s,{}]+", call[2]) if part]
            take = _DIRECTIVES.get(name)
            try:
                if name == "rfactor":
                    # The directives that follow are for the Func that it makes.
                    self._rfactor(func, update, arguments, made or f"{func}_intm")
                    func, update = made or f"{func}_intm", None
                elif take is None:
                    raise _meaningless(statement, f"the directive {name!r} is unknown")
                else:
                    take(self, func, update, arguments)
            except (ValueError, IndexError) as error:
                raise _meaningless(statement, f"{call[0]!r}: {error}") from error
            place = call.end()

    # -- directives --------------------------------------------------------------------------------------------

    def _loop(self, name: str) -> str:
        return self._names.get(name, name)

    def _piece(self, name: str, old: str) -> str:
        """What a piece of the loop `old` is called; pieces of an RVar have a $ in their names."""
        known = self._loop(name)
        if ("$" in known) is not ("$" in old):
            known = self._names[name] = f"{name}$r" if "$" in old else name
        return known

    def _cut(self, func: str, update: int | None, arguments: list[str], inner: str) -> str:
        """Split a loop in two where a directive has a factor after its name: the loop of so many steps."""
        name = self._loop(arguments[0])
        if len(arguments) < 2:
            return name
        self.steps.append(Split(func, name, name, f"{name}{inner}", int(arguments[1]), update))
        return f"{name}{inner}"

    def _split(self, func: str, update: int | None, arguments: list[str]) -> None:
        old, outer, inner, factor, *_ = arguments
        name = self._loop(old)
        self.steps.append(Split(func, name, self._piece(outer, name), self._piece(inner, name), int(factor), update))

    def _fuse(self, func: str, update: int | None, arguments: list[str]) -> None:
        inner, outer, fused = arguments
        name = self._loop(inner)
        self.steps.append(Fuse(func, name, self._loop(outer), self._piece(fused, name), update))

    def _reorder(self, func: str, update: int | None, arguments: list[str]) -> None:
        self.steps.append(Reorder(func, tuple(map(self._loop, arguments)), update))

    def _reorder_storage(self, func: str, update: int | None, arguments: list[str]) -> None:
        self.steps.append(ReorderStorage(func, tuple(map(self._loop, arguments))))

    def _vectorize(self, func: str, update: int | None, arguments: list[str]) -> None:
        self.steps.append(Vectorize(func, self._cut(func, update, arguments, "_v"), update))

    def _unroll(self, func: str, update: int | None, arguments: list[str]) -> None:
        self.steps.append(Unroll(func, self._cut(func, update, arguments, "_u"), update))

    def _parallel(self, func: str, update: int | None, arguments: list[str]) -> None:
        self._cut(func, update, arguments, "_t")
        self.steps.append(Parallel(func, self._loop(arguments[0]), update))

    def _take_atomic(self, func: str, update: int | None, arguments: list[str]) -> None:
        if func not in self._atomic:
            self._atomic.add(func)
            self.steps.append(Atomic(func, update))

    def _compute_root(self, func: str, update: int | None, arguments: list[str]) -> None:
        if func not in self._outputs:
            self.steps.append(ComputeRoot(func))

    def _compute_at(self, func: str, update: int | None, arguments: list[str]) -> None:
        consumer, name = arguments
        self.steps.append(ComputeAt(func, consumer, self._loop(name)))

    def _store_at(self, func: str, update: int | None, arguments: list[str]) -> None:
        consumer, name = arguments
        self.steps.append(StoreAt(func, consumer, self._loop(name)))

    def _store_root(self, func: str, update: int | None, arguments: list[str]) -> None:
        self.steps.append(StoreRoot(func))

    def _compute_inline(self, func: str, update: int | None, arguments: list[str]) -> None:
        self.steps.append(ComputeInline(func))

    def _unscheduled(self, func: str, update: int | None, arguments: list[str]) -> None:
        """The definition stays as it is."""

    def _store_in(self, func: str, update: int | None, arguments: list[str]) -> None:
        """Halide puts what is small on the stack without being told."""
        if arguments != ["MemoryType::Stack"]:
            raise ValueError("no such memory in a kernel")

    def _rfactor(self, func: str, update: int | None, arguments: list[str], made: str) -> None:
        """Its arguments are pairs of an RVar and a new Var."""
        rvars = tuple(map(self._loop, arguments[0::2]))
        self.steps.append(RFactor(func, rvars, tuple(arguments[1::2]), made, update))


_DIRECTIVES: dict[str, Callable[[_Reader, str, int | None, list[str]], None]] = {
    "split": _Reader._split,
    "fuse": _Reader._fuse,
    "reorder": _Reader._reorder,
    "reorder_storage": _Reader._reorder_storage,
    "vectorize": _Reader._vectorize,
    "unroll": _Reader._unroll,
    "parallel": _Reader._parallel,
    "atomic": _Reader._take_atomic,
    "compute_root": _Reader._compute_root,
    "compute_at": _Reader._compute_at,
    "compute_inline": _Reader._compute_inline,
    "store_at": _Reader._store_at,
    "store_root": _Reader._store_root,
    "store_in": _Reader._store_in,
    "unscheduled": _Reader._unscheduled,
}


def _meaningless(statement: str, why: str) -> IllegalPlan:
    return IllegalPlan(why, where=statement, cure="this schedule cannot be imported; report the statement")
