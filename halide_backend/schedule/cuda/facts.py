"""What the rules for CUDA ask about a program before it is written: loops, layouts, contiguous axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from halide_backend.program.access import is_contiguous, runs_along
from halide_backend.program.dtypes import ELEMENT, NUMBERED
from halide_backend.program.extents import is_multiple
from halide_backend.program.loop_program import Extent, Load, LoopProgram, Reduction, Scan
from halide_backend.program.moments import MOMENTS
from halide_backend.program.operation_names import LOOPS, RECURRENCES
from halide_backend.program.store_layout import OutputLayout, output_layout
from halide_backend.program.strided_loads import strided_loads
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.mapping.chunks import (
    chunk_elements,
    contiguous_axis,
    contiguous_bytes,
    element_bytes,
    line_loads,
)
from halide_backend.schedule.tiling import Tiling, TilingKind


@dataclass(frozen=True)
class Facts:
    """A program that has been prepared for a GPU, and that GPU."""

    program: LoopProgram
    device: Gpu

    @cached_property
    def extents(self) -> dict[str, Extent]:
        """The extent of each axis."""
        return {axis.name: axis.extent for axis in self.program.axes}

    @cached_property
    def hints(self) -> dict[str, int]:
        """Typical extents, for speed and never for correctness."""
        return {axis.name: axis.hint for axis in self.program.axes}

    @cached_property
    def layouts(self) -> dict[str, OutputLayout]:
        """The layout of each output."""
        return {store.buffer: output_layout(store, self.program) for store in self.program.stores}

    @cached_property
    def reductions(self) -> list[Reduction]:
        """Every reduction, an arg-reduction's among them."""
        return [v.attribute for v in self.program.values if isinstance(v.attribute, Reduction)]

    @cached_property
    def searched(self) -> list[Reduction]:
        """The arg-reductions of numbers that leave no room for a place beside them."""
        reduced = [
            self.program.values[v.operands[0]] for v in self.program.values if isinstance(v.attribute, Reduction)
        ]
        return [r for r, of in zip(self.reductions, reduced) if r.position is not None and of.dtype not in NUMBERED]

    @cached_property
    def moments(self) -> bool:
        """Whether something is a mean or a sum of squared deviations, in one walk along what is reduced."""
        return any(reduction.kind in MOMENTS for reduction in self.reductions)

    @cached_property
    def iterates(self) -> bool:
        """Whether an operation is a loop, which each lane leaves when it is done."""
        return any(value.operation in LOOPS for value in self.program.values)

    @cached_property
    def scans(self) -> bool:
        """Whether something is scanned."""
        return any(isinstance(value.attribute, Scan) for value in self.program.values)

    @cached_property
    def scatters(self) -> bool:
        """Whether an output is stored at computed positions."""
        return any(layout.scattered for layout in self.layouts.values())

    @cached_property
    def recurs(self) -> bool:
        """Whether some loop has a data-dependent trip count."""
        return any(value.operation in RECURRENCES for value in self.program.values)

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The axes of the first output's nest, which are those of all without a reduction."""
        return tuple(axis.name for axis in self.program.stores[0].nest.axes)

    @cached_property
    def stored_along(self) -> str:
        """The contiguous axis, if every store runs along it, else ""."""
        along = contiguous_axis(self.program)
        everywhere = all(along in {axis.name for axis in store.nest.iteration} for store in self.program.stores)
        return along if everywhere else ""

    @cached_property
    def line(self) -> Tiling | None:
        """Outer axes and line of a program whose reductions are for a thread group, as a tiling without chunks."""
        found = self._reduced
        return None if found is None or contiguous_axis(self.program, found.inner) in found.outer else found

    @cached_property
    def crossed_line(self) -> Tiling | None:
        """The same of a program that stores along its lines what it reads across them, neighbouring lines side by side;
        what all lines have in common is read as it lies."""
        found = self._reduced
        if found is None or self.moments:
            return None
        inner, outer = {*found.inner}, {*found.outer}
        loads = [value for value in self.program.values if isinstance(value.attribute, Load)]
        own = [value.attribute for value in loads if inner & value.axes and outer & value.axes]
        across = all(is_contiguous(load.index, found.outer[-1]) for load in own if isinstance(load, Load))
        along = [each.variables[0] for each in self.layouts.values() if inner & {*each.variables}]
        return found if own and across and {*along} == {found.inner[-1]} else None

    @cached_property
    def columns(self) -> Tiling | None:
        """The same of a program that reduces no less of its operands across memory than along it, and stores nothing
        else."""
        found, nests = self._reduced, [store.nest.iteration for store in self.program.stores]
        if found is None or any(axis.name in found.inner for nest in nests for axis in nest):
            return None
        bytes_along = contiguous_bytes(self.program, found.inner)
        across, along = (max((bytes_along.get(n, 0) for n in names), default=0) for names in (found.outer, found.inner))
        return found if across and across >= along else None

    @cached_property
    def columns_along(self) -> str:
        """The outer axis along which columns are adjacent, if each has results of its own that are as well, else ""."""
        if self.columns is None:
            return ""
        found = contiguous_bytes(self.program, self.columns.inner)
        along = max(self.columns.outer, key=lambda name: found.get(name, 0))
        stored = all(list(layout.variables[:1]) == [along] for layout in self.layouts.values())
        own = all(along in value.axes for value in self.program.values if isinstance(value.attribute, Reduction))
        return along if stored and own else ""

    @cached_property
    def mixed_columns(self) -> tuple[Tiling, str] | None:
        """The same of a program that stores nothing but results, and reads some operands of its columns along an outer
        axis, which comes with it, and some along the columns."""
        found, nests = self._reduced, [store.nest.iteration for store in self.program.stores]
        if found is None or any(axis.name in found.inner for nest in nests for axis in nest):
            return None
        loads = [(value.attribute, value.axes) for value in self.program.values if isinstance(value.attribute, Load)]
        last = found.inner[-1]
        for along in found.outer:
            whole = [load.index for load, axes in loads if {along, last} <= axes]
            beside = any(is_contiguous(index, along) for index in whole)
            if beside and any(runs_along(index, last) for index in whole):
                return found, along
        return None

    @cached_property
    def interleaved_lines(self) -> tuple[Tiling, str, int] | None:
        """The same of a program some of whose tensors lie along its lines and some across them, the outer axis along
        which neighbouring lines are side by side in these, and bytes of their narrowest elements."""
        found = self._reduced
        if found is None or not found.outer:
            return None
        last = found.inner[-1]
        sizes = {buffer.name: ELEMENT[buffer.dtype][1] // 8 for buffer in (*self.program.inputs, *self.program.outputs)}
        loads = [value.attribute for value in self.program.values if isinstance(value.attribute, Load)]
        places = [(sizes[load.buffer], load.index) for load in loads]
        places += [(sizes[store.buffer], store.index) for store in self.program.stores]
        for along in found.outer:
            whole = [(size, index) for size, index in places if {along, last} <= {s.name for s in index.free_symbols}]
            across = [size for size, index in whole if is_contiguous(index, along)]
            if across and any(runs_along(index, last) for _, index in whole):
                return found, along, min(across)
        return None

    @cached_property
    def _reduced(self) -> Tiling | None:
        """The outer axes and what is reduced for each of their points, if all reductions are over the same axes."""
        outer = tuple(axis.name for axis in self.program.outer)
        inner = tuple(name for name in self.extents if name not in outer)
        # Outermost axis first: as a reduction nests them.
        orders = (tuple(axis.name for axis in reduction.axes) for reduction in self.reductions)
        order = next((order for order in orders if set(order) == set(inner)), ())
        whole = all({axis.name for axis in reduction.axes} == set(inner) for reduction in self.reductions)
        nests = [frozenset(axis.name for axis in store.nest.iteration) for store in self.program.stores]
        flat = all(nest in (frozenset(outer), frozenset((*outer, *inner))) for nest in nests)
        return Tiling(TilingKind.BLOCK, outer, order) if order and whole and flat else None

    @cached_property
    def transposed_bytes(self) -> list[int]:
        """Bytes of an element of each load that reads across the memory that is written along."""
        values = [self.program.values[position] for position in strided_loads(self.program, self.layouts)]
        return [self.element_bytes(value.attribute) for value in values if isinstance(value.attribute, Load)]

    def is_dynamic(self, axis: str) -> bool:
        """Whether the extent of the axis is known only when the kernel is called."""
        return not isinstance(self.extents[axis], int)

    def divides(self, number: int, axis: str) -> bool:
        """Whether the extent of the axis is a multiple of `number`, whatever it is."""
        return is_multiple(self.extents[axis], number)

    def divides_bytes(self, number: int, axis: str, size: int) -> bool:
        """The same of the bytes along the axis, of elements of `size` bytes."""
        return is_multiple(self.extents[axis] * size, number)

    def chunk_elements(self, axis: str, *, pairs: bool = False) -> int:
        """Elements of a chunk along the axis: one vector of the narrowest numbers, or words, if it divides the
        extent."""
        return chunk_elements(self.program, axis, self.extents[axis], pairs=pairs)

    def loaded_bytes(self, tiling: Tiling, uses: int, together: Sequence[Sequence[int]] = ()) -> list[int]:
        """Bytes of an element of each load that runs along the line and flows into `uses` or more
        reductions and stores; reductions that are computed `together` are one."""
        return [self.element_bytes(load) for load in line_loads(self.program, tiling, uses, together)]

    def stored_bytes(self, tiling: Tiling) -> list[int]:
        """Bytes of an element of each output that runs along the line."""
        outputs = (buffer for buffer in self.program.outputs if buffer.name in self.layouts)
        along = (b for b in outputs if not set(tiling.inner).isdisjoint(self.layouts[b.name].variables))
        return [ELEMENT[buffer.dtype][1] // 8 for buffer in along]

    def gathers_along(self, tiling: Tiling) -> bool:
        """Whether some place along the line is computed, for which a thread waits before it can load."""
        values = self.program.values
        return any(v.operation == "indirect" and not v.axes.isdisjoint(tiling.inner) for v in values)

    def element_bytes(self, load: Load) -> int:
        """Bytes of an element of what is loaded."""
        return element_bytes(self.program, load)
