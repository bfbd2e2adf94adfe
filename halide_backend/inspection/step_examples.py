"""A small kernel for each step: what its loops are before and after."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.index import SizeSymbol
from halide_backend.program.loop_program import (
    Apply,
    Axis,
    Buffer,
    Load,
    LoopProgram,
    Nest,
    Reduction,
    Size,
    Store,
    Value,
)
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import (
    Atomic,
    BoundStorage,
    CloneIn,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    ComputeWith,
    FoldStorage,
    Fuse,
    In,
    NeverPartition,
    Parallel,
    Prefetch,
    Reorder,
    ReorderStorage,
    RFactor,
    Specialize,
    Split,
    Step,
    StoreAt,
    StoreIn,
    StoreRoot,
    Unroll,
    Vectorize,
)

#: Rows and columns of the examples.
ROWS, COLUMNS = 24, 32

_X0, _X1 = Axis("x0", ROWS, ROWS), Axis("x1", COLUMNS, COLUMNS)


@dataclass(frozen=True)
class Example:
    """`steps` for a `program`, of which those after the first `before` are what it shows.

    `sign` is in the lowered statements because of them, where the loop nest is silent.
    """

    program: LoopProgram
    steps: tuple[Step, ...]
    before: int
    sign: str = ""

    def text(self, count: int | None = None) -> str:
        """The kernel's text with the first `count` steps, or all."""
        device = device_of(Target.named("avx2"))
        mapping = plan_kernel(self.program, device).plan.mapping
        return plan_kernel(self.program, device, plan=Plan(mapping, self.steps[:count])).text


def _program(values: list[Value], results: list[tuple[int, tuple[Axis, ...]]], rows: int = ROWS) -> LoopProgram:
    stores = []
    for number, (value, axes) in enumerate(results):
        index = _X0.symbol * COLUMNS + _X1.symbol if len(axes) == 2 else _X0.symbol
        stores.append(Store(f"out_ptr{number}", index, value, Nest(axes)))
    sizes = [ROWS * (COLUMNS if len(axes) == 2 else 1) for _, axes in results]
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", rows * COLUMNS, 0),),
        outputs=tuple(Buffer(f"out_ptr{k}", "float32", size, 1 + k) for k, size in enumerate(sizes)),
        values=tuple(values),
        stores=tuple(stores),
        checks=(),
        outer=(_X0, _X1) if all(len(axes) == 2 for _, axes in results) else (_X0,),
        sizes=(),
    )


def _values() -> list[Value]:
    load = Value.of("load", "float32", (), Load("in_ptr0", _X0.symbol * COLUMNS + _X1.symbol), [])
    return [load, Value.of("exp", "float32", (0,), None, [load])]


def pointwise() -> LoopProgram:
    """out_ptr0[x1, x0] = exp(in_ptr0)."""
    return _program(_values(), [(1, (_X0, _X1))])


def row_sums() -> LoopProgram:
    """out_ptr0[x0], the sum of exp(in_ptr0) over x1."""
    values = _values()
    values.append(Value.of("reduction", "float32", (1,), Reduction("sum", (_X1,)), values))
    return _program(values, [(2, (_X0,))])


def dynamic_row_sums() -> LoopProgram:
    """out_ptr0[x0], the sum of in_ptr0 over rows whose length is known when the kernel is called."""
    length = SizeSymbol("n0", nonnegative=True)
    columns = Axis("x1", length, COLUMNS)
    load = Value.of("load", "float32", (), Load("in_ptr0", _X0.symbol * length + columns.symbol), [])
    total = Value.of("reduction", "float32", (0,), Reduction("sum", (columns,)), [load])
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", ROWS * length, 0),),
        outputs=(Buffer("out_ptr0", "float32", sympy.Integer(ROWS), 1),),
        values=(load, total),
        stores=(Store("out_ptr0", _X0.symbol, 1, Nest((_X0,))),),
        checks=(),
        outer=(_X0,),
        sizes=(Size("n0", length, hint=COLUMNS),),
    )


def row_maxima() -> LoopProgram:
    """out_ptr0[x0], the maximum of in_ptr0 over x1."""
    values = _values()[:1]
    values.append(Value.of("reduction", "float32", (0,), Reduction("max", (_X1,)), values))
    return _program(values, [(1, (_X0,))])


def two_outputs() -> LoopProgram:
    """out_ptr0 = exp(in_ptr0), and out_ptr1 = -in_ptr0."""
    values = _values()
    values.append(Value.of("neg", "float32", (0,), None, values))
    return _program(values, [(1, (_X0, _X1)), (2, (_X0, _X1))])


