"""A program as JSON and back, and its digest: the key under which everything that is known of a kernel is filed.

The JSON holds nothing of the graph, process or machine that the program came from. Axes and sizes stand in tables, and
index expressions are texts over their names (`index_syntax.py`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import sympy

from halide_backend.errors import ProgramError
from halide_backend.program.index import SizeSymbol, ValueSymbol
from halide_backend.program.index_syntax import parse_index, print_index
from halide_backend.program.loop_program import (
    Apply,
    Axis,
    Buffer,
    Check,
    Combination,
    Coordinate,
    Extent,
    Indirect,
    Load,
    LoopProgram,
    Nest,
    Number,
    Reduction,
    Scan,
    Size,
    Steps,
    Store,
    Value,
)

#: Version of the JSON form.
SCHEMA = 2

#: What `json.dumps` takes.
Json: TypeAlias = Any


def to_json(program: LoopProgram) -> dict[str, Json]:
    """The program as plain JSON.

    Raises:
        Unsupported: an index expression that no program may contain.
    """
    return {
        "schema": SCHEMA,
        "axes": [{"name": a.name, "extent": _extent(a.extent), "hint": a.hint} for a in program.axes],
        "outer": _names(program.outer),
        "sizes": [_size(size) for size in program.sizes],
        "inputs": list(map(_buffer, program.inputs)),
        "outputs": list(map(_buffer, program.outputs)),
        "values": list(map(_value, program.values)),
        "stores": list(map(_store, program.stores)),
        "checks": [{"condition": c.condition, "error": c.error, "message": c.message} for c in program.checks],
    }


def from_json(document: Mapping[str, Json]) -> LoopProgram:
    """The program that `to_json` wrote.

    Raises:
        ProgramError: another schema, or no program.
    """
    try:
        if document["schema"] != SCHEMA:
            raise ProgramError(
                f"schema {document['schema']} of a program is not {SCHEMA}", cure="record the program again"
            )
        return _Reader(document).program()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ProgramError(f"not a program: {error!r}", cure="record the program again") from error


def digest(program: LoopProgram) -> str:
    """SHA-256 of what the program computes, as hexadecimal digits: the same in every process and graph, on every
    machine. Typical extents and sizes are left out, since they say how fast a kernel is and not what it is.
    """
    document = to_json(program)
    for axis in document["axes"]:
        del axis["hint"]
    for size in document["sizes"]:
        size.pop("hint", None)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _extent(extent: Extent) -> int | str:
    return extent if isinstance(extent, int) else print_index(extent)


def _names(axes: Iterable[Axis]) -> list[str]:
    return [axis.name for axis in axes]


def _size(size: Size) -> dict[str, Json]:
    found: dict[str, Json] = {"name": size.name, "value": print_index(size.value)}
    if size.value.is_Symbol and size.value.is_nonnegative:
        found["nonnegative"] = True
    typical = {} if size.hint is None else {"hint": size.hint}
    return found | ({"data": True} if size.data else {}) | typical


def _buffer(buffer: Buffer) -> dict[str, Json]:
    flags = {name: True for name in ("mutated", "aligned") if getattr(buffer, name)}
    fixed = {"name": buffer.name, "dtype": buffer.dtype, "extent": _extent(buffer.extent), "memory": buffer.memory}
    return fixed | flags


def _value(value: Value) -> dict[str, Json]:
    found: dict[str, Json] = {"operation": value.operation, "dtype": value.dtype}
    if value.operands:
        found["operands"] = list(value.operands)
    attribute = value.attribute
    match attribute:
        case None:
            pass
        case Load():
            found["load"] = {"buffer": attribute.buffer, "index": print_index(attribute.index)}
            if attribute.coordinates:
                found["load"]["coordinates"] = list(map(_coordinate, attribute.coordinates))
            if attribute.inside:
                steps = attribute.inside
                found["load"]["inside"] = [steps.axis, steps.first, _extent(steps.end)]
        case Reduction():
            found["reduction"] = {"kind": attribute.kind, "axes": _names(attribute.axes)}
            if attribute.position is not None:
                found["reduction"]["position"] = print_index(attribute.position)
        case Scan():
            found["scan"] = {
                "axes": _names(attribute.axes),
                "combination": list(map(_value, attribute.combination.program.values)),
                "results": list(attribute.combination.results),
                "result": attribute.result,
            }
        case Apply():
            found["at"] = {axis: print_index(index) for axis, index in attribute.at}
        case Number():
            found["number"] = attribute.bits
        case Indirect():
            found["indirect"] = {"size": _extent(attribute.size), "wrap_negative": attribute.wrap_negative}
        case int():
            found["component"] = attribute
        case sympy.Expr():
            found["index"] = print_index(attribute)
        case _:
            raise ProgramError(f"no JSON for {attribute!r}", cure="please report this")
    return found


def _coordinate(coordinate: Coordinate) -> list[Json]:
    return [print_index(coordinate.index), _extent(coordinate.extent), _extent(coordinate.stride)]


def _store(store: Store) -> dict[str, Json]:
    found = {
        "buffer": store.buffer,
        "index": print_index(store.index),
        "value": store.value,
        "iteration": _names(store.nest.iteration),
    }
    if store.nest.reduction:
        found["reduction"] = _names(store.nest.reduction)
    return found | ({"mode": store.mode} if store.mode else {}) | ({"distinct": True} if store.distinct else {})


class _Reader:
    def __init__(self, document: Mapping[str, Json]) -> None:
        self._document = document
        self._symbols: dict[str, sympy.Symbol] = {}
        for size in document["sizes"]:
            if size["value"] == size["name"]:
                self._symbols[size["name"]] = SizeSymbol(size["name"], nonnegative=size.get("nonnegative", False))
        self._axes = {a["name"]: Axis(a["name"], self._extent(a["extent"]), a["hint"]) for a in document["axes"]}
        self._symbols |= {axis.name: axis.symbol for axis in self._axes.values()}
        self._symbols |= {f"v{k}": ValueSymbol.of(k) for k in range(len(document["values"]))}

    def program(self) -> LoopProgram:
        document = self._document
        return LoopProgram(
            inputs=tuple(map(self._buffer, document["inputs"])),
            sizes=tuple(self._size(s) for s in document["sizes"]),
            outputs=tuple(map(self._buffer, document["outputs"])),
            values=self._values(document["values"]),
            stores=tuple(map(self._store, document["stores"])),
            checks=tuple(Check(**check) for check in document["checks"]),
            outer=self._loops(document["outer"]),
        )

    def _index(self, text: str) -> sympy.Expr:
        return parse_index(text, self._symbols)

    def _size(self, document: Mapping[str, Json]) -> Size:
        value, hint = self._index(document["value"]), document.get("hint")
        return Size(document["name"], value, document.get("data", False), None if hint is None else int(hint))

    def _steps(self, axis: str, first: int, end: int | str) -> Steps:
        return Steps(axis, first, self._extent(end))

    def _extent(self, extent: int | str) -> Extent:
        return self._index(extent) if isinstance(extent, str) else extent

    def _loops(self, names: Iterable[str]) -> tuple[Axis, ...]:
        return tuple(self._axes[name] for name in names)

    def _buffer(self, buffer: Mapping[str, Json]) -> Buffer:
        return Buffer(**{**buffer, "extent": self._extent(buffer["extent"])})

    def _values(self, documents: Iterable[Mapping[str, Json]]) -> tuple[Value, ...]:
        values: list[Value] = []
        for document in documents:
            operands = tuple(document.get("operands", ()))
            attribute = self._attribute(document)
            values.append(Value.of(document["operation"], document["dtype"], operands, attribute, values))
        return tuple(values)

    def _coordinate(self, index: str, extent: int | str, stride: int | str) -> Coordinate:
        return Coordinate(self._index(index), self._extent(extent), self._extent(stride))

    def _attribute(self, document: Mapping[str, Json]) -> object:
        match document:
            case {"load": load}:
                coordinates = (self._coordinate(*each) for each in load.get("coordinates", ()))
                inside = self._steps(*load["inside"]) if "inside" in load else None
                return Load(load["buffer"], self._index(load["index"]), tuple(coordinates), inside)
            case {"reduction": reduction}:
                position = reduction.get("position")
                axes = self._loops(reduction["axes"])
                return Reduction(reduction["kind"], axes, None if position is None else self._index(position))
            case {"scan": scan}:
                program = LoopProgram((), (), (), self._values(scan["combination"]), (), (), ())
                combination = Combination(program, tuple(scan["results"]))
                return Scan(self._loops(scan["axes"]), combination, scan["result"])
            case {"at": at}:
                return Apply(tuple((axis, self._index(index)) for axis, index in at.items()))
            case {"number": bits}:
                return Number.of(float(bits) if bits in ("nan", "inf", "-inf") else ast.literal_eval(bits))
            case {"indirect": indirect}:
                return Indirect(self._extent(indirect["size"]), indirect["wrap_negative"])
            case {"component": component}:
                return component
            case {"index": index}:
                return self._index(index)
        return None

    def _store(self, store: Mapping[str, Json]) -> Store:
        nest = Nest(self._loops(store["iteration"]), self._loops(store.get("reduction", ())))
        index, distinct = self._index(store["index"]), store.get("distinct", False)
        return Store(store["buffer"], index, store["value"], nest, store.get("mode"), distinct)
