"""A vector of an array that every iteration of a loop loads and stores is kept in a register from one to the next.

Halide's own LLVM passes do that for whole vectors; of the last one of a row, whose stores become whole only afterwards
(`partial_vectors.py`), they leave each in memory. Where the array is also read with a computed index, as by a loop over
all vectors of the row, SROA cannot dissolve it either. An iteration then waits for the store of the one before it: on a
Zen 5 a sum over 91 rows of 113 floats took half of its time for that.

So do those of which some lanes are loaded and stored, under the same mask in all iterations, and those of arrays on the
heap, which nothing else leads to either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

_ARRAY = re.compile(rf"^ *({NAME}) = (?:alloca \[|(?:tail )?call [^\n@]*@halide_malloc\()", re.MULTILINE)
_LABEL = re.compile(r'^(?P<name>[-\w.$]+|"[^"]*"):(?: *; preds = (?P<before>.*))?$')
_PLACE = re.compile(rf"^ *(?P<result>{NAME}) = getelementptr .*?, ptr (?P<base>{NAME})[,\n]")
_LOAD = re.compile(rf"^ *(?P<result>{NAME}) = load (?P<vector><\d+ x \w+>), ptr (?P<place>{NAME}), align \d+")
_STORE = re.compile(rf"^ *store (?P<vector><\d+ x \w+>) (?P<value>{NAME}), ptr (?P<place>{NAME}), align \d+")
_MASKED_LOAD = re.compile(
    rf"^ *(?P<result>{NAME}) = (?:tail )?call (?P<vector><\d+ x \w+>) @llvm\.masked\.load\.[\w.]+\("
    rf"ptr (?:\w+ )*(?P<place>{NAME}), (?:i32 \d+, )?(?P<mask><\d+ x i1> {NAME}), <\d+ x \w+> (?P<rest>\w+)\)"
)
_MASKED_STORE = re.compile(
    rf"^ *(?:tail )?call void @llvm\.masked\.store\.[\w.]+\((?P<vector><\d+ x \w+>) (?P<value>{NAME}), "
    rf"ptr (?:\w+ )*(?P<place>{NAME}), (?:i32 \d+, )?(?P<mask><\d+ x i1> {NAME})\)"
)
_BRANCH = re.compile(rf"^ *br i1 {NAME}, label (?P<true>{NAME}), label (?P<false>{NAME})")
_NAMES = re.compile(NAME)
_ADDRESS = re.compile(r" = (?:phi|select|ptrtoint|bitcast|addrspacecast) |store ptr ")


def with_accumulators_in_registers(ir: str) -> str:
    """LLVM IR that computes the same and keeps vectors of arrays in registers while a loop of one block runs.

    What the loop does not touch otherwise is loaded before it and stored behind it.
    """
    return FUNCTION.sub(_in_function, ir)


@dataclass(frozen=True)
class _Accumulator:
    """The lines of a block that load and store a vector, which is some lanes of it under a `mask`, "" for all, and
    `rest` in the others."""

    loaded: int
    stored: int
    result: str
    vector: str
    value: str
    mask: str = ""
    rest: str = "poison"

    def in_register(self, kept: str) -> str:
        """What is loaded, where register `kept` has the vector."""
        if self.rest == "poison":
            return f"bitcast {self.vector} {kept} to {self.vector}"
        return f"select {self.mask}, {self.vector} {kept}, {self.vector} {self.rest}"


def _in_function(function: re.Match[str]) -> str:
    lines = function[0].split("\n")
    arrays = _arrays(lines)
    if not arrays:
        return function[0]
    blocks = _blocks(lines)
    number = 0
    changed: set[str] = set()
    removed: set[int] = set()
    for name, (begin, end) in blocks.items():
        loop = _loop(lines, blocks, name)
        found = _accumulators(lines[begin:end], arrays) if loop else []
        if not loop or not found or not changed.isdisjoint(loop):
            continue
        changed.add(name)
        entry, exit_ = loop
        before, behind = f"accumulator.{number + 1}.begin", f"accumulator.{number + 1}.end"
        loads: list[str] = []
        phis: list[str] = []
        stores: list[str] = []
        for each in found:
            number += 1
            vector, kept, initial = each.vector, f"%accumulator.{number}", f"%accumulator.{number}.first"
            loaded, stored = begin + each.loaded, begin + each.stored
            loads.append(lines[loaded].replace(f"{each.result} =", f"{initial} =", 1))
            phis.append(f"  {kept} = phi {vector} [ {initial}, %{before} ], [ {each.value}, %{name} ]")
            stores.append(lines[stored])
            lines[loaded] = f"  {each.result} = {each.in_register(kept)}"
            removed.add(stored)
        # The edges to the loop and behind it have blocks of their own: others may lead from and to the same blocks.
        branch = blocks[entry][1] - 1
        lines[branch] = _renamed(lines[branch], name, before)
        lines[end - 1] = _renamed(lines[end - 1], exit_, behind)
        for block, old, new in ((blocks[name], entry, before), (blocks[exit_], name, behind)):
            for index in range(block[0], _behind_phis(lines, block)):
                lines[index] = _renamed(lines[index], old, new)
        edge = ["", f"{behind}:  ; preds = %{name}", *stores, f"  br label %{exit_}"]
        lines[end - 1] = "\n".join([lines[end - 1], *edge])
        edge = [f"{before}:  ; preds = %{entry}", *loads, f"  br label %{name}", ""]
        lines[begin] = "\n".join([*edge, lines[begin], *phis])
    return "\n".join(line for index, line in enumerate(lines) if index not in removed)


def _renamed(line: str, old: str, new: str) -> str:
    return re.sub(rf"%{re.escape(old)}(?![-\w.$])", f"%{new}", line)


def _arrays(lines: list[str]) -> dict[str, str]:
    """The array that each pointer leads into."""
    arrays = {name: name for name in _ARRAY.findall("\n".join(lines))}
    for line in lines:
        found = _PLACE.match(f"{line}\n") if " = getelementptr " in line else None
        if found and found["base"] in arrays:
            arrays[found["result"]] = arrays[found["base"]]
    # What becomes of an address otherwise is not followed.
    unknown = {
        arrays[name] for line in lines if _ADDRESS.search(line) for name in _NAMES.findall(line) if name in arrays
    }
    return {name: array for name, array in arrays.items() if array not in unknown}


def _blocks(lines: list[str]) -> dict[str, tuple[int, int]]:
    """The lines of each block with a label: that of the label, and the one behind its last instruction."""
    blocks: dict[str, tuple[int, int]] = {}
    name, begin = "", 0
    for index, line in enumerate(lines):
        if line and (found := _LABEL.match(line)):
            name, begin = found["name"], index
        elif (not line.strip() or line == "}") and name:
            blocks[name] = (begin, index)
            name = ""
    return blocks


def _loop(lines: list[str], blocks: dict[str, tuple[int, int]], name: str) -> tuple[str, str] | None:
    """The blocks before and behind the loop that block `name` is alone, if nothing else leads from the one before."""
    begin, end = blocks[name]
    branch, label = _BRANCH.match(lines[end - 1]), _LABEL.match(lines[begin])
    if not branch or not label or not label["before"]:
        return None
    sources, targets = _NAMES.findall(label["before"]), [branch["true"], branch["false"]]
    this = f"%{name}"
    if this not in targets or this not in sources or len(sources) != 2 or targets[0] == targets[1]:
        return None
    entry = next(each for each in sources if each != this)[1:]
    exit_ = next(each for each in targets if each != this)[1:]
    if entry not in blocks or exit_ not in blocks:
        return None
    if not lines[blocks[entry][1] - 1].lstrip().startswith("br "):
        return None
    return entry, exit_


def _accumulators(block: list[str], arrays: dict[str, str]) -> list[_Accumulator]:
    """What a block loads once, stores afterwards, and touches in no other way."""
    touched: dict[str, list[int]] = {}
    for index, line in enumerate(block):
        for array in {arrays[name] for name in _NAMES.findall(line) if name in arrays}:
            touched.setdefault(array, []).append(index)
    found: list[_Accumulator] = []
    for indices in touched.values():
        if len(indices) != 2:
            continue
        first, last = (block[index] for index in indices)
        loaded, stored = _LOAD.match(first), _STORE.match(last)
        if loaded and stored and (loaded["place"], loaded["vector"]) == (stored["place"], stored["vector"]):
            found.append(_Accumulator(indices[0], indices[1], loaded["result"], loaded["vector"], stored["value"]))
        some, kept = _MASKED_LOAD.match(first), _MASKED_STORE.match(last)
        if some and kept and all(some[each] == kept[each] for each in ("place", "vector", "mask")):
            mask = some["mask"].split()[-1]
            if not any(line.lstrip().startswith(f"{mask} =") for line in block):
                vector, rest = some["vector"], some["rest"]
                found.append(
                    _Accumulator(indices[0], indices[1], some["result"], vector, kept["value"], some["mask"], rest)
                )
    return found


def _behind_phis(lines: list[str], block: tuple[int, int]) -> int:
    index = block[0] + 1
    while " = phi " in lines[index]:
        index += 1
    return index
