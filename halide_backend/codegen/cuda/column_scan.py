"""A scan over an outer axis as Funcs in the registers of the threads that share a column."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.codegen.call_text import call_text, tuple_text
from halide_backend.codegen.cuda.scan_funcs import ScanFuncs
from halide_backend.program.dtypes import ELEMENT
from halide_backend.schedule.stage import Loop, LoopKind, Role
from halide_backend.schedule.tiling import ROUND, STEP, THREAD

#: The Var of the parts of a round: what was carried from the rounds before, then what each thread of a column has.
PART = "j"


class ColumnScan(ScanFuncs):
    """The Funcs of one scan.

    In each round a thread scans its adjacent points. The threads of a column read one another's totals in shared memory
    and combine them in order, after what registers carry from the round before; so each has what comes before its own
    points, and what it carries on.
    """

    def write(self) -> str:
        """Write all of them; returns the name of the one that holds the result."""
        tiling, several = self.tiling, self.builder.axes.rounds != 1
        loops = [loop for loop in self.elements if loop.name != STEP]
        texts = self.combined_elements()
        chunk = self.func("chunk", self.elements, tuple_text(texts), roots=self.operands)
        self.in_order(chunk, self.elements, STEP, tiling.lines)
        if tiling.threads == 1 and not several:
            return chunk
        total = self.at(chunk, self.elements, {STEP: str(tiling.lines - 1)})
        number = self._first_carried(loops)
        combined = self._combined(loops, chunk, total, number if several else "")
        before, calls = self.at(combined, [_parts(tiling.threads), *loops], {PART: "0"}), [combined]
        if tiling.threads > 1:
            own = self.func("before", loops, before, [combined])
            at = self.region(1, tiling.threads - 1, "distance")
            part = self.at(combined, [_parts(tiling.threads), *loops], {PART: at})
            text = f"scans.chosen({THREAD} >= {at}, {part}, {self.at(own, loops)})"
            self.update(own, [loop.name for loop in loops], text)
            before, calls = self.at(own, loops), [own]
        exists = " | ".join([f"({THREAD} > 0)"] * (tiling.threads > 1) + [f"({ROUND} > 0)"] * several)
        result = f"scans.joined({self.combine}, {before}, {exists}, {self.at(chunk, self.elements)})"
        if several:
            whole = self.at(combined, [_parts(tiling.threads), *loops], {PART: str(tiling.threads)})
            kept = self.func("kept", loops, f"scans.kept({whole}, {number})", [combined])
            result, calls = f"scans.beside_each({result}, {self.at(kept, loops)})", [*calls, kept]
        return self.func("", self.elements, result, [chunk, *calls])

    def _combined(self, loops: Sequence[Loop], chunk: str, total: str, number: str) -> str:
        """The Func of all parts of a round, each combined with those before it: part 0 is what register `number` and
        those that follow carry ("" for nothing), part k what thread k - 1 has."""
        threads, calls, part = self.tiling.threads, [chunk], total
        parts = [_parts(threads), *loops]
        self.builder.declare(PART)
        if threads > 1:
            part = self._of_thread(loops, total, f"hl.max({PART} - 1, 0)")
            calls = [f"{self.name}_shared"]
        if number:
            carried = self.func("carried", loops, f"scans.carried({total}, {number}, {ROUND})", [chunk])
            part, calls = f"scans.chosen({PART} > 0, {part}, {self.at(carried, loops)})", [*calls, carried]
        combined = self.func("combined", parts, part, calls)
        at = self.region(1, threads, PART)
        exists = f"({at} > 1) | ({ROUND} > 0)" if number else f"{at} > 1"
        values = self.at(combined, parts, {PART: f"{at} - 1"}), exists, self.at(combined, parts, {PART: at})
        self.update(
            combined,
            [at if loop.name == PART else loop.name for loop in parts],
            f"scans.joined({self.combine}, {', '.join(values)})",
        )
        return combined

    def _of_thread(self, loops: Sequence[Loop], total: str, thread: str) -> str:
        """Write the Func that puts the totals of all threads into shared memory; the text of that of `thread`."""
        tiling, axes = self.tiling, self.builder.axes
        words = sum(-(-ELEMENT[self.builder.program.values[operand].dtype][1] // 32) for operand in self.operands)
        room = tiling.side * tiling.threads * tiling.elements
        # The next round is put beside this one, which slower threads still read; all have read the one before.
        first = self.builder.numbers("shared", 2 * words * room)
        column = axes.loops([tiling.chunk])[-1].name
        names = {loop.name for loop in loops}
        within = f" + {column} % {tiling.side}" if column in names else ""
        element = f" + {tiling.chunk}_e" if f"{tiling.chunk}_e" in names else ""
        start = f"{first} + {ROUND} % 2 * {words * room}"
        own, other = (
            f"{start} + ({number}*{tiling.side}{within})*{tiling.elements}{element}" for number in (THREAD, thread)
        )
        name = f"{self.name}_shared"
        text = f"scans.shared({total}, {own}, {room}, {first + 2 * words * room})"
        self.builder.func(name, Role.SCAN, loops, text, calls=[f"{self.name}_chunk"])
        base = call_text(name, [loop.name for loop in loops])
        return f"scans.of_shared({total}, hl.Expr({base}), {other}, {room})"

    def _first_carried(self, loops: Sequence[Loop]) -> str:
        """Text of the number of the first register that carries an element."""
        words = 2 * len(self.operands)
        first = self.builder.numbers("carried", words * self.tiling.elements)
        element = f"{self.tiling.chunk}_e"
        return f"{first} + {element}*{words}" if any(loop.name == element for loop in loops) else str(first)


def _parts(threads: int) -> Loop:
    """The loop over the parts of a round."""
    return Loop(PART, threads + 1, PART, kind=LoopKind.STEP)
