"""Tensors as Halide sees them: flat inputs, outputs with the strides of the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.arguments import Input, Size
from halide_backend.kernel_library.element_types import STORAGE


def source(argument: Input) -> hl.ImageParam:
    """The flat input: every load computes its own element index, so no bounds need to be inferred."""
    return hl.ImageParam(STORAGE[argument.dtype], 1, argument.name)


def table(argument: Input) -> hl.ImageParam:
    """The flat input whose elements are looked up at indices that data hold: its first coordinate, 0, would be
    subtracted from each of them. Of other loads Halide may find that the last steps of a loop, which are masked, would
    begin before it, and refuse the kernel."""
    flat = source(argument)
    flat.dim(0).set_min(0)
    return flat


def size(argument: Size) -> hl.Param:
    """A number that is known only when the kernel is called."""
    return hl.Param(hl.Int(argument.bits), argument.name)


def target(
    func: hl.Func,
    variables: Sequence[hl.Var],
    dims: Sequence[tuple[hl.Expr | int, hl.Expr | int]],
    element: int = 0,
) -> None:
    """Give output `func`, or the `element` of a Tuple, the (extent, stride) pairs of its tensor, in elements, innermost
    dimension first.

    With these constraints the kernel never looks at the sizes in the buffer that it is called with.
    """
    buffer = func.output_buffers()[element]
    for dimension, ((extent, stride), variable) in enumerate(zip(dims, variables)):
        buffer.dim(dimension).set_stride(stride)
        if element == 0:
            # Halide gives all elements the bounds of the first.
            func.bound(variable, 0, extent)
            buffer.dim(dimension).set_bounds(0, extent)


def quotient(whole: hl.Expr, *parts: hl.Expr | int) -> hl.Expr:
    """`whole`, an int32 in [0, 2**31), divided by the product of the positive `parts`, which are the same for all of a
    call.

    m = ceil(2**(31 + s) / part) is computed once, where 2**s is the least power of two that is no less than `part`:
    m*part exceeds 2**(31 + s) by less than 2**s, so that whole*m / 2**(31 + s) rounds down to the quotient (Granlund
    and Montgomery, "Division by Invariant Integers using Multiplication", 1994). A division takes some twenty
    instructions on a GPU, and one for each element of a vector on a CPU; this a multiplication and a shift.
    """
    part = math.prod(parts[1:], start=parts[0])
    shift, factor = by_multiplication(part)
    found = hl.cast(hl.Int(32), (hl.cast(hl.UInt(64), whole) * factor) >> shift)
    # Bounds of what it is the index of are inferred from the division.
    return hl.unsafe_promise_clamped(found, 0, whole // part)


def by_multiplication(part: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(31 + s, m) of `quotient`, numbers of 64 bits; m fits into 32."""
    wide = hl.cast(hl.UInt(64), part)
    shift = hl.cast(hl.UInt(64), 63 - hl.count_leading_zeros(hl.cast(hl.Int(32), part - 1)))
    return shift, ((hl.u64(1) << shift) + wide - 1) // wide


def remainder(whole: hl.Expr, *parts: hl.Expr | int) -> hl.Expr:
    """The remainder of the `quotient`."""
    part = math.prod(parts[1:], start=parts[0])
    return hl.unsafe_promise_clamped(whole - quotient(whole, part) * part, 0, part - 1)


def place(position: hl.Expr, extent: hl.Expr | int) -> hl.Expr:
    """The computed `position` of an element along a dimension, which lies in [0, `extent`): where a Func holds it,
    Halide cannot conclude that."""
    return hl.unsafe_promise_clamped(position, 0, extent - 1)


def from_bits(bits: hl.Expr, func: hl.Func) -> hl.Expr:
    """The element of `func` that is held as `bits`."""
    return hl.reinterpret(func.type(), bits)


def transposed(
    name: str,
    func: hl.Func,
    variables: Sequence[hl.Var],
    column: hl.Var,
    across: hl.Var,
    extents: tuple[hl.Expr | int, hl.Expr | int],
    side: int,
    as_bits: bool = False,
) -> list[hl.Func]:
    """Funcs `name`_0, `name`_1, ... of which the first reads `func` in tiles and the last holds the transposed tiles.

    The Funcs have the arguments (i, j, *variables), in which `column` and `across` count tiles. In the first one i runs
    along `across` and j along `column`, in the last one the other way. Each step takes, along i, elements of two
    vectors in turns: a perfect shuffle, which Halide compiles to interleaving instructions. log2(side) of them are a
    transposition (Stone, Parallel processing with the perfect shuffle, 1971). Beyond the extent of `column` tiles
    repeat its last elements; beyond that of `across`, along which vectors lie, they hold zeros: a masked load.

    Args:
        variables: arguments of `func`, among them `column` and `across`, whose `extents` these are in this order.
        side: elements of a side of a tile, a power of two.
        as_bits: hold unsigned integers of the same bits (`from_bits` makes values of them), where the kernel has other
            arrays on the stack. Halide gives an array of one type the memory of another one that is no longer needed,
            and LLVM moves neither to registers where it does not see which place of one of them is read.
    """
    i, j = hl.Var("i"), hl.Var("j")

    def whole(extent: hl.Expr | int) -> bool:
        return isinstance(extent, int) and extent % side == 0

    def element(step: hl.Expr) -> hl.Expr:
        line = column * side + j
        places = {
            column.name(): line if whole(extents[0]) else hl.min(hl.likely(line), extents[0] - 1),
            across.name(): across * side + step,
        }
        value = hl.Expr(func[tuple(places.get(each.name(), each) for each in variables)])
        return hl.reinterpret(hl.UInt(func.type().bits()), value) if as_bits else value

    tile = hl.Func(f"{name}_0")
    coordinates = (i, j, *variables)
    if whole(extents[1]):
        tile[coordinates] = element(i)
    else:
        step = hl.RDom([(0, side)], f"{name}_r")
        step.where(hl.likely(across * side + step[0] < extents[1]))
        tile[coordinates] = hl.cast(element(i).type(), 0)
        copied = (step[0], *coordinates[1:])
        tile[copied] = element(step[0])
    funcs, half = [tile], side // 2
    for number in range(1, side.bit_length()):
        shuffled = hl.Func(f"{name}_{number}")
        interleaved = (i // 2 + half * (j % 2), j // 2 + half * (i % 2), *variables)
        shuffled[coordinates] = funcs[-1][interleaved]
        funcs.append(shuffled)
    return funcs
