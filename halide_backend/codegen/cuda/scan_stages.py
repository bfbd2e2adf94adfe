"""A scan as Funcs in the registers of the threads that hold its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.cuda.axes import CHUNK, WARP_NUMBER, TiledAxes
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.value_text import value_text
from halide_backend.program.loop_program import Combination, LoopProgram, Scan, Value
from halide_backend.schedule.stage import Loop, Role, rvar
from halide_backend.schedule.tiling import STEP, THREAD


def write_scan(builder: KernelBuilder[TiledAxes], position: int, value: Value) -> str:
    """Write the scan whose component is the value at `position`, unless another component did; the component's text."""
    scan = value.attribute
    assert isinstance(scan, Scan)
    made_of = value.operands, scan.axes, scan.combination
    if made_of not in builder.known:
        builder.known[made_of] = _Stages(builder, value, scan).write()
    builder.calls[position] = name = builder.known[made_of]
    call = call_text(name, [loop.name for loop in builder.axes.loops(value.axes)])
    return f"hl.Expr({call})" if len(value.operands) == 1 else f"hl.Expr({call}[{scan.result}])"


def beside_scans(program: LoopProgram, position: int) -> str:
    """Text of the value at `position`, which is written: the scans behind it are computed even where it selects them
    away."""
    text, scans = f"t{position}", []
    stack, values = [position], program.values
    seen = {position}
    while stack:
        current = stack.pop()
        if isinstance(values[current].attribute, Scan):
            scans.append(current)
            continue
        stack += [operand for operand in values[current].operands if operand not in seen]
        seen.update(values[current].operands)
    for scan in sorted(set(scans) - {position}):
        text = f"scans.beside({text}, t{scan})"
    return text


