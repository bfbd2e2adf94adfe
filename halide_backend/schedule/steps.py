"""Steps: the calls of Halide's scheduling language as frozen data.

`func` names the Func, `update` the number of its update definition, from 0 as in Halide's `Func.update(0)`; without one
the step is for the pure definition. A name with a "$" is an RVar. Every class has the name of Halide's directive and
its arguments in Halide's order, so Halide's documentation holds.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True, repr=False, eq=False)
class Step:
    """One scheduling directive for the Func `func`."""

    kinds: ClassVar[dict[str, type[Step]]] = {}

    func: str

    def __init_subclass__(cls) -> None:
        Step.kinds[cls.__name__] = cls

    # Written once for all classes: dataclass would write and compile both for each, 3 ms of an import for these 28.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the directive's name under "step"."""
        return {"step": type(self).__name__} | {f.name: getattr(self, f.name) for f in fields(self)}

    def __repr__(self) -> str:
        """The constructor call, without arguments that have their default: what a kernel text contains."""
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.default is MISSING:
                parts.append(repr(value))
            elif value != f.default:
                parts.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False, eq=False)
class Split(Step):
    """Split loop `old` into a loop `outer` around a loop `inner` of `factor` iterations.

    Where `factor` does not divide the loop, the iterations beyond its end are guarded by an `if`. The `tail` "RoundUp"
    writes no guard, and is legal only where the factor divides. With "ShiftInwards" the last `factor` iterations begin
    earlier, and compute again what those before them have; where the whole loop is shorter, they are guarded, and not
    vectorized. Halide's other strategies read and write out of bounds.
    """

    old: str
    outer: str
    inner: str
    factor: int
    update: int | None = None
    tail: str = "GuardWithIf"


@dataclass(frozen=True, repr=False, eq=False)
class Fuse(Step):
    """Make one loop `fused` of `inner` and `outer`."""

    inner: str
    outer: str
    fused: str
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Reorder(Step):
    """Nest the loops `order` as given, innermost first."""

    order: tuple[str, ...]
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Vectorize(Step):
    """Run the whole loop `var` as one vector."""

    var: str
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Unroll(Step):
    """Unroll the whole loop `var`."""

    var: str
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Parallel(Step):
    """Share the iterations of loop `var` among torch's threads."""

    var: str
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Atomic(Step):
    """Allow the update to be vectorized over its RVars: its operator is associative."""

    update: int | None = 0


@dataclass(frozen=True, repr=False, eq=False)
class RFactor(Step):
    """Turn loop `rvar` of the update into the pure variable `var` of a new Func `into` of partial results. For several
    loops at once, `rvar` and `var` are tuples."""

    rvar: str | tuple[str, ...]
    var: str | tuple[str, ...]
    into: str
    update: int | None = 0

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The loops and what each of them becomes.

        Raises:
            ValueError: there are not as many of these as of those.
        """
        rvars = (self.rvar,) if isinstance(self.rvar, str) else self.rvar
        names = (self.var,) if isinstance(self.var, str) else self.var
        return tuple(zip(rvars, names, strict=True))


@dataclass(frozen=True, repr=False, eq=False)
class ComputeInline(Step):
    """Compute the Func anew wherever it is used; what Halide does without a step."""


@dataclass(frozen=True, repr=False, eq=False)
class ComputeAt(Step):
    """Compute the Func inside loop `var` of `consumer`."""

    consumer: str
    var: str


@dataclass(frozen=True, repr=False, eq=False)
class ComputeRoot(Step):
    """Compute the whole Func before anything that uses it."""


@dataclass(frozen=True, repr=False, eq=False)
class StoreAt(Step):
    """Keep the Func's storage for a whole iteration of loop `var` of `consumer`, while the Func is computed in loops
    further inside: what an earlier iteration of those has computed is not computed again."""

    consumer: str
    var: str


@dataclass(frozen=True, repr=False, eq=False)
class StoreRoot(Step):
    """As StoreAt, but keep the storage outside of all loops."""


@dataclass(frozen=True, repr=False, eq=False)
class StoreIn(Step):
    """Keep the Func in the memory of this type, as Halide's `MemoryType` spells it."""

    memory: str


@dataclass(frozen=True, repr=False, eq=False)
class FoldStorage(Step):
    """Keep only `extent` positions along `var`, which take turns in the same storage."""

    var: str
    extent: int


@dataclass(frozen=True, repr=False, eq=False)
class In(Step):
    """Let `consumer` read the Func through a new Func `into`, which copies it and can be scheduled by itself."""

    consumer: str
    into: str


@dataclass(frozen=True, repr=False, eq=False)
class CloneIn(Step):
    """Let `consumer` read a second Func `into` that computes the same and can be scheduled by itself."""

    consumer: str
    into: str


@dataclass(frozen=True, repr=False, eq=False)
class Prefetch(Step):
    """In loop `at`, fetch what the Func will read of `source`, an input or another Func, `offset` iterations of loop
    `along` later."""

    source: str
    at: str
    along: str
    offset: int
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class ComputeWith(Step):
    """Fuse the Func's loops with those of `parent`, from the outermost down to `var`."""

    parent: str
    var: str


@dataclass(frozen=True, repr=False, eq=False)
class Bound(Step):
    """The Func is needed exactly on [minimum, minimum + extent) of `var`."""

    var: str
    minimum: int
    extent: int


@dataclass(frozen=True, repr=False, eq=False)
class BoundExtent(Step):
    """The Func is computed on `extent` points of `var`, wherever they begin."""

    var: str
    extent: int


@dataclass(frozen=True, repr=False, eq=False)
class BoundStorage(Step):
    """Keep room for `extent` points of the Func along `var`, however many of them are computed: storage of a fixed size
    is on the stack."""

    var: str
    extent: int


@dataclass(frozen=True, repr=False, eq=False)
class GpuBlocks(Step):
    """Run each iteration of the loops `vars`, innermost first, in a block of threads of its own."""

    vars: tuple[str, ...]
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class GpuThreads(Step):
    """Run each iteration of the loops `vars`, innermost first, in a thread of its own in the block."""

    vars: tuple[str, ...]
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Specialize(Step):
    """Write the loops of output `func` twice: for calls with a `size`, an argument of the kernel, of at least `least`,
    which Halide then knows of, and for others."""

    size: str
    least: int


@dataclass(frozen=True, repr=False, eq=False)
class NeverPartition(Step):
    """Write the body of loop `var` once, without a second version for the iterations that need no clamp or guard."""

    var: str
    update: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class AlignStorage(Step):
    """Begin each row along `var` at a multiple of `alignment` elements."""

    var: str
    alignment: int


@dataclass(frozen=True, repr=False, eq=False)
class ReorderStorage(Step):
    """Keep the Func's dimensions in memory in this `order`, the one along which adjacent elements lie first."""

    order: tuple[str, ...]


@dataclass(frozen=True, repr=False, eq=False)
class AllowRaceConditions(Step):
    """Let iterations of the update that write one place run in any order: which of them wins is left open."""

    update: int | None = 0