def stencil() -> LoopProgram:
    """out_ptr0[x1, x0] = exp(in_ptr0)[x1, x0] + exp(in_ptr0)[x1, x0 + 2]."""
    values = _values()
    for shift in (0, 2):
        at = (("x0", _X0.symbol + sympy.Integer(shift)),)
        values.append(Value.of("apply", "float32", (1,), Apply(at), values))
    values.append(Value.of("add", "float32", (2, 3), None, values))
    return _program(values, [(4, (_X0, _X1))], rows=ROWS + 2)


def squashed() -> LoopProgram:
    """out_ptr0[x1, x0] = tanh(exp(in_ptr0))."""
    values = _values()
    values.append(Value.of("tanh", "float32", (1,), None, values))
    return _program(values, [(2, (_X0, _X1))])


_EXP = "exp_0"  # the Func of an exponential that is read twice, or by a function
_AT_ROW = ComputeAt(_EXP, "out_ptr0", "x0")
_CUT = Split("sum_0", "r_0$x", "r$o", "r$i", 8, update=0)

#: By the step that each shows. Steps for a GPU are legal only together: the page takes them from kernels of rules.
EXAMPLES: dict[type[Step], Example] = {
    Split: Example(pointwise(), (Split("out_ptr0", "x1", "xo", "xi", 8),), 0),
    Fuse: Example(pointwise(), (Fuse("out_ptr0", "x1", "x0", "both"),), 0),
    Reorder: Example(pointwise(), (Reorder("out_ptr0", ("x0", "x1")),), 0),
    Vectorize: Example(pointwise(), (Split("out_ptr0", "x1", "xo", "xi", 8), Vectorize("out_ptr0", "xi")), 1),
    Unroll: Example(pointwise(), (Split("out_ptr0", "x1", "xo", "xi", 4), Unroll("out_ptr0", "xi")), 1),
    Parallel: Example(pointwise(), (Parallel("out_ptr0", "x0"),), 0),
    NeverPartition: Example(pointwise(), (Split("out_ptr0", "x1", "xo", "xi", 5), NeverPartition("out_ptr0", "xo")), 1),
    Specialize: Example(dynamic_row_sums(), (ComputeAt("sum_0", "out_ptr0", "x0"), Specialize("out_ptr0", "n0", 8)), 1),
    Atomic: Example(row_maxima(), (ComputeRoot("max_0"), Atomic("max_0"), Vectorize("max_0", "r_0$x", update=0)), 1),
    RFactor: Example(
        row_sums(),
        (
            ComputeAt("sum_0", "out_ptr0", "x0"),
            _CUT,
            Split("sum_0", "r$o", "r$oo", "r$oi", 2, update=0),
            RFactor("sum_0", ("r$oi", "r$i"), ("u", "v"), "partial"),
            ComputeAt("partial", "out_ptr0", "x0"),
        ),
        3,
    ),
    ComputeAt: Example(stencil(), (_AT_ROW,), 0),
    ComputeRoot: Example(stencil(), (ComputeRoot(_EXP),), 0),
    ComputeInline: Example(stencil(), (ComputeInline(_EXP),), 0),
    StoreAt: Example(
        stencil(),
        (
            Split("out_ptr0", "x0", "strip", "row", 8),
            ComputeAt(_EXP, "out_ptr0", "row"),
            StoreAt(_EXP, "out_ptr0", "strip"),
        ),
        2,
    ),
    StoreRoot: Example(stencil(), (_AT_ROW, StoreRoot(_EXP)), 1),
    StoreIn: Example(row_sums(), (ComputeAt("sum_0", "out_ptr0", "x0"), StoreIn("sum_0", "Heap")), 1, "in Heap"),
    FoldStorage: Example(stencil(), (_AT_ROW, StoreRoot(_EXP), FoldStorage(_EXP, "x0", 3)), 2, "% 3"),
    In: Example(stencil(), (In(_EXP, "out_ptr0", "copy"), ComputeRoot(_EXP), ComputeAt("copy", "out_ptr0", "x0")), 0),
    CloneIn: Example(stencil(), (CloneIn(_EXP, "out_ptr0", "again"), ComputeAt("again", "out_ptr0", "x0")), 0),
    ReorderStorage: Example(stencil(), (_AT_ROW, StoreRoot(_EXP), ReorderStorage(_EXP, ("x0", "x1"))), 2),
    Prefetch: Example(pointwise(), (Prefetch("out_ptr0", "in_ptr0", "x0", "x0", 2),), 0, "prefetch"),
    BoundStorage: Example(
        squashed(),
        (Split("out_ptr0", "x1", "x1", "xi", 5), ComputeAt(_EXP, "out_ptr0", "x1"), BoundStorage(_EXP, "x1", 8)),
        2,
        "allocate exp_0[float32 * 8]",
    ),
    ComputeWith: Example(two_outputs(), (ComputeWith("out_ptr1", "out_ptr0", "x1"),), 0),
}
