"""Programs that read along one axis and write along another."""

from __future__ import annotations

from halide_backend.program.access import is_contiguous
from halide_backend.schedule.cuda.facts import Facts


def transposed_axes(facts: Facts) -> tuple[str, str] | None:
    """The axes along which transposed operands are read and outputs are written, if there is one pair and their
    extents are static."""
    if facts.reductions or facts.recurs:
        return None
    inner = {layout.variables[0] for layout in facts.layouts.values() if layout.variables}
    across: set[str] = set()
    for load, axes in facts.transposed_loads:
        across |= {name for name in axes if is_contiguous(load.index, name)}
    if len(inner) != 1 or len(across) != 1:
        return None
    pair = across.pop(), inner.pop()
    return None if any(facts.is_dynamic(name) for name in pair) else pair


def transposed_bytes(facts: Facts) -> list[int]:
    """Bytes of an element of each transposed operand."""
    return [facts.element_bytes(load) for load, _ in facts.transposed_loads]
