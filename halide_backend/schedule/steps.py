"""Steps: the calls of Halide's scheduling language as frozen data.

`func` names the Func; `update` says whether the step is for its update definition. A name with a "$" is an RVar. Every
class has the name of Halide's directive and its arguments in Halide's order, so Halide's documentation holds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True)
class Step:
    """One scheduling directive for the Func `func`."""

    kinds: ClassVar[dict[str, type[Step]]] = {}

    func: str

    def __init_subclass__(cls) -> None:
        Step.kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the directive's name under "step"."""
        return {"step": type(self).__name__} | {f.name: getattr(self, f.name) for f in fields(self)}

    def __repr__(self) -> str:
        """The constructor call, without arguments that have their default: what a kernel text contains."""
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "update":
                if value:
                    parts.append("update=True")
            else:
                parts.append(repr(value))
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Split(Step):
    """Split loop `old` into `outer` and `inner` of `factor` steps; a tail is guarded, never recomputed."""

    old: str
    outer: str
    inner: str
    factor: int
    update: bool = False


@dataclass(frozen=True, repr=False)
class Fuse(Step):
    """Make one loop `fused` of `inner` and `outer`."""

    inner: str
    outer: str
    fused: str
    update: bool = False


@dataclass(frozen=True, repr=False)
class Reorder(Step):
    """Nest the loops `order` as given, innermost first."""

    order: tuple[str, ...]
    update: bool = False


@dataclass(frozen=True, repr=False)
class Vectorize(Step):
    """Run the whole loop `var` as one vector."""

    var: str
    update: bool = False


@dataclass(frozen=True, repr=False)
class Unroll(Step):
    """Unroll the whole loop `var`."""

    var: str
    update: bool = False


@dataclass(frozen=True, repr=False)
class Parallel(Step):
    """Share the steps of loop `var` among torch's threads."""

    var: str
    update: bool = False


@dataclass(frozen=True, repr=False)
class Atomic(Step):
    """Allow the update to be vectorized over its RVars: its operator is associative."""


@dataclass(frozen=True, repr=False)
class RFactor(Step):
    """Turn loop `rvar` of the update into the pure variable `var` of a new Func `into` of partial results."""

    rvar: str
    var: str
    into: str


@dataclass(frozen=True, repr=False)
class ComputeAt(Step):
    """Compute the Func inside loop `var` of `consumer`."""

    consumer: str
    var: str


@dataclass(frozen=True, repr=False)
class ComputeRoot(Step):
    """Compute the whole Func before anything that uses it."""


@dataclass(frozen=True, repr=False)
class ComputeWith(Step):
    """Fuse the Func's loops with those of `parent`, from the outermost down to `var`."""

    parent: str
    var: str


@dataclass(frozen=True, repr=False)
class Bound(Step):
    """The Func is needed exactly on [minimum, minimum + extent) of `var`."""

    var: str
    minimum: int
    extent: int


@dataclass(frozen=True, repr=False)
class BoundExtent(Step):
    """The Func is computed on `extent` points of `var`, wherever they start."""

    var: str
    extent: int


@dataclass(frozen=True, repr=False)
class GpuBlocks(Step):
    """Give each step of the loops `vars`, innermost first, to a block of threads."""

    vars: tuple[str, ...]
    update: bool = False


@dataclass(frozen=True, repr=False)
class GpuThreads(Step):
    """Give each step of the loops `vars`, innermost first, to a thread of its block."""

    vars: tuple[str, ...]
    update: bool = False


@dataclass(frozen=True, repr=False)
class NeverPartition(Step):
    """Write no second version of the body of loop `var` for the steps in which nothing has to be clamped or guarded."""

    var: str
    update: bool = False


@dataclass(frozen=True, repr=False)
class StoreInShared(Step):
    """Keep the Func in the shared memory of a block."""


@dataclass(frozen=True, repr=False)
class AlignStorage(Step):
    """Begin each line along `var` at a multiple of `alignment` elements."""

    var: str
    alignment: int


@dataclass(frozen=True, repr=False)
class AllowRaceConditions(Step):
    """Let steps of the update that write one place run in any order: which of them wins is left open."""
