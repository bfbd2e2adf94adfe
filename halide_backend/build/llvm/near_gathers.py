"""Vectors whose elements lie close together in memory are loaded at once and put in order in a register.

A vector with an index that is no plain step, as at the edge of a padded row or in an image that is enlarged, Halide
loads element by element: four instructions for each. Mostly those elements lie within a vector of memory, between the
first and the last of them. Where the index is one number plus constants, that is known; otherwise it is found out when
the kernel runs: once for all vectors whose indices differ by one number, as those of several rows, and outside of the
loop if that is all that changes there. Two runs of adjacent elements, however far apart, are two loads with masks
(`two_runs.py`). If all are near, two halves of a vector are loaded, from the first element on and up to the last one,
and their elements permuted. If not, the ends may be other elements, as at the edge of a reflected row,
whose indices fall and rise: the least and the greatest index are then looked for. If these are far from each other, the
elements are loaded one by one, as before. Every value is the same, and nothing is read but what lies between two
elements that are loaded anyway.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from halide_backend.build.llvm.gathers import DEFINITION, LABEL, Gather, gathers, may_gather, widened
from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME
from halide_backend.build.llvm.two_runs import declaration, form_of, load_runs, runs
from halide_backend.build.target import Target

_SOURCE = re.compile(r'%("[^"]*"|[-\w.$]+) \]')
_NAME = re.compile(NAME)
_NUMBERED = re.compile(r"%(\d+)\b")
_DECLARED = re.compile(r"^declare [^@\n]*@([\w.]+)\(", re.MULTILINE)
_DATA = re.compile(r"(?:load|(?:tail )?call) <\d+ x i\d+>(?:,| @llvm\.masked\.load\.).*!tbaa")
_NO_INDEX = re.compile(r"phi |fpto[su]i |alloca ")
_NUMBERED_LABEL = re.compile(r"^(\d+):", re.MULTILINE)


class _Permutation(NamedTuple):
    """What permutes elements of one vector, and of two, if anything; and the bytes of vectors of processors with it."""

    one: str
    two: str
    vector_bytes: int


#: By the bits of an element and the elements of a vector.
_PERMUTATIONS = {
    (16, 16): _Permutation("@llvm.x86.avx512.permvar.hi.256", "@llvm.x86.avx512.vpermi2var.hi.256", 64),
    (16, 32): _Permutation("@llvm.x86.avx512.permvar.hi.512", "@llvm.x86.avx512.vpermi2var.hi.512", 64),
    (32, 8): _Permutation("@llvm.x86.avx2.permd", "", 32),
    (32, 16): _Permutation("@llvm.x86.avx512.permvar.si.512", "@llvm.x86.avx512.vpermi2var.d.512", 64),
    (64, 8): _Permutation("@llvm.x86.avx512.permvar.di.512", "@llvm.x86.avx512.vpermi2var.q.512", 64),
}

#: Fewer elements a load are no vector.
_FEWEST = 4


class _Order(NamedTuple):
    """How far the elements of a gather are from each other, or of several that are alike: found out once, behind line
    `place`, where the indices `distances` are known. If it is `shared`, the permutations are, too. What is loaded ends
    with the first and the last element if it is `rising`, otherwise with the least and the greatest index.
    """

    name: str
    place: int
    distances: str
    lanes: int
    bits: int
    index_type: str
    shared: bool
    rising: bool = True

    @property
    def forms(self) -> list[tuple[str, int]]:
        """The names of what can be loaded, and elements of a piece: two halves of a vector, two whole ones, or two
        quarters."""
        two, quarter = _PERMUTATIONS[self.bits, self.lanes].two, self.lanes // 4
        quarters = [("quarter", quarter)] if quarter > 1 else []
        return [("half", self.lanes // 2), *([("whole", self.lanes)] if two else []), *quarters]


def with_near_gathers(ir: str, target: Target) -> str:
    """LLVM IR that computes the same and loads vectors with elements close together at once, where `target` can."""
    if "insertelement" not in ir:
        return ir
    declarations: set[str] = set()
    declared, masked = set(_DECLARED.findall(ir)), form_of(ir)
    number = 0

    def in_function(function: re.Match[str]) -> str:
        nonlocal number
        if not may_gather(function[0]):
            return function[0]
        # Operations are left out, and what has a number for a name has to be in order.
        lines = _NUMBERED_LABEL.sub(r"v\1:", _NUMBERED.sub(r"%v\1", function[0])).split("\n")
        found = dict(gathers(lines))
        orders = _orders(lines, {place: each for place, each in found.items() if _is_permuted(each, target)}, number)
        written: list[str] = []
        parts: set[str] = set()
        ends: dict[str, str] = {}
        label = ""
        for place, line in enumerate(lines):
            if match := LABEL.match(line):
                label = match["name"]
            name, gather = f"near{number}", found.get(place)
            text = None
            if gather and gather.constants:
                text = _known(gather, name)
            elif gather and place in orders:
                text = _found(gather, name, orders[place], masked)
                declarations.update(_declarations(gather, masked))
                ends[label] = f"{name}.rest"
            if gather and text is not None:
                number += 1
                parts |= gather.parts
                written += text
            else:
                written.append(line)
            for order in dict.fromkeys(orders.values()):
                if order.place == place:
                    written += _between(order)
        if not parts:
            return function[0]
        return "\n".join(_without_unused([_from_ends(line, ends) for line in written], parts))

    rewritten = FUNCTION.sub(in_function, ir)
    # Halide declares what it calls itself, with attributes.
    missing = sorted(each for each in declarations if not declared.intersection(_DECLARED.findall(each)))
    return "\n".join([rewritten, *missing, ""]) if missing else rewritten


def _is_permuted(gather: Gather, target: Target) -> bool:
    """Whether `target` has an instruction that permutes such vectors."""
    permutation = _PERMUTATIONS.get((gather.bits, gather.lanes))
    x86 = target.architecture == "x86-64"
    known = bool(gather.constants)
    return x86 and not known and permutation is not None and target.vector_bytes >= permutation.vector_bytes


def _orders(lines: list[str], permuted: Mapping[int, Gather], number: int) -> dict[int, _Order]:
    """The order of each gather `permuted`, by its place among `lines`; names begin with `number`."""
    definitions: dict[str, int] = {}
    blocks: list[int] = []
    for place, line in enumerate(lines):
        blocks.append(place if LABEL.match(line) or not blocks else blocks[-1])
        if found := DEFINITION.match(line):
            definitions[found["result"]] = place
    alike: dict[tuple[str, int, int], list[int]] = {}
    for place, gather in permuted.items():
        if gather.distances in definitions and not _is_data(gather.distances, lines, definitions):
            alike.setdefault((gather.distances, gather.lanes, gather.bits), []).append(place)
    orders: dict[int, _Order] = {}
    for (distances, lanes, bits), places in alike.items():
        gather, place = permuted[places[0]], definitions[distances]
        shared = len(places) > 1 or blocks[places[0]] != blocks[place]
        while " = phi " in lines[place + 1]:
            place += 1
        order = _Order(f"near{number}", place, distances, lanes, bits, gather.index_type, shared)
        orders |= dict.fromkeys(places, order)
        number += 1
    return orders


def _is_data(indices: str, lines: list[str], definitions: Mapping[str, int]) -> bool:
    """Whether integers that a kernel loads say which elements these are: those may lie anywhere, and mostly do."""
    seen: set[str] = set()
    stack = [indices]
    while stack:
        name = stack.pop()
        if name in seen or name not in definitions:
            continue
        seen.add(name)
        value = lines[definitions[name]].partition(" = ")[2]
        if _DATA.match(value):
            return True
        if not _NO_INDEX.match(value):
            stack += _NAME.findall(value)
    return False


def _known(gather: Gather, name: str) -> list[str] | None:
    """The lines that load a gather whose elements are at known distances from each other; None if they are far."""
    first, last = min(gather.constants), max(gather.constants)
    span = last - first
    half = min(gather.lanes, 1 << ((span + 1).bit_length() - 1))
    if span >= 2 * half or half < _FEWEST:
        return None
    n, index = f"%{name}", gather.index_type
    lane = gather.constants.index(first)
    # An element that both halves have is taken from the first one.
    order = (c - first if c - first < half else c - last + 2 * half - 1 for c in gather.constants)
    mask = ", ".join(f"i32 {source}" for source in order)
    piece = f"<{half} x {gather.type}>"
    return [
        f"  {n}.first = extractelement <{gather.lanes} x {index}> {gather.indices}, i64 {lane}",
        *_loads(gather, n, f"{n}.first", str(span - half + 1), half),
        f"  {gather.result} = shufflevector {piece} {n}.low, {piece} {n}.high, <{gather.lanes} x i32> <{mask}>",
    ]


def _loads(gather: Gather, name: str, first: str, further: str, piece: int) -> list[str]:
    """The lines that load a piece of so many elements from index `first` on, and another one `further` on."""
    index, type_ = gather.index_type, gather.type
    return [
        f"  {name}.first64 = {widened(first, index)}",
        f"  {name}.p = getelementptr inbounds {type_}, ptr {gather.base}, i64 {name}.first64",
        f"  {name}.q = getelementptr inbounds {type_}, ptr {name}.p, i64 {further}",
        f"  {name}.low = load <{piece} x {type_}>, ptr {name}.p, {gather.notes}",
        f"  {name}.high = load <{piece} x {type_}>, ptr {name}.q, {gather.notes}",
    ]


def _between(order: _Order) -> list[str]:
    """The lines that find out which pieces hold all elements, and if they are shared, where there each of them is."""
    lanes, index, n = order.lanes, order.index_type, f"%{order.name}"
    indices = f"<{lanes} x {index}>"
    if order.rising:
        begin, last = (f"extractelement {indices} {order.distances}, i64 {lane}" for lane in (0, lanes - 1))
    else:
        begin, last = (f"call {index} {_end(end, order)}({indices} {order.distances})" for end in ("min", "max"))
    found = [
        f"  {n}.begin = {begin}",
        f"  {n}.last = {last}",
        f"  {n}.span = sub {index} {n}.last, {n}.begin",
        *_splat(f"{n}.begins", f"{n}.begin", lanes, index),
        *_splat(f"{n}.spans", f"{n}.span", lanes, index),
        f"  {n}.from = sub {indices} {order.distances}, {n}.begins",
        f"  {n}.outside = icmp ugt {indices} {n}.from, {n}.spans",
        f"  {n}.bits = bitcast <{lanes} x i1> {n}.outside to i{lanes}",
        f"  {n}.between = icmp eq i{lanes} {n}.bits, 0",
        f"  {n}.rises = icmp sge {index} {n}.span, 0",
        f"  {n}.known = and i1 {n}.between, {n}.rises",
        *(runs(order.name, order.lanes, order.index_type) if order.rising else []),
    ]
    for form, piece in order.forms:
        f = f"{n}.{form}"
        found += [
            f"  {f}.further = sub {index} {n}.span, {piece - 1}",
            f"  {f}.further64 = {_resize(int(index[1:]), 64)} {index} {f}.further to i64",
            f"  {f}.fits = icmp ule {index} {f}.further, {piece}",
            f"  {f}.near = and i1 {n}.between, {f}.fits",
            *(_permutation(order, form, piece) if order.shared else []),
        ]
    return found


def _permutation(order: _Order, form: str, piece: int) -> list[str]:
    """The lines that compute which element of two pieces each element is."""
    lanes, index, bits = order.lanes, order.index_type, order.bits
    n, f, indices = f"%{order.name}", f"%{order.name}.{form}", f"<{order.lanes} x {order.index_type}>"
    return [
        # What is behind the first piece is in the second one, which begins `further` on.
        f"  {f}.less = sub {index} {piece}, {f}.further",
        *_splat(f"{f}.lesses", f"{f}.less", lanes, index),
        f"  {f}.second = icmp uge {indices} {n}.from, splat ({index} {piece})",
        f"  {f}.moved = add {indices} {n}.from, {f}.lesses",
        f"  {f}.lane = select <{lanes} x i1> {f}.second, {indices} {f}.moved, {indices} {n}.from",
        f"  {f}.order = {_resize(int(index[1:]), bits)} {indices} {f}.lane to <{lanes} x i{bits}>",
    ]


def _found(gather: Gather, name: str, order: _Order, masked: str) -> list[str]:
    """The lines that load a gather with elements as near as `order` says: the blocks `name`."""
    n, last = f"%{name}", gather.lanes - 1
    lines: list[str] = []
    sources: list[str] = []
    falling = order._replace(name=f"{name}.any", shared=False, rising=False)
    for attempt in (order, falling):
        prefix = name if attempt is order else falling.name
        if attempt is falling:
            # Between the first and the last element, but too far from each other, they are no nearer in another order.
            condition = f"i1 %{order.name}.known, label {n}.far, label %{falling.name}"
            lines += [f"  br {condition}", "", f"{falling.name}:", *_between(falling)]
        first = f"%{attempt.name}.begin"
        for number, (operator, one) in enumerate(gather.shifts):
            lines.append(f"  %{prefix}.shift{number} = {operator} {gather.index_type} {first}, {one}")
            first = f"%{prefix}.shift{number}"
        if attempt is order:
            block = f"{name}.two"
            loads = load_runs(gather, block, order.name, first, masked)
            lines += [*loads, f"  br label {n}.rest", "", f"{block}.else:"]
            sources.append(f"[ %{block}.value, %{block} ]")
        for form, piece in attempt.forms:
            block = f"{prefix}.{form}"
            lines += [
                f"  br i1 %{attempt.name}.{form}.near, label %{block}, label %{block}.else",
                "",
                f"{block}:",
                *([] if attempt.shared else _permutation(attempt, form, piece)),
                *_pieces(gather, block, first, piece, f"%{attempt.name}.{form}"),
                f"  br label {n}.rest",
                "",
                f"{block}.else:",
            ]
            sources.append(f"[ %{block}.value, %{block} ]")
    sources.append(f"[ {n}.v{last}, {n}.far ]")
    return [
        *lines,
        f"  br label {n}.far",
        "",
        f"{name}.far:",
        *_one_by_one(gather, name),
        f"  br label {n}.rest",
        "",
        f"{name}.rest:",
        f"  {gather.result} = phi <{gather.lanes} x {gather.type}> {', '.join(sources)}",
    ]


def _pieces(gather: Gather, block: str, first: str, piece: int, order: str) -> list[str]:
    """The lines that load two pieces of so many elements from index `first` on, and put the gather's in order."""
    lanes, type_ = gather.lanes, gather.type
    f, bits = f"%{block}", gather.bits
    words, permutation = f"<{lanes} x i{bits}>", _PERMUTATIONS[bits, lanes]
    low, high = f"<{piece} x {type_}> {f}.low", f"<{piece} x {type_}> {f}.high"
    if piece < lanes:
        side_by_side = ", ".join(f"i32 {lane}" if lane < 2 * piece else "i32 poison" for lane in range(lanes))
        operands = [
            f"  {f}.both = shufflevector {low}, {high}, <{lanes} x i32> <{side_by_side}>",
            f"  {f}.words = bitcast <{lanes} x {type_}> {f}.both to {words}",
        ]
        call = f"{permutation.one}({words} {f}.words, {words} {order}.order)"
    else:
        operands = [f"  {f}.lows = bitcast {low} to {words}", f"  {f}.highs = bitcast {high} to {words}"]
        call = f"{permutation.two}({words} {f}.lows, {words} {order}.order, {words} {f}.highs)"
    return [
        *_loads(gather, f, first, f"{order}.further64", piece),
        *operands,
        f"  {f}.permuted = call {words} {call}",
        f"  {f}.value = bitcast {words} {f}.permuted to <{lanes} x {type_}>",
    ]


