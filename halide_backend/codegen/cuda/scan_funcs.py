"""What the Funcs of a scan have in common: each is over the loops of the threads that hold the line or column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.cuda.axes import TiledAxes
from halide_backend.codegen.kernel_builder import KernelBuilder
from halide_backend.codegen.scan_text import combination_lines
from halide_backend.program.loop_program import LoopProgram, Scan, Value
from halide_backend.schedule.stage import Loop, Role, rvar


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


class ScanFuncs:
    """Writes the Funcs of one scan of the kernel that `builder` writes."""

    def __init__(self, builder: KernelBuilder[TiledAxes], value: Value, scan: Scan) -> None:
        self.builder = builder
        self.tiling = builder.axes.tiling
        self.scan = scan
        self.operands = value.operands
        self.name = builder.unique_name("scan")
        self.combine = f"{self.name}_combine"
        self.elements = builder.axes.loops(value.axes)

    def combined_elements(self) -> list[str]:
        """Write the function that combines two elements; the texts of the components of one."""
        texts = [beside_scans(self.builder.program, operand) for operand in self.operands]
        self.builder.lines += combination_lines(self.combine, self.scan.combination)
        return texts

    def func(
        self, stem: str, loops: Sequence[Loop], text: str, calls: Sequence[str] = (), roots: Sequence[int] = ()
    ) -> str:
        """Define a Func over `loops` as the components `text`, made of the values `roots` and of the Funcs `calls`;
        its name."""
        name = f"{self.name}_{stem}" if stem else self.name
        self.builder.func(name, Role.SCAN, loops, f"scans.defined({text})", roots, calls=calls)
        return name

    def at(self, func: str, loops: Sequence[Loop], places: dict[str, str] | None = None) -> str:
        """The element that `func` has at its own Vars, or at `places` instead of some."""
        arguments = [(places or {}).get(loop.name, loop.name) for loop in loops]
        return f"scans.element({func}, {len(self.operands)}, {tuple_text(arguments)})"

    def in_order(self, func: str, loops: Sequence[Loop], along: str, extent: int) -> None:
        """Update `func`, one step of the loop `along` after another: each with all before it."""
        if extent > 1:
            at = self.region(1, extent - 1, along)
            before = self.at(func, loops, {along: f"{at} - 1"})
            text = f"{self.combine}({before}, {self.at(func, loops, {along: at})})"
            self.update(func, [at if loop.name == along else loop.name for loop in loops], text)

    def region(self, first: int, extent: int, axis: str) -> str:
        """An RDom over the steps of an update of the Func written last; the text of a step."""
        region, stages = self.builder.unique_name("r"), self.builder.stages
        self.builder.lines.append(f'{region} = hl.RDom([({first}, {extent})], "{region}")')
        stages[-1] = replace(stages[-1], updates=(Loop(rvar(region, 0), extent, axis),))
        return f"{region}[0]"

    def update(self, func: str, arguments: Sequence[str], text: str) -> None:
        """Update `func` at `arguments`: its components become `text`."""
        self.builder.lines.append(f"{call_text(func, arguments)} = scans.defined({text})")
