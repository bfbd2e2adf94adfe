"""A graph with two sizes, outside of which nothing is known of them: for tests of what index expressions are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import sympy
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges

N, M = (sympy.Symbol(name, integer=True, positive=True) for name in ("s0", "s1"))

#: What a size typically is.
_TYPICAL = 30


@contextmanager
def sized_graph() -> Iterator[None]:
    """Within, N and M are sizes of the graph, 2 or more, as Inductor's are."""
    environment = ShapeEnv()
    for symbol in (N, M):
        environment.var_to_range[symbol] = ValueRanges(2, 2**31 - 2)
    allocator = SizeVarAllocator(environment)
    typical = dict.fromkeys((N, M), _TYPICAL)
    allocator.optimization_hint = lambda size, **_: int(size.subs(typical))  # type: ignore[method-assign]
    with V.set_graph_handler(SimpleNamespace(sizevars=allocator)):  # type: ignore[arg-type]
        yield