class _Stages:
    """The Funcs of one scan, each over the loops of the threads that hold the line.

    A thread scans its chunks, the lanes of a warp scan the totals of these. What comes before a chunk is made of the
    lanes before, of the totals of the warp's steps before, and of what the warps before have in all.
    """

    def __init__(self, builder: KernelBuilder[TiledAxes], value: Value, scan: Scan) -> None:
        self._builder = builder
        self._tiling = builder.axes.tiling
        self._scan = scan
        self._operands = value.operands
        self._name = builder.unique_name("scan")
        self._combine = f"{self._name}_combine"
        self._elements = builder.axes.loops(value.axes)
        self._element = f"{self._tiling.chunk}_e"
        self._chunks = [loop for loop in self._elements if loop.name != self._element]
        self._warps = [loop for loop in self._chunks if loop.name != STEP]

    def write(self) -> str:
        """Write all of them; returns the name of the one that holds the result."""
        tiling, builder = self._tiling, self._builder
        texts = [beside_scans(builder.program, operand) for operand in self._operands]
        builder.lines += _function(self._combine, self._scan.combination)
        chunk = self._func("chunk", self._elements, tuple_text(texts), roots=self._operands)
        self._in_order(chunk, self._elements, self._element, tiling.elements)
        last = self._at(chunk, self._elements, {self._element: str(tiling.elements - 1)})
        lanes = self._func("lanes", self._chunks, last, [chunk])
        self._over_lanes(lanes, self._chunks, tiling.threads)
        first, is_first, calls = self._earlier(lanes)
        step = f"scans.lanes_before({self._at(lanes, self._chunks)}, hl.i32(1))"
        if is_first:
            step = f"scans.joined({self._combine}, {first}, {is_first}, {step}, {THREAD} > 0)"
        before = self._func("before", self._chunks, step, [lanes, *calls])
        values = self._at(before, self._chunks), f"{CHUNK} > 0", self._at(chunk, self._elements)
        return self._func("", self._elements, f"scans.joined({self._combine}, {', '.join(values)})", [before, chunk])

    def _earlier(self, lanes: str) -> tuple[str, str, list[str]]:
        """What comes before the first lane's chunk in each step: its text, whether there is any, the Funcs it calls."""
        tiling = self._tiling
        if tiling.steps == 1 and tiling.warps == 1:
            return "", "", []
        total = f"scans.of_lane({self._at(lanes, self._chunks)}, hl.i32({tiling.threads - 1}), {tiling.threads})"
        totals = self._func("totals", self._chunks, total, [lanes])
        self._in_order(totals, self._chunks, STEP, tiling.steps)
        steps, is_step = self._at(totals, self._chunks, {STEP: f"hl.max({STEP} - 1, 0)"}), f"({STEP} > 0)"
        if tiling.warps == 1:
            return steps, is_step, [totals]
        all_steps = self._at(totals, self._chunks, {STEP: str(tiling.steps - 1)})
        number = self._builder.numbers("exchange", len(self._operands))
        own = f"scans.of_warps({all_steps}, {WARP_NUMBER}, {THREAD}, {number})"
        warps = self._func("warps", self._warps, own, [totals])
        self._over_lanes(warps, self._warps, tiling.warps)
        place = f"hl.max({WARP_NUMBER} - 1, 0)"
        found = f"scans.of_lane({self._at(warps, self._warps)}, {place}, {tiling.threads})"
        stretches = self._at(self._func("stretches", self._warps, found, [warps]), self._warps)
        is_warp = f"({WARP_NUMBER} > 0)"
        if tiling.steps == 1:
            return stretches, is_warp, [f"{self._name}_stretches"]
        text = f"scans.joined({self._combine}, {stretches}, {is_warp}, {steps}, {is_step})"
        earlier = self._func("earlier", self._chunks, text, [totals, f"{self._name}_stretches"])
        return self._at(earlier, self._chunks), f"({is_warp} | {is_step})", [earlier]

    # -- Funcs -------------------------------------------------------------------------------------------------

    def _func(
        self, stem: str, loops: Sequence[Loop], text: str, calls: Sequence[str] = (), roots: Sequence[int] = ()
    ) -> str:
        name = f"{self._name}_{stem}" if stem else self._name
        self._builder.func(name, Role.SCAN, loops, f"scans.defined({text})", roots, calls=calls)
        return name

    def _at(self, func: str, loops: Sequence[Loop], places: dict[str, str] | None = None) -> str:
        """The element that `func` has at its own Vars, or at `places` instead of some."""
        arguments = [(places or {}).get(loop.name, loop.name) for loop in loops]
        return f"scans.element({func}, {len(self._operands)}, {tuple_text(arguments)})"

    def _in_order(self, func: str, loops: Sequence[Loop], along: str, extent: int) -> None:
        """Update `func`, one step of the loop `along` after another: each with all before it."""
        if extent > 1:
            at = self._region(1, extent - 1, along)
            before = self._at(func, loops, {along: f"{at} - 1"})
            text = f"{self._combine}({before}, {self._at(func, loops, {along: at})})"
            self._update(func, [at if loop.name == along else loop.name for loop in loops], text)

    def _over_lanes(self, func: str, loops: Sequence[Loop], lanes: int) -> None:
        """Update `func`, in as many steps as double one lane to `lanes`: each lane with all before it."""
        if lanes > 1:
            at = self._region(0, (lanes - 1).bit_length(), "distance")
            text = f"scans.over_lanes({self._combine}, {self._at(func, loops)}, {THREAD}, hl.i32(1) << {at})"
            self._update(func, [loop.name for loop in loops], text)

    def _region(self, first: int, extent: int, axis: str) -> str:
        """An RDom over the steps of an update of the Func written last; the text of a step."""
        region, stages = self._builder.unique_name("r"), self._builder.stages
        self._builder.lines.append(f'{region} = hl.RDom([({first}, {extent})], "{region}")')
        stages[-1] = replace(stages[-1], updates=(Loop(rvar(region, 0), extent, axis),))
        return f"{region}[0]"

    def _update(self, func: str, arguments: Sequence[str], text: str) -> None:
        self._builder.lines.append(f"{call_text(func, arguments)} = scans.defined({text})")


def _function(name: str, combination: Combination) -> list[str]:
    """The Python function of an earlier and a later element that a scan combines with."""
    program = combination.program
    lines = [f"def {name}(earlier, later):"]
    for position, value in enumerate(program.values):
        operand = value.operation in ("earlier", "later")
        text = f"{value.operation}[{value.attribute}]" if operand else value_text(program, value)
        lines.append(f"    t{position} = {text}")
    return [*lines, f"    return {tuple_text([f't{position}' for position in combination.results])}"]
