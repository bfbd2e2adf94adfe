"""Gathers from computed rows: what several rows have alike becomes a function of a row, which is read at each.

Interpolation reads, for each row of its result, two or four rows of a picture, and combines elements of each that it
gathers along the row. Which rows is known when the kernel runs; but next to each other rows of the result need mostly
the same ones, so that it takes less to combine the elements of every row of the picture once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from halide_backend.program.index import AxisSymbol, ValueSymbol, axes_of, values_of
from halide_backend.program.loop_program import Apply, Axis, Indirect, Load, LoopProgram, Reduction, Scan, Store, Value
from halide_backend.program.operation_names import MATHEMATICS
from halide_backend.program.uses import users_of

#: Operations that take as long as a gather of a vector, or as a mathematical function.
_GATHER, _FUNCTION = 16, 20

#: What is computed for every row has to take less than this part of what it takes for each place.
_PART = 2 / 3


def with_functions_of_rows(program: LoopProgram) -> LoopProgram:
    """`program` with the values that gather along computed rows read from a function of the row, where this takes less
    work: equal values, each an `Apply` of one that is computed along all rows."""
    if not any(isinstance(value.attribute, Indirect) for value in program.values):
        return program
    # What is overwritten cannot be read for all rows before.
    plain = all(store.mode is None for store in program.stores) and not any(b.mutated for b in program.inputs)
    if not plain or any(isinstance(value.attribute, Reduction | Scan | Apply) for value in program.values):
        return program
    contiguous = {name for store in program.stores for name in axes_of(store.index) if _is_unit(store, name)}
    for axis in program.outer:
        rows = _Rows(program, axis, contiguous)
        if axis.name not in contiguous and (groups := rows.worth()):
            return _Rewriting(program, rows, groups).done()
    return program


def _is_unit(store: Store, name: str) -> bool:
    return bool(sympy.expand(store.index).coeff(AxisSymbol(name)) == 1)


@dataclass
class _Group:
    """Values that are one function of a row: the first of them, and the row that each has."""

    first: int
    rows: dict[int, int] = field(default_factory=dict)


class _Rows:
    """The values of `program` that depend on `axis` only as the place of one row, an "indirect" value."""

    def __init__(self, program: LoopProgram, axis: Axis, contiguous: set[str]) -> None:
        self.axis = axis
        self._program, self._contiguous = program, contiguous
        #: The row of each value, None for values that do not depend on the axis, -1 for those that do otherwise.
        self.row: list[int | None] = []
        for position, value in enumerate(program.values):
            self.row.append(self._row_of(position, value))
        #: A number of what each value is but for its row.
        self._forms: list[int] = []
        numbers: dict[Hashable, int] = {}
        for position in range(len(program.values)):
            self._forms.append(numbers.setdefault(self._form(position), len(numbers)))

    def worth(self) -> list[_Group]:
        """The groups for which a function of a row takes less work."""
        users, stored = users_of(self._program), {store.value for store in self._program.stores}
        groups: dict[int, _Group] = {}
        for position, row in enumerate(self.row):
            if row is None or row < 0 or self.is_place(position):
                continue
            if position in stored or any(self.row[user] != row for user in users[position]):
                groups.setdefault(self._forms[position], _Group(position)).rows[position] = row
        return [group for group in groups.values() if self._is_worth(group)]

    def is_place(self, position: int) -> bool:
        """Whether the value is the place of a row."""
        value = self._program.values[position]
        return isinstance(value.attribute, Indirect) and value.axes == {self.axis.name}

    def _row_of(self, position: int, value: Value) -> int | None:
        name = self.axis.name
        if name not in value.axes:
            return None
        if self.is_place(position):
            return position
        own: Iterable[str] = ()
        rows = {row for operand in value.operands if (row := self.row[operand]) is not None}
        match value.attribute:
            case Load():
                own = axes_of(value.attribute.index)
                if value.attribute.coordinates:
                    return -1
            case _ if any(self.is_place(operand) for operand in value.operands):
                # The number of the row itself, not what lies there.
                return -1
            case sympy.Expr():
                own = axes_of(value.attribute)
        return rows.pop() if name not in own and len(rows) == 1 else -1

    def _form(self, position: int) -> Hashable:
        """What the value is but for its row; equal for values that are one function of a row."""
        row, value = self.row[position], self._program.values[position]
        if row is None:
            return "value", position
        if self.is_place(position):
            return "row", value.attribute
        # A load has its indices in the program's order, in which the row may be anywhere.
        operands = tuple(self._forms[operand] for operand in value.operands if not self.is_place(operand))
        return value.operation, value.dtype, operands, self.moved(position)

    def moved(self, position: int) -> object:
        """The attribute of a value that has a row, along the axis."""
        attribute, row = self._program.values[position].attribute, self.row[position]
        if not isinstance(attribute, Load) or row is None:
            return attribute
        return replace(attribute, index=attribute.index.xreplace({ValueSymbol.of(row): self.axis.symbol}), inside=None)

    def behind(self, position: int) -> list[int]:
        """The values with the same row that make up the one at `position`, and itself, in the program's order."""
        found, stack = {position}, [position]
        while stack:
            for operand in self._program.values[stack.pop()].operands:
                if self.row[operand] is not None and operand not in found and not self.is_place(operand):
                    found.add(operand)
                    stack.append(operand)
        return sorted(found)

    def _is_worth(self, group: _Group) -> bool:
        values = self._program.values
        own = self.behind(group.first)
        place = values[self.row[group.first] or 0].attribute
        gathers = sum(self._is_gather(values[position]) for position in own)
        rows = self._program.typical(place.size) if isinstance(place, Indirect) else None
        if not gathers or len(own) == gathers or rows is None:
            return False
        each = gathers * _GATHER + sum(_FUNCTION if values[p].operation in MATHEMATICS else 1 for p in own)
        reads = self.axis.hint * len(set(group.rows.values()))
        return rows * (each + 1) + reads < _PART * reads * each

    def _is_gather(self, value: Value) -> bool:
        """Whether neighbours along memory of an output are read from places that are computed."""
        values = self._program.values
        return isinstance(value.attribute, Load) and any(
            isinstance(values[operand].attribute, Indirect) and values[operand].axes & self._contiguous
            for operand in value.operands
        )


