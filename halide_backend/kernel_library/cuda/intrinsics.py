"""Instructions that Halide has no expression for, as expressions.

Two kinds: LLVM's NVPTX intrinsics, which the compiler understands, and functions of our own, which it takes for opaque
and `build.ptx.calls` replaces by instructions. Neither is ever computed on the host, whatever its operands are: Halide
moves there what is the same for all threads, and the host has none of these instructions. A wrong type or name ends the
compiler's process, so nothing outside this module makes calls.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import halide as hl

from halide_backend.errors import MissingNativeExtensionError

#: All lanes of a warp take part; clamp of a shuffle that stays within the whole warp.
#: Threads of a warp.
WARP = 32

_ALL_LANES, _WHOLE_WARP = -1, 31


def exp2(x: hl.Expr) -> hl.Expr:
    """2**x of a float32, by the special function unit: 2 ulp, denormal results kept."""
    return _call(x, "llvm.nvvm.ex2.approx.f", x)


def exp2_of_normal(x: hl.Expr) -> hl.Expr:
    """The same in one instruction, not in four, of an `x` that is not denormal: denormal results are zero."""
    return _call(x, "halide_backend_exp2_of_normal", x)


def log2(x: hl.Expr) -> hl.Expr:
    """The binary logarithm of a float32 by the special function unit, within 2**-22; denormals are kept."""
    return _call(x, "llvm.nvvm.lg2.approx.f", x)


def log2_of_normal(x: hl.Expr) -> hl.Expr:
    """The same of an `x` that is not denormal, in one instruction."""
    return _call(x, "halide_backend_log2_of_normal", x)


def reciprocal_of_normal(x: hl.Expr) -> hl.Expr:
    """1 / x of a float32 that is not denormal, by the special function unit: 1 ulp; denormal results are zero."""
    return _call(x, "halide_backend_reciprocal_of_normal", x)


def rough_reciprocal(x: hl.Expr) -> hl.Expr:
    """1 / x of a normal float64 within 2**-19 of it, by the special function unit, which sees its higher word."""
    return _call(x, "halide_backend_rough_reciprocal", x)


def rough_rsqrt(x: hl.Expr) -> hl.Expr:
    """The same of 1 / sqrt(x)."""
    return _call(x, "halide_backend_rough_rsqrt", x)


def rsqrt(x: hl.Expr) -> hl.Expr:
    """1 / sqrt(x) of a float32, as eager computes it: 2 ulp, denormals kept."""
    return _call(x, "llvm.nvvm.rsqrt.approx.f", x)


def rsqrt_of_normal(x: hl.Expr) -> hl.Expr:
    """The same of an `x` that is zero or not denormal, in one instruction."""
    return _call(x, "halide_backend_rsqrt_of_normal", x)


def sqrt(x: hl.Expr) -> hl.Expr:
    """The square root of a float32 within 2 ulp, without a branch; infinities, NaN and denormals are kept."""
    return _call(x, "llvm.nvvm.sqrt.approx.f", x)


def sqrt_of_normal(x: hl.Expr) -> hl.Expr:
    """The same of an `x` that is zero or not denormal, in one instruction."""
    return _call(x, "halide_backend_sqrt_of_normal", x)


def maximum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The larger float32; NaN if either is."""
    return _call(a, "llvm.nvvm.fmax.nan.f", a, b)


def minimum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The smaller float32; NaN if either is."""
    return _call(a, "llvm.nvvm.fmin.nan.f", a, b)


def divide(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b of float32 within 2 ulp, as Triton divides; infinities, NaN and denormals are kept."""
    return _call(a, "halide_backend_divide", a, b)


def fma(a: hl.Expr, b: hl.Expr, c: hl.Expr) -> hl.Expr:
    """a * b + c of float32 or float64, rounded once."""
    return _call(a, f"llvm.nvvm.fma.rn.{'f' if a.type().bits() == 32 else 'd'}", a, b, c)