def _resize(bits: int, wanted: int) -> str:
    return "trunc" if bits > wanted else "zext" if bits < wanted else "bitcast"


def _one_by_one(gather: Gather, name: str) -> Iterator[str]:
    n, vector = f"%{name}", f"<{gather.lanes} x {gather.type}>"
    for lane in range(gather.lanes):
        before = f"{n}.v{lane - 1}" if lane else "poison"
        yield f"  {n}.i{lane} = extractelement <{gather.lanes} x {gather.index_type}> {gather.indices}, i64 {lane}"
        if gather.index_type == "i32":
            yield f"  {n}.w{lane} = sext i32 {n}.i{lane} to i64"
        offset = f"{n}.w{lane}" if gather.index_type == "i32" else f"{n}.i{lane}"
        yield f"  {n}.p{lane} = getelementptr inbounds {gather.type}, ptr {gather.base}, i64 {offset}"
        yield f"  {n}.e{lane} = load {gather.type}, ptr {n}.p{lane}, {gather.notes}"
        yield f"  {n}.v{lane} = insertelement {vector} {before}, {gather.type} {n}.e{lane}, i64 {lane}"


def _splat(result: str, value: str, lanes: int, type_: str) -> list[str]:
    vector = f"<{lanes} x {type_}>"
    return [
        f"  {result}.0 = insertelement {vector} poison, {type_} {value}, i64 0",
        f"  {result} = shufflevector {vector} {result}.0, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _declarations(gather: Gather, form: str) -> list[str]:
    words, permutation = f"<{gather.lanes} x i{gather.bits}>", _PERMUTATIONS[gather.bits, gather.lanes]
    two = [f"declare {words} {permutation.two}({words}, {words}, {words})"] if permutation.two else []
    index, vector = gather.index_type, f"<{gather.lanes} x {gather.index_type}>"
    ends = [f"declare {index} {_end(end, gather)}({vector})" for end in ("min", "max")]
    return [f"declare {words} {permutation.one}({words}, {words})", *two, *ends, declaration(gather, form)]


def _end(end: str, of: Gather | _Order) -> str:
    """LLVM's function for the least, or the greatest, of the indices."""
    return f"@llvm.vector.reduce.s{end}.v{of.lanes}{of.index_type}"


def _from_ends(line: str, ends: Mapping[str, str]) -> str:
    """A line to which control comes from the last part of each block that was cut."""
    if " = phi " not in line or not ends:
        return line
    return _SOURCE.sub(lambda source: f"%{ends.get(source[1], source[1])} ]", line)


def _without_unused(lines: list[str], parts: set[str]) -> list[str]:
    """Lines without those of the values `parts` that nothing uses any more."""
    uses = Counter(name for line in lines for name in set(_NAME.findall(line.partition(" = ")[2] or line)))
    kept: list[str] = []
    for line in reversed(lines):
        found = DEFINITION.match(line)
        if found and found["result"] in parts and not uses[found["result"]]:
            uses.subtract(set(_NAME.findall(found["value"])))
        else:
            kept.append(line)
    return kept[::-1]
