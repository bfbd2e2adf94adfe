"""A scan as Funcs in the registers of the threads that hold its line."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.call_text import tuple_text
from halide_backend.codegen.cuda.axes import CHUNK, WARP_NUMBER, TiledAxes
from halide_backend.codegen.cuda.column_scan import ColumnScan
from halide_backend.codegen.cuda.scan_funcs import ScanFuncs
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.scan_text import component_text
from halide_backend.program.loop_program import Scan, Value
from halide_backend.schedule.stage import Loop
from halide_backend.schedule.tiling import STEP, THREAD, TilingKind


def write_scan(builder: KernelBuilder[TiledAxes], position: int, value: Value) -> str:
    """Write the scan whose component is the value at `position`, unless another component did; the component's text."""
    scan = value.attribute
    assert isinstance(scan, Scan)
    made_of = value.operands, scan.axes, scan.combination
    if made_of not in builder.known:
        columns = builder.axes.tiling.kind is TilingKind.SCANNED_COLUMNS
        builder.known[made_of] = (ColumnScan if columns else LineScan)(builder, value, scan).write()
    builder.calls[position] = name = builder.known[made_of]
    return component_text(name, builder.axes.loops(value.axes), value, scan)


class LineScan(ScanFuncs):
    """The Funcs of one scan, each over the loops of the threads that hold the line.

    A thread scans its chunks, the lanes of a warp scan the totals of these. What comes before a chunk is made of the
    lanes before, of the totals of the warp's steps before, and of what the warps before have in all.
    """

    def __init__(self, builder: KernelBuilder[TiledAxes], value: Value, scan: Scan) -> None:
        super().__init__(builder, value, scan)
        self._element = f"{self.tiling.chunk}_e"
        self._chunks = [loop for loop in self.elements if loop.name != self._element]
        self._warps = [loop for loop in self._chunks if loop.name != STEP]

    def write(self) -> str:
        """Write all of them; returns the name of the one that holds the result."""
        tiling = self.tiling
        texts = self.combined_elements()
        chunk = self.func("chunk", self.elements, tuple_text(texts), roots=self.operands)
        self.in_order(chunk, self.elements, self._element, tiling.elements)
        last = self.at(chunk, self.elements, {self._element: str(tiling.elements - 1)})
        lanes = self.func("lanes", self._chunks, last, [chunk])
        self._over_lanes(lanes, self._chunks, tiling.threads)
        first, is_first, calls = self._earlier(lanes)
        step = f"scans.lanes_before({self.at(lanes, self._chunks)}, hl.i32(1))"
        if is_first:
            step = f"scans.joined({self.combine}, {first}, {is_first}, {step}, {THREAD} > 0)"
        before = self.func("before", self._chunks, step, [lanes, *calls])
        values = self.at(before, self._chunks), f"{CHUNK} > 0", self.at(chunk, self.elements)
        return self.func("", self.elements, f"scans.joined({self.combine}, {', '.join(values)})", [before, chunk])

    def _earlier(self, lanes: str) -> tuple[str, str, list[str]]:
        """What comes before the first lane's chunk in each step: its text, whether there is any, the Funcs it calls."""
        tiling = self.tiling
        if tiling.steps == 1 and tiling.warps == 1:
            return "", "", []
        total = f"scans.of_lane({self.at(lanes, self._chunks)}, hl.i32({tiling.threads - 1}), {tiling.threads})"
        totals = self.func("totals", self._chunks, total, [lanes])
        self.in_order(totals, self._chunks, STEP, tiling.steps)
        steps, is_step = self.at(totals, self._chunks, {STEP: f"hl.max({STEP} - 1, 0)"}), f"({STEP} > 0)"
        if tiling.warps == 1:
            return steps, is_step, [totals]
        all_steps = self.at(totals, self._chunks, {STEP: str(tiling.steps - 1)})
        number = self.builder.numbers("exchange", len(self.operands))
        own = f"scans.of_warps({all_steps}, {WARP_NUMBER}, {THREAD}, {number})"
        warps = self.func("warps", self._warps, own, [totals])
        self._over_lanes(warps, self._warps, tiling.warps)
        place = f"hl.max({WARP_NUMBER} - 1, 0)"
        found = f"scans.of_lane({self.at(warps, self._warps)}, {place}, {tiling.threads})"
        stretches = self.at(self.func("stretches", self._warps, found, [warps]), self._warps)
        is_warp = f"({WARP_NUMBER} > 0)"
        if tiling.steps == 1:
            return stretches, is_warp, [f"{self.name}_stretches"]
        text = f"scans.joined({self.combine}, {stretches}, {is_warp}, {steps}, {is_step})"
        earlier = self.func("earlier", self._chunks, text, [totals, f"{self.name}_stretches"])
        return self.at(earlier, self._chunks), f"({is_warp} | {is_step})", [earlier]

    def _over_lanes(self, func: str, loops: Sequence[Loop], lanes: int) -> None:
        """Update `func`, in as many steps as double one lane to `lanes`: each lane with all before it."""
        if lanes > 1:
            at = self.region(0, (lanes - 1).bit_length(), "distance")
            text = f"scans.over_lanes({self.combine}, {self.at(func, loops)}, {THREAD}, hl.i32(1) << {at})"
            self.update(func, [loop.name for loop in loops], text)
