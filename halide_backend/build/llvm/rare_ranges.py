"""What a vector's elements need only in a rare range of their argument is computed where one of them is in that range.

The sine of a float32 beyond 2**17 takes twice the instructions of other sines, a remainder of a quotient beyond 2**28
ten times those of others. Halide's select computes both for all
elements, and LLVM makes no branch of a select between vectors. Here what only the rare side of a select needs becomes
a basic block of its own, behind a branch on whether any element is in the range. Every value is the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from functools import cached_property

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

#: What is rarely true: the comparisons with `LARGE_ANGLE_32` and `LARGE_QUOTIENT_32` of kernel_library/mathematics, and
#: that a float32 is denormal, also of two registers (build/llvm/bfloat16_conversions.py).
_RARE = re.compile(
    rf"^ *(?P<mask>{NAME}) = (?:fcmp ogt |call <\d+ x i1> @llvm\.x86\.avx512\.fpclass\.ps\.\d+\("
    rf"|shufflevector <16 x i1> {NAME}, <16 x i1> {NAME}, )<(?P<lanes>\d+) x "
    rf"(?:(?:float|double)> {NAME}, (?:splat \((?:float 1\.310720e\+05|double 0x41B0000000000000)\)|i32 32\))"
    r"|i32> <i32 0, i32 1, [^>]*, i32 31>)$",
    re.MULTILINE,
)
#: One of these is in each of them.
_IN_RARE = ("float 1.310720e+05", "double 0x41B0000000000000", ".fpclass.ps.", "shufflevector <16 x i1>")
_SELECT = re.compile(
    rf"^ *(?P<result>{NAME}) = (?P<select>select <\d+ x i1> (?P<mask>{NAME}), (?P<type><\d+ x \w+>) (?P<rare>{NAME}), "
    r"<\d+ x \w+> (?P<other>[^!]+))$"
)
_DEFINITION = re.compile(rf"^ *(?P<result>{NAME}) = (?P<value>.*)$")
_LABEL = re.compile(r'^([-\w.$]+|"[^"]*"):')
_NAME = re.compile(NAME)
_NUMBERED = re.compile(r"%(\d+)\b")
_NUMBERED_LABEL = re.compile(r"^(\d+):", re.MULTILINE)
_METADATA = re.compile(r"^!(\d+) = ", re.MULTILINE)

#: Operations that have no effect but their value, and may be left out where nothing needs it.
_PURE = re.compile(
    r"(?:f(?:add|sub|mul|div|neg|cmp|pext|ptrunc|ptoui)|uitofp|icmp|select|bitcast|trunc|zext|sext|add|sub|mul|and|or|xor"
    r"|shl|lshr|ashr|shufflevector) |(?:tail )?call <\d+ x \w+> @llvm\.(?:fabs|umin|usub\.sat)\."
)
#: Fewer operations are not worth a branch.
_FEWEST = 8


def with_rare_ranges(ir: str) -> str:
    """LLVM IR that computes the same, and the rare sides of selects only where an element of a vector needs them."""
    if not any(part in ir for part in _IN_RARE) or not _RARE.search(ir):
        return ir
    weights = 1 + max((int(number) for number in _METADATA.findall(ir)), default=-1)

    def branching(function: re.Match[str]) -> str:
        if not _RARE.search(function[0]):
            return function[0]
        # Operations change places, and what has a number for a name has to be in order.
        text = _NUMBERED_LABEL.sub(r"v\1:", _NUMBERED.sub(r"%v\1", function[0]))
        lines = text.splitlines()
        for number, (mask, lanes) in enumerate(_RARE.findall(text)):
            lines = _Block(lines, mask).branching(f"rare{number}", lanes, f"!prof !{weights}")
        return "\n".join(lines) if len(lines) > text.count("\n") + 1 else function[0]

    rewritten = FUNCTION.sub(branching, ir)
    return rewritten if rewritten == ir else f'{rewritten}\n!{weights} = !{{!"branch_weights", i32 1, i32 1048575}}\n'


class _Block:
    """The basic block of a function in which `mask` is computed. Operations go by the numbers of their lines."""

    def __init__(self, lines: list[str], mask: str) -> None:
        self._lines, self._mask = lines, mask
        self._definitions = [_DEFINITION.match(line) for line in lines]
        self._place = {found["result"]: i for i, found in enumerate(self._definitions) if found}
        at = self._place[mask]
        self._start = max(i for i in range(at) if _LABEL.match(lines[i]))
        self._stop = next(i for i in range(at, len(lines)) if not lines[i].strip() or lines[i] == "}")

    def branching(self, block: str, lanes: str, weights: str) -> list[str]:
        """The lines with what only the rare sides of selects need in a block `block`; unchanged if it is little."""
        rare = self._only_for_rare_sides()
        chosen = {i: select for i, select in self._selects.items() if self._place.get(select["rare"]) in rare}
        if len(rare) < _FEWEST:
            return self._lines
        late = self._after(chosen, rare)
        if any(self._place.get(name) in late for i in [*rare, *chosen] for name in self._operands[i]):
            return self._lines
        label, rest = self._lines[self._start].partition(":")[0], f"{block}.rest"
        # Control comes from the last part of the block now.
        lines = [line.replace(f"%{label} ]", f"%{rest} ]") if " = phi " in line else line for line in self._lines]
        inside = range(self._start + 1, self._stop)
        names = {i: f"%{block}.{number}" for number, i in enumerate(chosen)}
        return [
            *lines[: self._start + 1],
            *(lines[i] for i in inside if i not in rare and i not in late),
            f"  %{block}.bits = bitcast <{lanes} x i1> {self._mask} to i{lanes}",
            f"  %{block}.any = icmp ne i{lanes} %{block}.bits, 0",
            f"  br i1 %{block}.any, label %{block}, label %{rest}, {weights}",
            "",
            f"{block}:",
            *(lines[i] for i in sorted(rare)),
            *(f"  {names[i]} = {select['select']}" for i, select in chosen.items()),
            f"  br label %{rest}",
            "",
            f"{rest}:",
            *(
                f"  {select['result']} = phi {select['type']} [ {names[i]}, %{block} ], [ {select['other']}, %{label} ]"
                for i, select in chosen.items()
            ),
            *(lines[i] for i in sorted(late) if i not in chosen),
            *lines[self._stop :],
        ]

    @cached_property
    def _operands(self) -> list[list[str]]:
        pairs = zip(self._lines, self._definitions, strict=True)
        return [_NAME.findall(found["value"] if found else line) for line, found in pairs]

    @cached_property
    def _selects(self) -> dict[int, re.Match[str]]:
        """Those by the mask."""
        found = {i: _SELECT.match(self._lines[i]) for i in range(self._start, self._stop)}
        return {i: select for i, select in found.items() if select and select["mask"] == self._mask}

    def _is_pure(self, i: int) -> bool:
        found = self._definitions[i]
        return found is not None and _PURE.match(found["value"]) is not None

    def _only_for_rare_sides(self) -> set[int]:
        """What nothing needs but the rare sides of selects; what nothing needs at all stays where it is."""
        users = defaultdict(list)
        for i, names in enumerate(self._operands):
            for name in names:
                users[name].append(i)
        rare: set[int] = set()

        def is_rare_use(name: str, user: int) -> bool:
            select = self._selects.get(user)
            at_select = select and select["rare"] == name and name not in (self._mask, select["other"])
            return user in rare or bool(at_select)

        for i in reversed(range(self._start + 1, self._stop)):
            found = self._definitions[i]
            if found and self._is_pure(i) and i not in self._selects:
                name = found["result"]
                if users[name] and all(is_rare_use(name, user) for user in users[name]):
                    rare.add(i)
        return rare

    def _after(self, chosen: Collection[int], rare: Collection[int]) -> set[int]:
        """What has to come after the branch. Nothing changes places if there is one select: what another branch needs
        stays beside what it is for."""
        late: set[int] = set()
        for i in range(self._start + 1, self._stop):
            follows = any(self._place.get(name) in late for name in self._operands[i])
            behind = i > min(chosen) and (len(chosen) == 1 or not self._is_pure(i))
            if i in chosen or (i not in rare and (follows or behind)):
                late.add(i)
        return late