def remainder(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """x - y trunc(x/y) of float32, exact, with the sign of x; NaN for infinite x or zero y."""
    return _call(x, "halide_backend_remainder", x, y)


def truncated(x: hl.Expr) -> hl.Expr:
    """A float32 as an int32, the nearest one of what is beyond, 0 of NaN."""
    return _call(hl.i32(0), "llvm.nvvm.f2i.rz", x)


def angle(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(quadrant, whose two low bits count, as UInt(32); rest, a float32 of at most pi/4) of a finite float32 x >= 0."""
    both = _call(hl.u64(0), "halide_backend_angle", hl.reinterpret(hl.UInt(32), x))
    low = hl.reinterpret(hl.Float(32), hl.cast(hl.UInt(32), both))
    return hl.cast(hl.UInt(32), both >> hl.u64(32)), low


def wide_angle(x: hl.Expr) -> hl.Expr:
    """The rest of `angle` in float64, within 2**-50 of it, whose two last bits are those of the quadrant."""
    return _call(hl.f64(0), "halide_backend_wide_angle", hl.reinterpret(hl.UInt(32), x))


def reflection(x: hl.Expr) -> hl.Expr:
    """log |gamma(x) gamma(-x)| of a negative float32 x, from -1/2 up that of gamma(x) gamma(1 - x), in float64 within
    2**-34; 0 of others."""
    return _call(hl.f64(0), "halide_backend_reflection", hl.reinterpret(hl.UInt(32), x))


def of_large_angle(x: hl.Expr, small: hl.Expr) -> hl.Expr:
    """What a float64 x from 2**30 on leaves of whole quarter turns, in [-pi/4, pi/4]; `small` of others."""
    return _of_angle("halide_backend_large_angle", x, small)


def rest_of_large_angle(x: hl.Expr, small: hl.Expr) -> hl.Expr:
    """What that lacks in float64, with the bits of the quadrant for its two last ones; `small` of others."""
    return _of_angle("halide_backend_rest_of_large_angle", x, small)


def _of_angle(name: str, x: hl.Expr, small: hl.Expr) -> hl.Expr:
    return _call(small, name, *(hl.reinterpret(hl.UInt(64), each) for each in (x, small)))


def across(x: hl.Expr, distance: int) -> hl.Expr:
    """`x` of the lane whose number differs in the bit `distance`; every lane of the warp has to ask."""
    return _shuffled("bfly", x, hl.i32(distance), _WHOLE_WARP)


def of_lane_before(x: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """`x` of the lane whose number is less by `distance`, of lanes that have none their own; every lane has to ask."""
    return _shuffled("up", x, distance, 0)


def of_lane(x: hl.Expr, lane: hl.Expr, lanes: int) -> hl.Expr:
    """`x` of the lane with number `lane` among every `lanes` (a power of two) of the warp, all of which have to ask."""
    return _shuffled("idx", x, lane, ((WARP - lanes) << 8) | _WHOLE_WARP)


def beside(x: hl.Expr, other: hl.Expr) -> hl.Expr:
    """`x`, where `other` is computed whatever `x` makes of it.

    Halide does not compute a Func where it is selected away: for lanes that others wait for, or whose values they get.
    """
    value, kind = _integer(x), x.type()
    # LLVM takes it for its first operand.
    expected = hl.cast(value.type(), _integer(other))
    found = _made(value, f"llvm.expect.i{value.type().bits()}", (value, expected), pure=True)
    return hl.cast(kind, found) if kind.bits() < 32 or kind == found.type() else hl.reinterpret(kind, found)


def _integer(x: hl.Expr) -> hl.Expr:
    """`x` as Int(32), or the bits of one of 32 or 64 as Int of as many."""
    if x.type().bits() < 32:
        return hl.cast(hl.Int(32), x)
    kind = hl.Int(x.type().bits())
    return x if x.type() == kind else hl.reinterpret(kind, x)


def _shuffled(mode: str, x: hl.Expr, lane: hl.Expr, clamp: int) -> hl.Expr:
    bits = x.type().bits()
    if bits == 64:
        word = hl.reinterpret(hl.UInt(64), x)
        low = _shuffled(mode, hl.cast(hl.UInt(32), word), lane, clamp)
        high = _shuffled(mode, hl.cast(hl.UInt(32), word >> hl.u64(32)), lane, clamp)
        joined = hl.cast(hl.UInt(64), low) | (hl.cast(hl.UInt(64), high) << hl.u64(32))
        return hl.reinterpret(x.type(), joined)
    if bits < 32:
        return hl.cast(x.type(), _shuffled(mode, hl.cast(hl.Int(32), x), lane, clamp))
    single = x.type() == hl.Float(32)
    value = x if single else hl.reinterpret(hl.Int(32), x)
    name = f"llvm.nvvm.shfl.sync.{mode}.{'f32' if single else 'i32'}"
    # What lanes exchange is their own already, and Halide may share an exchange that it takes for pure.
    moved = _made(value, name, (hl.i32(_ALL_LANES), value, lane, hl.i32(clamp)), pure=True)
    return moved if single else hl.reinterpret(x.type(), moved)


def of_warps(x: hl.Expr, warps: int, number: int) -> list[hl.Expr]:
    """`x`, which the lanes of a warp have equal, of each warp of the block; the `number`-th exchange of the kernel.

    Every thread of the block has to come here, and wait for the others.
    """
    kind, bits = x.type(), x.type().bits()
    if bits == 64:
        word = hl.reinterpret(hl.UInt(64), x)
        low = _exchanged(hl.cast(hl.UInt(32), word), warps, 2 * number)
        high = _exchanged(hl.cast(hl.UInt(32), word >> hl.u64(32)), warps, 2 * number + 1)
        joined = [hl.cast(hl.UInt(64), a) | (hl.cast(hl.UInt(64), b) << hl.u64(32)) for a, b in zip(low, high)]
        return [hl.reinterpret(kind, value) for value in joined]
    if bits < 32:
        return [hl.cast(kind, value) for value in of_warps(hl.cast(hl.Int(32), x), warps, number)]
    word = x if kind == hl.UInt(32) else hl.reinterpret(hl.UInt(32), x)
    parts = _exchanged(word, warps, 2 * number)
    return parts if kind == hl.UInt(32) else [hl.reinterpret(kind, value) for value in parts]


def of_warp(x: hl.Expr, warp: hl.Expr, other: hl.Expr, number: int) -> hl.Expr:
    """`x`, which the lanes of a warp have equal, of warp `other`, in a block whose `warp`-th row of threads is a warp.

    Anything where there is no such warp. `number` and the threads that have to come here are as of `of_warps`.
    """
    kind, bits = x.type(), x.type().bits()
    if bits == 64:
        word = hl.reinterpret(hl.UInt(64), x)
        low = _of_warp(hl.cast(hl.UInt(32), word), warp, other, 2 * number)
        high = _of_warp(hl.cast(hl.UInt(32), word >> hl.u64(32)), warp, other, 2 * number + 1)
        return hl.reinterpret(kind, hl.cast(hl.UInt(64), low) | (hl.cast(hl.UInt(64), high) << hl.u64(32)))
    if bits < 32:
        return hl.cast(kind, of_warp(hl.cast(hl.Int(32), x), warp, other, number))
    word = x if kind == hl.UInt(32) else hl.reinterpret(hl.UInt(32), x)
    found = _of_warp(word, warp, other, 2 * number)
    return found if kind == hl.UInt(32) else hl.reinterpret(kind, found)


def _of_warp(word: hl.Expr, warp: hl.Expr, other: hl.Expr, place: int) -> hl.Expr:
    shared = _call(hl.u32(0), "halide_backend_store_word_if", word, hl.u32(place), hl.cast(hl.UInt(32), warp))
    return _call(hl.u32(0), "halide_backend_load_word", shared, hl.cast(hl.UInt(32), other))


def _exchanged(word: hl.Expr, warps: int, place: int) -> list[hl.Expr]:
    shared = _call(hl.u32(0), "halide_backend_store_word", word, hl.u32(place))
    return [_call(hl.u32(0), "halide_backend_load_word", shared, hl.u32(warp)) for warp in range(warps)]


def words(x: hl.Expr) -> list[hl.Expr]:
    """`x` as one UInt(32), or two if it has 64 bits."""
    kind, bits = x.type(), x.type().bits()
    if bits == 64:
        whole = x if kind == hl.UInt(64) else hl.reinterpret(hl.UInt(64), x)
        return [hl.cast(hl.UInt(32), whole), hl.cast(hl.UInt(32), whole >> hl.u64(32))]
    if bits < 32:
        return [hl.cast(hl.UInt(32), x)]
    return [x if kind == hl.UInt(32) else hl.reinterpret(hl.UInt(32), x)]


def of_words(kind: hl.Type, parts: list[hl.Expr]) -> hl.Expr:
    """The number of type `kind` whose `words` are `parts`."""
    if kind.bits() == 64:
        whole = hl.cast(hl.UInt(64), parts[0]) | (hl.cast(hl.UInt(64), parts[1]) << hl.u64(32))
        return whole if kind == hl.UInt(64) else hl.reinterpret(kind, whole)
    if kind.bits() < 32:
        return hl.cast(kind, parts[0])
    return parts[0] if kind == hl.UInt(32) else hl.reinterpret(kind, parts[0])


def shared(parts: list[hl.Expr], index: hl.Expr, room: int, end: int) -> hl.Expr:
    """The address of the block's shared words, after each thread has stored `parts`, UInt(32) each: part k at word
    `index + k*room`, all of them before word `end`. Every thread of the block comes here as often."""
    place = hl.u32(0)
    for k, word in enumerate(parts):
        place = _ordered("halide_backend_put_word", word, hl.cast(hl.UInt(32), index + k * room), hl.u32(end), place)
    return _ordered("halide_backend_all_put", place)


def of_shared(address: hl.Expr, index: hl.Expr) -> hl.Expr:
    """The word at `index` of the shared words at `address`."""
    return _ordered("halide_backend_load_word", address, hl.cast(hl.UInt(32), index))


def carried(number: hl.Expr | int, after: hl.Var) -> hl.Expr:
    """The UInt(32) that was kept last under `number`, a constant, in an iteration of the loop `after`."""
    return _ordered("halide_backend_carried", hl.cast(hl.UInt(32), number), hl.cast(hl.UInt(32), hl.Expr(after)))


def kept(word: hl.Expr, number: hl.Expr | int) -> hl.Expr:
    """The UInt(32) `word`, which register `number` of the thread keeps."""
    return _ordered("halide_backend_kept", word, hl.cast(hl.UInt(32), number))


def predicated(value: hl.Expr, whether: hl.Expr) -> hl.Expr:
    """`value` (32 or 64 bits), for a store that is left out where `whether` is false."""
    return _call(value, f"halide_backend_predicated_b{value.type().bits()}", value, hl.cast(hl.UInt(32), whether))


def partial(word: hl.Expr, count: hl.Expr, bits: int) -> hl.Expr:
    """The UInt(32) `word`, for a store of which only the first `count` elements of `bits` bits take place."""
    return _call(hl.u32(0), f"halide_backend_partial_b{bits}", word, hl.cast(hl.UInt(32), count))


def word(x: hl.Expr) -> hl.Expr:
    """The UInt(32) `x`, of whose making LLVM knows nothing: it takes the bytes of a half out of all 64 bits otherwise,
    by instructions that the GPU has for 32."""
    return _call(x, "halide_backend_word", x)


def bfloat16_pair(low: hl.Expr, high: hl.Expr) -> hl.Expr:
    """Two float32 rounded to nearest even, NaN kept, as the halves of one UInt(32)."""
    return _call(hl.u32(0), "halide_backend_bfloat16_pair", low, high)


def float16_pair(low: hl.Expr, high: hl.Expr) -> hl.Expr:
    """Two float32 rounded to nearest even as the halves of one UInt(32)."""
    return _call(hl.u32(0), "halide_backend_float16_pair", low, high)


def trap_if(word: hl.Expr, bad: hl.Expr) -> hl.Expr:
    """The UInt(32) `word`, after ending the kernel with an error where `bad` is true."""
    return _call(hl.u32(0), "halide_backend_trap_if", word, hl.cast(hl.UInt(32), bad))


def atomic_addend(value: hl.Expr, kind: str, step: hl.Expr) -> hl.Expr:
    """What to store so that `value` is added to what lies there, in one indivisible step.

    `kind` names the numbers in memory (f32, f64, f16, bf16, u8, u16, u32, u64); numbers of fewer than 32 bits are the
    low bits of a UInt(32). After it, `_v4` is a promise that the thread stores four adjacent ones, from a multiple of
    their size on, and `_again2` a hint that the addition after the next one often goes to the same place. `step`, an
    int32 of the loop over all additions, keeps it where nothing else depends on it.

    Halide's own atomic updates compare and swap in a loop wherever floats are strict, and know no fewer than 32 bits.
    """
    return _call(value, f"halide_backend_atomic_add_{kind}", value, hl.cast(hl.Int(32), step))


def _call(like: hl.Expr, name: str, *arguments: hl.Expr) -> hl.Expr:
    # Of its own functions LLVM knows what they do; ours it would take for accesses of memory if they were not pure, so
    # that they are called with the number of the thread instead.
    known = name.startswith("llvm.")
    operands = arguments if known else (*arguments, _made(hl.i32(0), "llvm.nvvm.read.ptx.sreg.tid.x", (), pure=False))
    return _made(like, name, operands, pure=not known)


def _ordered(name: str, *arguments: hl.Expr) -> hl.Expr:
    """A UInt(32) from a function of our own that changes something, or sees what others change: LLVM takes it for an
    access of memory, and neither repeats it nor moves it across another one."""
    return _made(hl.u32(0), name, arguments, pure=False)


def _made(like: hl.Expr, name: str, arguments: tuple[hl.Expr, ...], *, pure: bool) -> hl.Expr:
    # A sum, so that Python owns an expression of its own: the call overwrites it.
    result = hl.i32(0) + hl.i32(0)
    _native().call(result, like, name, arguments, pure)
    return result


def _native() -> ModuleType:
    try:
        return importlib.import_module("halide_backend.kernel_library.cuda._intrinsics")
    except ImportError as error:
        raise MissingNativeExtensionError(
            f"the compiled extension cannot be imported ({error})",
            where="halide_backend.kernel_library.cuda._intrinsics",
            cure="reinstall halide-backend from a wheel built for this Python, on a machine with a C++ compiler",
        ) from error
