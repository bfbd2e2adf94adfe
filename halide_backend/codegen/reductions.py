"""Reductions: encoded operands, combined over an RDom, and the result decoded; the same on every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halide_backend.codegen.call_text import call_text
from halide_backend.codegen.index_text import index_text
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.program.loop_program import Reduction, Value
from halide_backend.schedule.stage import Loop, Role, Stage

#: What a stage calls the operator of a reduction of another name.
_OPERATORS = {"argmin": "min", "all": "min", "argmax": "max", "any": "max"}


def write_reduction(builder: KernelBuilder[Any], position: int, text: str, roots: Sequence[int]) -> str:
    """Write the Funcs that reduce `text`, made of the values `roots`, to the value at `position`; its text."""
    value = builder.program.values[position]
    reduction = value.attribute
    assert isinstance(reduction, Reduction)
    kind = reduction.kind
    (operand,) = value.operands
    axes = {axis.name for axis in reduction.axes}.union(*(builder.program.values[root].axes for root in roots))
    loops = builder.axes.loops(axes, group=not builder.reduced_by_group.isdisjoint(roots))
    encoded = builder.encode(kind, operand, loops, text, roots)
    if kind in ("argmax", "argmin") and builder.reads_once(operand):
        return _write_numbered(builder, position, encoded, loops)
    total, best = builder.reduce(kind, kind, encoded, loops, reduction, value)
    builder.calls[position] = best
    if kind not in ("argmax", "argmin"):
        return f"reductions.decode({kind!r}, t{operand}.type(), {total})"
    assert reduction.position is not None
    candidate = builder.unique_name(f"{kind}_position")
    key = f"hl.Expr({call_text(encoded, [loop.name for loop in loops])})"
    text = f"reductions.candidate({kind!r}, {key}, {total}, {index_text(reduction.position)})"
    # The best key is a result of the reduction: in a warp every lane has its own copy.
    loops = builder.axes.loops(axes, group=True)
    builder.func(candidate, Role.INLINE, loops, text, calls=[encoded, best])
    first, builder.calls[position] = builder.reduce(f"{kind}_first", "min", candidate, loops, reduction, value)
    return f"ops.to_dtype('int32', {value.dtype!r}, {first})"


def _write_numbered(builder: KernelBuilder[Any], position: int, encoded: str, loops: Sequence[Loop]) -> str:
    """Write the Funcs that reduce the keys `encoded`, each with its place, to the place at `position`; its text."""
    value = builder.program.values[position]
    reduction = value.attribute
    assert isinstance(reduction, Reduction)
    numbered = _numbered(builder, reduction, encoded, loops)
    kind = reduction.kind
    total, builder.calls[position] = builder.reduce(kind, _OPERATORS[kind], numbered, loops, reduction, value)
    return _place(value, reduction, total)


def _numbered(builder: KernelBuilder[Any], reduction: Reduction, encoded: str, loops: Sequence[Loop]) -> str:
    """Write the Func of the keys `encoded` with their places; its name."""
    assert reduction.position is not None
    name = builder.unique_name(f"{reduction.kind}_numbered")
    key = f"hl.Expr({call_text(encoded, [loop.name for loop in loops])})"
    text = f"reductions.numbered({reduction.kind!r}, {key}, {index_text(reduction.position)})"
    builder.func(name, Role.INLINE, loops, text, calls=[encoded])
    return name


def _place(value: Value, reduction: Reduction, total: str) -> str:
    """The text of an arg-reduction's `value`, of the best number among those with places."""
    return f"ops.to_dtype('int32', {value.dtype!r}, reductions.place({reduction.kind!r}, {total}))"


def reduce_alone(
    builder: KernelBuilder[Any],
    stem: str,
    kind: str,
    operand: str,
    loops: Sequence[Loop],
    reduction: Reduction,
    value: Value,
) -> tuple[str, str]:
    """`KernelBuilder.reduce` by one thread, over an RDom of all reduced axes."""
    _, updates, places = builder.rdom(axis.name for axis in reduction.axes)
    element = f"hl.Expr({call_text(operand, [places.get(loop.name, loop.name) for loop in loops])})"
    stage = reduction_stage(builder, builder.unique_name(stem), kind, operand, builder.axes.loops(value.axes), updates)
    return define_reduction(builder, stage, kind, f"reductions.initial({kind!r}, {element})", element), stage.name


