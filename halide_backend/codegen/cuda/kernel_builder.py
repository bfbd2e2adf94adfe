"""What a kernel's text on CUDA has so far: its statements, its Funcs as stages, and which Func holds which value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halide_backend.codegen.cuda.axes import TiledAxes, var
from halide_backend.codegen.cuda.text import call_text
from halide_backend.program.loop_program import LoopProgram, Reduction
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.tiling import Tiling


class KernelBuilder:
    """Collects the `lines` and `stages` of the kernel of `program` under `tiling`.

    `calls` has the Func that holds a value, `loads` the one of the words of a vector load, `known` the one that was
    written for what else a Func is made of; `aligned` are the buffers that are accessed in vectors.
    """

    def __init__(self, program: LoopProgram, tiling: Tiling) -> None:
        self.program = program
        self.tiling = tiling
        self.axes = TiledAxes(program, tiling)
        self.lines: list[str] = []
        self.stages: list[Stage] = []
        self.aligned: list[str] = []
        self.calls: dict[int, str] = {}
        self.loads: dict[int, str] = {}
        self.known: dict[object, str] = {}
        self.counters: dict[str, int] = {}
        self.reduced_by_group = self._reduced_by_group()

    def _reduced_by_group(self) -> set[int]:
        """Values that depend on what a thread group reduced."""
        found: set[int] = set()
        for position, value in enumerate(self.program.values):
            own = isinstance(value.attribute, Reduction) and self.tiling.shares_lines
            if own or found.intersection(value.operands):
                found.add(position)
        return found

    def declare(self, name: str) -> None:
        """Define the Var `name`, once."""
        line = var(name)
        if line not in self.lines:
            self.lines.append(line)

    def fresh(self, stem: str) -> str:
        """A name that no other Func has."""
        number = self.counters.get(stem, 0)
        self.counters[stem] = number + 1
        return f"{stem}_{number}"

    def func(
        self, name: str, role: Role, loops: Sequence[Loop], text: str, calls: Iterable[str], **facts: object
    ) -> str:
        """Define Func `name` and its stage; returns the text of a call at its own Vars."""
        call = call_text(name, [loop.name for loop in loops])
        self.lines += [f'{name} = hl.Func("{name}")', f"{call} = {text}"]
        self.stages.append(Stage(name, role, tuple(loops), calls=tuple(calls), **facts))  # type: ignore[arg-type]
        return f"hl.Expr({call})"

    def calls_of(self, roots: Iterable[int]) -> list[str]:
        """The Funcs that an expression of the values `roots` calls."""
        found: dict[str, None] = {}
        stack, seen = list(roots), set()
        while stack:
            position = stack.pop()
            if position in seen:
                continue
            seen.add(position)
            if position in self.calls:
                found[self.calls[position]] = None
            else:
                if position in self.loads:
                    found[self.loads[position]] = None
                stack += self.program.values[position].operands
        return list(found)
