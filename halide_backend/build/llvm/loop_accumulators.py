"""A vector on the stack that every iteration of a loop loads and stores is kept in a register from one to the next.

Halide's own LLVM passes do that for whole vectors; of the last one of a row, whose stores become whole only afterwards
(`partial_vectors.py`), they leave each in memory. Where the array is also read with a computed index, as by a loop over
all vectors of the row, SROA cannot dissolve it either. An iteration then waits for the store of the one before it: on a
Zen 5 a sum over 91 rows of 113 floats took half of its time for that.
"""

from __future__ import annotations

import re

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

_ALLOCA = re.compile(rf"^ *({NAME}) = alloca \[", re.MULTILINE)
_LABEL = re.compile(r'^(?P<name>[-\w.$]+|"[^"]*"):(?: *; preds = (?P<before>.*))?$')
_PLACE = re.compile(rf"^ *(?P<result>{NAME}) = getelementptr .*?, ptr (?P<base>{NAME})[,\n]")
_LOADED = re.compile(
    rf"^ *(?P<result>{NAME}) = load (?P<vector><\d+ x \w+>), ptr (?P<place>{NAME}), align (?P<align>\d+)"
)
_STORED = re.compile(rf"^ *store (?P<vector><\d+ x \w+>) (?P<value>{NAME}), ptr (?P<place>{NAME}), align \d+")
_BRANCH = re.compile(rf"^ *br i1 {NAME}, label (?P<true>{NAME}), label (?P<false>{NAME})")
_NAMES = re.compile(NAME)


def with_accumulators_in_registers(ir: str) -> str:
    """LLVM IR that computes the same and keeps vectors on the stack in registers while a loop of one block runs.

    What the loop does not touch otherwise is loaded before it and stored behind it.
    """
    return FUNCTION.sub(_in_function, ir)


def _in_function(function: re.Match[str]) -> str:
    lines = function[0].split("\n")
    arrays = _arrays(lines)
    if not arrays:
        return function[0]
    blocks = _blocks(lines)
    number = 0
    before: dict[int, list[str]] = {}
    replaced: dict[int, str | None] = {}
    for name, (begin, end) in blocks.items():
        loop = _loop(lines, blocks, name)
        if not loop:
            continue
        entry, exit_ = loop
        for place, (loaded, stored) in _accumulators(lines[begin:end], arrays).items():
            number += 1
            first = _LOADED.match(lines[begin + loaded])
            last = _STORED.match(lines[begin + stored])
            assert first and last
            vector, kept, initial = first["vector"], f"%accumulator.{number}", f"%accumulator.{number}.first"
            at = f"ptr {place}, align {first['align']}"
            before.setdefault(blocks[entry][1] - 1, []).append(f"  {initial} = load {vector}, {at}")
            before.setdefault(begin + 1, []).append(
                f"  {kept} = phi {vector} [ {initial}, %{entry} ], [ {last['value']}, %{name} ]"
            )
            before.setdefault(_behind_phis(lines, blocks[exit_]), []).append(f"  store {vector} {last['value']}, {at}")
            replaced[begin + loaded] = f"  {first['result']} = bitcast {vector} {kept} to {vector}"
            replaced[begin + stored] = None
    written: list[str] = []
    for index, line in enumerate(lines):
        written += before.get(index, [])
        kept_line = replaced.get(index, line)
        if kept_line is not None:
            written.append(kept_line)
    return "\n".join(written)


def _arrays(lines: list[str]) -> dict[str, str]:
    """The array on the stack that each pointer leads into."""
    arrays = {name: name for name in _ALLOCA.findall("\n".join(lines))}
    for line in lines:
        found = _PLACE.match(f"{line}\n")
        if found and found["base"] in arrays:
            arrays[found["result"]] = arrays[found["base"]]
    # What becomes of an address otherwise is not followed.
    unknown = {
        arrays[name]
        for line in lines
        if re.search(r" = (?:phi|select|ptrtoint|bitcast|addrspacecast) |store ptr ", line)
        for name in _NAMES.findall(line)
        if name in arrays
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
    """The blocks before and behind the loop that block `name` is alone, if there is one of each."""
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
    behind = _LABEL.match(lines[blocks[exit_][0]]) if exit_ in blocks else None
    if entry not in blocks or not behind or _NAMES.findall(behind["before"] or "") != [this]:
        return None
    if not lines[blocks[entry][1] - 1].lstrip().startswith("br "):
        return None
    return entry, exit_


def _accumulators(block: list[str], arrays: dict[str, str]) -> dict[str, tuple[int, int]]:
    """The places that a block loads once, stores afterwards, and touches in no other way."""
    touched: dict[str, list[int]] = {}
    for index, line in enumerate(block):
        for array in {arrays[name] for name in _NAMES.findall(line) if name in arrays}:
            touched.setdefault(array, []).append(index)
    found: dict[str, tuple[int, int]] = {}
    for indices in touched.values():
        if len(indices) != 2:
            continue
        loaded, stored = _LOADED.match(block[indices[0]]), _STORED.match(block[indices[1]])
        if loaded and stored and (loaded["place"], loaded["vector"]) == (stored["place"], stored["vector"]):
            found[loaded["place"]] = (indices[0], indices[1])
    return found


def _behind_phis(lines: list[str], block: tuple[int, int]) -> int:
    index = block[0] + 1
    while " = phi " in lines[index]:
        index += 1
    return index