def write_tuple(builder: KernelBuilder[Any], positions: Sequence[int]) -> None:
    """Write the Func that reduces to all of the values `positions`, which have the same loops, and their texts."""
    for position in positions:
        builder.reference(builder.program.values[position].operands[0])
    values = [builder.program.values[position] for position in positions]
    reductions = [value.attribute for value in values if isinstance(value.attribute, Reduction)]
    kinds = [reduction.kind for reduction in reductions]
    operands = [value.operands[0] for value in values]
    axes = {axis.name for axis in reductions[0].axes} | builder.program.values[operands[0]].axes
    loops = builder.axes.loops(axes)
    funcs = [builder.encode(kind, o, loops, f"t{o}", [o]) for kind, o in zip(kinds, operands)]
    for number, reduction in enumerate(reductions):
        if reduction.position is not None:
            kinds[number] = _OPERATORS[reduction.kind]
            funcs[number] = _numbered(builder, reduction, funcs[number], loops)
    totals, whole = builder.reduce_together(kinds, funcs, loops, values[0])
    for position, value, reduction, operand, total in zip(positions, values, reductions, operands, totals):
        builder.calls[position] = whole
        if reduction.position is None:
            text = f"reductions.decode({reduction.kind!r}, t{operand}.type(), {total})"
        else:
            text = _place(value, reduction, total)
        builder.lines.append(f"t{position} = {text}")


def reduce_together_alone(
    builder: KernelBuilder[Any], kinds: Sequence[str], operands: Sequence[str], loops: Sequence[Loop], value: Value
) -> tuple[list[str], str]:
    """`KernelBuilder.reduce_together` by one thread, over an RDom of all reduced axes."""
    assert isinstance(value.attribute, Reduction)
    _, updates, places = builder.rdom(axis.name for axis in value.attribute.axes)
    arguments = [places.get(loop.name, loop.name) for loop in loops]
    elements = [f"hl.Expr({call_text(func, arguments)})" for func in operands]
    starts = [f"reductions.initial({kind!r}, {element})" for kind, element in zip(kinds, elements)]
    own, name = define_tuple(builder, kinds, operands, builder.axes.loops(value.axes), updates, starts, elements)
    return [f"hl.Expr({own}[{k}])" for k in range(len(kinds))], name


def define_tuple(
    builder: KernelBuilder[Any],
    kinds: Sequence[str],
    operands: Sequence[str],
    loops: Sequence[Loop],
    updates: Sequence[Loop],
    starts: Sequence[str],
    elements: Sequence[str],
) -> tuple[str, str]:
    """Write a Func over `loops` of a Tuple: `starts`, then combined with each of the `elements` of Funcs `operands` in
    the loops `updates`; the text of a call at its own Vars, and its name."""
    name = builder.unique_name("reductions")
    stage = Stage(
        name,
        Role.REDUCTION,
        tuple(loops),
        calls=tuple(dict.fromkeys(operands)),
        updates=tuple(updates),
        operator=" ".join(_OPERATORS.get(kind, kind) for kind in kinds),
        bits=builder.stage(operands[0]).bits,
    )
    own = call_text(name, [loop.name for loop in stage.loops])
    steps = [
        f"reductions.combine({kind!r}, hl.Expr({own}[{k}]), ops.opaque({element}))"
        for k, (kind, element) in enumerate(zip(kinds, elements))
    ]
    builder.lines += [f'{name} = hl.Func("{name}")', *(f"{own} = hl.Tuple([{', '.join(e)}])" for e in (starts, steps))]
    builder.stages.append(stage)
    return own, name


def reduction_stage(
    builder: KernelBuilder[Any], name: str, kind: str, operand: str, loops: Sequence[Loop], updates: Sequence[Loop]
) -> Stage:
    """The stage of Func `name`, which reduces Func `operand` in the loops `updates`."""
    operator, bits = _OPERATORS.get(kind, kind), builder.stage(operand).bits
    return Stage(
        name, Role.REDUCTION, tuple(loops), calls=(operand,), updates=tuple(updates), operator=operator, bits=bits
    )


def define_reduction(builder: KernelBuilder[Any], stage: Stage, kind: str, start: str, element: str) -> str:
    """Write the Func of `stage`: `start`, then combined with each `element`; the text of a call at its own Vars."""
    own = call_text(stage.name, [loop.name for loop in stage.loops])
    builder.lines += [
        f'{stage.name} = hl.Func("{stage.name}")',
        f"{own} = {start}",
        f"{own} = reductions.combine({kind!r}, hl.Expr({own}), ops.opaque({element}))",
    ]
    builder.stages.append(stage)
    return f"hl.Expr({own})"