class _Rewriting:
    """The values of a program in which `groups` are functions of a row."""

    def __init__(self, program: LoopProgram, rows: _Rows, groups: list[_Group]) -> None:
        self._program, self._rows = program, rows
        self._group = {position: group for group in groups for position in group.rows}
        self._values: list[Value] = []
        #: Old positions and new ones: of values, and of what is computed along all rows.
        self._found: dict[int, int] = {}
        self._along: dict[int, int] = {}

    def done(self) -> LoopProgram:
        program = self._program
        for position in self._needed():
            value, group = program.values[position], self._group.get(position)
            if group is None:
                self._found[position] = self._add(value, value.operands, value.attribute, self._found)
                continue
            for each in self._rows.behind(group.first):
                if each not in self._along:
                    function = program.values[each]
                    operands = tuple(o for o in function.operands if not self._rows.is_place(o))
                    # What is needed at this row as well is still another value than that along all rows.
                    known = self._found | self._along
                    self._along[each] = self._add(function, operands, self._rows.moved(each), known)
            place = self._found[group.rows[position]]
            at = Apply(((self._rows.axis.name, ValueSymbol.of(place)),))
            self._found[position] = self._append("apply", value.dtype, (self._along[group.first], place), at)
        return replace(
            program,
            values=tuple(self._values),
            stores=tuple(
                replace(store, value=self._found[store.value], index=store.index.xreplace(_symbols(self._found)))
                for store in program.stores
            ),
            checks=tuple(replace(check, condition=self._found[check.condition]) for check in program.checks),
        )

    def _needed(self) -> list[int]:
        """The values that are left, in the program's order."""
        values, rows = self._program.values, self._rows
        stack = [store.value for store in self._program.stores]
        stack += [position for store in self._program.stores for position in values_of(store.index)]
        stack += [check.condition for check in self._program.checks]
        found: set[int] = set()
        while stack:
            position = stack.pop()
            if position in found:
                continue
            found.add(position)
            if position in self._group:
                own = rows.behind(self._group[position].first)
                stack += [o for p in own for o in values[p].operands if rows.row[o] is None]
                stack.append(self._group[position].rows[position])
            else:
                stack += values[position].operands
        return sorted(found)

    def _add(self, value: Value, operands: Sequence[int], attribute: object, known: Mapping[int, int]) -> int:
        """Append `value`, with `known` new positions for old ones."""
        match attribute:
            case Load():
                attribute = replace(attribute, index=attribute.index.xreplace(_symbols(known)))
            case sympy.Expr():
                attribute = attribute.xreplace(_symbols(known))
        return self._append(value.operation, value.dtype, tuple(known[o] for o in operands), attribute)

    def _append(self, operation: str, dtype: str, operands: tuple[int, ...], attribute: object) -> int:
        self._values.append(Value.of(operation, dtype, operands, attribute, self._values))
        return len(self._values) - 1


def _symbols(known: Mapping[int, int]) -> Mapping[sympy.Symbol, sympy.Expr]:
    return {ValueSymbol.of(old): ValueSymbol.of(new) for old, new in known.items()}
