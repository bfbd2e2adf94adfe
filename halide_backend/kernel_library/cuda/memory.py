"""Tensors as a CUDA kernel sees them: elements, or 32-bit words that hold one or several of them.

Halide turns exactly one kind of access into a 128-bit instruction: four adjacent lanes of a 32-bit type at an index
that is provably a multiple of four. So tensors of every other element type are read and written as words, and a
thread's elements are taken out of them in registers. Two words would be two instructions: they are one number of 64
bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.arguments import Input
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.operations import load, stored
from halide_backend.kernel_library.element_types import STORAGE, logical_bits
from halide_backend.kernel_library.memory import by_multiplication, size, target

__all__ = [
    "STORAGE",
    "added",
    "checked",
    "element",
    "half",
    "of_neighbour",
    "pair",
    "pairs",
    "partial",
    "predicated",
    "quotient",
    "remainder",
    "size",
    "source",
    "target",
    "whichever",
    "word",
    "words",
]


def quotient(whole: hl.Expr, *parts: hl.Expr | int) -> hl.Expr:
    """`whole`, an int32 in [0, 2**31), divided by one after another of the positive `parts`, which are the same for all
    of a call: the factor of a product each thread would compute, by a division.

    As the CPU's, but by the high word of a product of 32-bit numbers, one instruction in place of four.
    """
    for part in parts:
        if isinstance(part, int):
            whole = whole // part
            continue
        shift, factor = by_multiplication(part)
        twice = hl.cast(hl.UInt(32), whole) << hl.u32(1)
        product = hl.cast(hl.UInt(64), twice) * hl.cast(hl.UInt(64), hl.cast(hl.UInt(32), factor))
        high = hl.cast(hl.UInt(32), product >> hl.u64(32)) >> hl.cast(hl.UInt(32), shift - hl.u64(31))
        whole = hl.unsafe_promise_clamped(hl.cast(hl.Int(32), high), 0, whole // part)
    return whole


def remainder(whole: hl.Expr, *parts: hl.Expr | int) -> hl.Expr:
    """The remainder of the `quotient`."""
    part = math.prod(parts[1:], start=parts[0])
    return hl.unsafe_promise_clamped(whole - quotient(whole, *parts) * part, 0, part - 1)


def source(argument: Input) -> hl.ImageParam:
    """The flat input, element by element."""
    return _from_zero(hl.ImageParam(STORAGE[argument.dtype], 1, argument.name))


def words(argument: Input) -> hl.ImageParam:
    """The flat input as 32-bit words; its data pointer is a multiple of 16 bytes."""
    return _from_zero(hl.ImageParam(hl.UInt(32), 1, argument.name))


def pairs(argument: Input) -> hl.ImageParam:
    """The flat input as numbers of 64 bits, each of which is two words."""
    return _from_zero(hl.ImageParam(hl.UInt(64), 1, argument.name))


def half(pair: hl.Expr, word: hl.Expr) -> hl.Expr:
    """Word 0 or 1 of a number of 64 bits."""
    return intrinsics.word(hl.cast(hl.UInt(32), pair >> hl.cast(hl.UInt(64), word * 32)))


def pair(low: hl.Expr, high: hl.Expr) -> hl.Expr:
    """The number of 64 bits of two words."""
    low, high = (hl.cast(hl.UInt(64), intrinsics.word(word)) for word in (low, high))
    return low | (high << hl.u64(32))


def of_neighbour(word: hl.Expr) -> hl.Expr:
    """The `word` of the lane beside this one, of every two; all lanes have to ask."""
    return intrinsics.across(word, 1)


def whichever(mine: hl.Expr, own: hl.Expr, other: hl.Expr) -> hl.Expr:
    """The word `own` where `mine` is true, else that of another lane, which all lanes ask for."""
    return intrinsics.beside(hl.select(mine, own, other), other)


def _from_zero(parameter: hl.ImageParam) -> hl.ImageParam:
    # Without it no index is a provable multiple of anything.
    parameter.dim(0).set_min(0)
    return parameter


def element(dtype: str, func: hl.Func, number: hl.Expr, rest: Sequence[hl.Expr]) -> hl.Expr:
    """Element `number` of the words `func[..., *rest]`, as a value of torch dtype `dtype`.

    `number` becomes a constant where its loop is unrolled, and with it every shift.
    """
    bits = logical_bits(dtype)
    storage = STORAGE[dtype]
    at = number if isinstance(number, hl.Expr) else hl.Expr(number)
    if bits == 64:
        low, high = (hl.cast(hl.UInt(64), _at(func, at * 2 + k, rest)) for k in (0, 1))
        return load(dtype, _reinterpreted(storage, low | (high << hl.u64(32))))
    per_word = 32 // bits
    whole = _at(func, at // per_word, rest)
    if per_word == 1:
        return load(dtype, _reinterpreted(storage, whole))
    part = hl.cast(hl.UInt(bits), whole >> hl.cast(hl.UInt(32), (at % per_word) * bits))
    return load(dtype, _reinterpreted(storage, part))


def word(dtype: str, func: hl.Func, number: hl.Expr, rest: Sequence[hl.Expr]) -> hl.Expr:
    """Word `number` of the memory that holds the values `func[..., *rest]` of torch dtype `dtype`."""
    bits = logical_bits(dtype)
    at = number if isinstance(number, hl.Expr) else hl.Expr(number)
    if bits == 64:
        bits64 = hl.reinterpret(hl.UInt(64), _at(func, at // 2, rest))
        return hl.cast(hl.UInt(32), bits64 >> hl.cast(hl.UInt(64), (at % 2) * 32))
    per_word = 32 // bits
    values = [_at(func, at * per_word + k, rest) for k in range(per_word)]
    if dtype == "bfloat16":
        return intrinsics.bfloat16_pair(values[0], values[1])
    if dtype == "float16":
        return intrinsics.float16_pair(values[0], values[1])
    parts = [hl.reinterpret(hl.UInt(bits), stored(dtype, value)) for value in values]
    joined = hl.cast(hl.UInt(32), parts[0])
    for k, part in enumerate(parts[1:], start=1):
        joined = joined | (hl.cast(hl.UInt(32), part) << hl.u32(k * bits))
    return joined


def added(dtype: str, value: hl.Expr, adjacent: int, step: hl.Expr, again: int = 0) -> hl.Expr:
    """What a store has to write in order to add `value` to the element of torch dtype `dtype` that is there.

    Each thread adds to so many `adjacent` elements, an aligned vector if they are several; `step` as of
    `intrinsics.atomic_addend`. What it adds `again` steps later often goes to the same place, if that is not 0.
    """
    bits = logical_bits(dtype)
    letters = "bf" if dtype == "bfloat16" else "f" if dtype.startswith("float") else "u"
    kind = f"{letters}{bits}{f'_v{adjacent}' * (adjacent > 1)}{f'_again{again}' * (again > 0)}"
    element = stored(dtype, value)
    if bits >= 32:
        return intrinsics.atomic_addend(element, kind, step)
    word = hl.cast(hl.UInt(32), _reinterpreted(hl.UInt(bits), element))
    return _reinterpreted(STORAGE[dtype], hl.cast(hl.UInt(bits), intrinsics.atomic_addend(word, kind, step)))


def predicated(value: hl.Expr, whether: hl.Expr) -> hl.Expr:
    """What a store has to write so that it leaves memory as it is where `whether` is false."""
    bits, kind = value.type().bits(), value.type()
    if bits >= 32:
        word = hl.UInt(bits)
        return _reinterpreted(kind, intrinsics.predicated(_reinterpreted(word, value), whether))
    narrow = value if bits == 1 else _reinterpreted(hl.UInt(bits), value)
    word32 = intrinsics.predicated(hl.cast(hl.UInt(32), narrow), whether)
    return word32 != hl.u32(0) if bits == 1 else _reinterpreted(kind, hl.cast(hl.UInt(bits), word32))


def partial(word: hl.Expr, count: hl.Expr, bits: int) -> hl.Expr:
    """What a store of words has to write so that only its first `count` elements of `bits` bits change memory."""
    return intrinsics.partial(word, count, bits)


def checked(value: hl.Expr, bad: hl.Expr) -> hl.Expr:
    """`value`, after ending the kernel with an error where `bad` is true."""
    bits = value.type().bits()
    if bits == 64:
        whole = hl.reinterpret(hl.UInt(64), value)
        low = hl.cast(hl.UInt(64), intrinsics.trap_if(hl.cast(hl.UInt(32), whole), bad))
        return hl.reinterpret(value.type(), (whole & ~hl.u64(0xFFFFFFFF)) | low)
    if bits == 32:
        return hl.reinterpret(value.type(), intrinsics.trap_if(hl.reinterpret(hl.UInt(32), value), bad))
    if bits == 1:
        return intrinsics.trap_if(hl.cast(hl.UInt(32), value), bad) != hl.u32(0)
    narrow = hl.reinterpret(hl.UInt(bits), value)
    return hl.reinterpret(value.type(), hl.cast(hl.UInt(bits), intrinsics.trap_if(hl.cast(hl.UInt(32), narrow), bad)))


def _at(func: hl.Func, first: hl.Expr, rest: Sequence[hl.Expr]) -> hl.Expr:
    arguments = (first, *rest)
    return hl.Expr(func[arguments])


def _reinterpreted(kind: hl.Type, value: hl.Expr) -> hl.Expr:
    return value if value.type() == kind else hl.reinterpret(kind, value)
