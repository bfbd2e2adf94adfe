"""Calls of functions in PTX: how the compiler writes them, and what takes the place of those that no library has.

Kernels call such functions for what Halide cannot say (`algorithm.cuda.intrinsics`); to LLVM they are opaque. Halide's
own expressions call libdevice, which is left out (`build.llvm.libdevice`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from halide_backend.build.ptx.instructions import Statement, edited
from halide_backend.build.ptx.range_reduction import REDUCTION, WIDE_REDUCTION
from halide_backend.build.ptx.reflection import REFLECTION
from halide_backend.build.ptx.remainder import REMAINDER
from halide_backend.build.ptx.wide_range_reduction import LARGE_ANGLE, REST_OF_LARGE_ANGLE

#: What the names of functions begin with that mark an addend (`atomics`), and what is not always stored, or in part
#: (`predicated_stores`).
ADDEND, PREDICATED, PARTIAL = "halide_backend_atomic_add_", "halide_backend_predicated_b", "halide_backend_partial_b"

#: Functions by which the warps of a block store what the others read, and wait for each other.
EXCHANGES = ("halide_backend_store_word", "halide_backend_store_word_if")

#: Shared memory through which the warps of a block exchange, and its bytes for one exchange of up to 32 warps.
EXCHANGE, EXCHANGE_BYTES = "exchange_between_warps", 128

#: The function by which every thread of a block stores a word there, and that by which a thread keeps a word.
PUT, KEPT = "halide_backend_put_word", "halide_backend_kept"

#: What the registers are called that carry words from one iteration to the next, and a number.
CARRIED = "carried_"

#: Register that says whether a check has failed.
WRONG = "found_wrong"

#: What additions to memory add: numbers, and as many of them as lie side by side, or how many additions later one
#: often goes to the same place.
_ADDENDS = ("f32", "f32_v2", "f64", "f16", "f16_v2", "f16_v4", "bf16", "bf16_v2", "bf16_v4", "u8", "u16", "u32", "u64")
_AGAIN = tuple(f"f32_again{count}" for count in range(1, 9))

_STORED_BY_THE_FIRST_LANE = (
    f"mov.u32 place, {EXCHANGE}; mad.lo.u32 {{result}}, {{1}}, {EXCHANGE_BYTES}, place; "
    "mad.lo.u32 place, warp, 4, {result}; setp.eq.u32 first, lane, 0; @first st.shared.b32 [place], {0}; "
    "bar.sync 0;"
)

#: Functions of libdevice that Halide's own expressions call -> the instruction for a type.
_OF_HALIDE = {
    "ceil": "cvt.rpi.{0}.{0}",
    "fabs": "abs.{0}",
    "floor": "cvt.rmi.{0}.{0}",
    "sqrt": "sqrt.rn.{0}",
    "trunc": "cvt.rzi.{0}.{0}",
}

#: Function -> the instructions that take the place of its call.
_INSTRUCTIONS = {
    "halide_backend_angle": REDUCTION,
    "halide_backend_divide": "div.full.f32 {result}, {0}, {1};",
    "halide_backend_exp2_of_normal": "ex2.approx.ftz.f32 {result}, {0};",
    "halide_backend_large_angle": LARGE_ANGLE,
    "halide_backend_log2_of_normal": "lg2.approx.ftz.f32 {result}, {0};",
    "halide_backend_reflection": REFLECTION,
    "halide_backend_remainder": REMAINDER,
    "halide_backend_reciprocal_of_normal": "rcp.approx.ftz.f32 {result}, {0};",
    "halide_backend_rest_of_large_angle": REST_OF_LARGE_ANGLE,
    "halide_backend_rough_reciprocal": "rcp.approx.ftz.f64 {result}, {0};",
    "halide_backend_rough_rsqrt": "rsqrt.approx.ftz.f64 {result}, {0};",
    "halide_backend_rsqrt_of_normal": "rsqrt.approx.ftz.f32 {result}, {0};",
    "halide_backend_sqrt_of_normal": "sqrt.approx.ftz.f32 {result}, {0};",
    **{
        f"__nv_{function}{ending}": f"{instruction.format(kind)} {{result}}, {{0}};"
        for function, instruction in _OF_HALIDE.items()
        for ending, kind in (("f", "f32"), ("", "f64"))
    },
    "halide_backend_bfloat16_pair": "cvt.rn.bf16x2.f32 {result}, {1}, {0};",
    "halide_backend_float16_pair": "cvt.rn.f16x2.f32 {result}, {1}, {0};",
    "halide_backend_wide_angle": WIDE_REDUCTION,
    "halide_backend_word": "mov.b32 {result}, {0};",
    **{f"{ADDEND}{kind}": f"mov.b{64 if '64' in kind else 32} {{result}}, {{0}};" for kind in (*_ADDENDS, *_AGAIN)},
    **{f"{PREDICATED}{bits}": f"mov.b{bits} {{result}}, {{0}};" for bits in (32, 64)},
    **{f"{PARTIAL}{bits}": "mov.b32 {result}, {0};" for bits in (8, 16, 32, 64)},
    # The first lane of each warp writes, and who has waited for all may read.
    "halide_backend_store_word": (
        ".reg .b32 warp, lane, place; .reg .pred first; mov.u32 warp, %tid.x; and.b32 lane, warp, 31; "
        f"shr.u32 warp, warp, 5; {_STORED_BY_THE_FIRST_LANE}"
    ),
    # The same in blocks whose warps are lines of threads.
    "halide_backend_store_word_if": (
        ".reg .b32 warp, lane, place; .reg .pred first; mov.u32 lane, %tid.x; mov.b32 warp, {2}; "
        f"{_STORED_BY_THE_FIRST_LANE}"
    ),
    "halide_backend_load_word": (".reg .b32 place; mad.lo.u32 place, {1}, 4, {0}; ld.shared.b32 {result}, [place];"),
    PUT: (
        f".reg .b32 place; mov.u32 place, {EXCHANGE}; mad.lo.u32 place, {{1}}, 4, place; st.shared.b32 [place], {{0}}; "
        "mov.b32 {result}, place;"
    ),
    "halide_backend_all_put": f"bar.sync 0; mov.u32 {{result}}, {EXCHANGE};",
    "halide_backend_carried": f"mov.b32 {{result}}, {CARRIED}{{constants[0]}};",
    KEPT: f"mov.b32 {CARRIED}{{constants[1]}}, {{0}}; mov.b32 {{result}}, {{0}};",
    # What was found wrong ends the kernel at its end: a branch before would keep loads from being made together.
    "halide_backend_trap_if": f"or.b32 {WRONG}, {WRONG}, {{1}}; mov.b32 {{result}}, {{0}};",
}


#: What the names of functions begin with that no library has.
_OWN = ("halide_backend_", "__nv_")


@dataclass(frozen=True)
class Argument:
    """What a call passes: a register or a constant of `bits` bits."""

    value: str
    bits: int


@dataclass(frozen=True)
class Call:
    """The call of `function`, whose value goes to the register `result`; it is the statements from `begin` to `end`."""

    function: str
    arguments: tuple[Argument, ...]
    result: str
    begin: int
    end: int


def calls(statements: Sequence[Statement]) -> Iterator[Call]:
    """The calls among `statements`, each of which is a scope of its own.

    Raises:
        ValueError: a function without instructions is called that no library has, or a call has an unknown form.
    """
    begin = 0
    for number, statement in enumerate(statements):
        if statement.opcode == "{":
            begin = number
        elif statement.opcode.startswith("call"):
            yield _call(statements, begin, number)


def _call(statements: Sequence[Statement], begin: int, number: int) -> Call:
    try:
        _, function, names = statements[number].operands
        end = number
        while statements[end].opcode != "}":
            end += 1
        (result,) = (s.operands[0] for s in statements[number:end] if s.opcode.startswith("ld.param"))
        passed = {
            s.operands[0]: Argument(s.operands[1], int(s.opcode.rpartition(".")[2][1:]))
            for s in statements[begin:number]
            if s.opcode.startswith("st.param")
        }
        arguments = tuple(passed[f"[{name.strip()}]"] for name in names.strip("()").split(","))
    except (ValueError, LookupError):
        raise ValueError(f"a call of an unknown form: {statements[number].text!r}") from None
    if function.startswith(_OWN) and function not in _INSTRUCTIONS:
        raise ValueError(f"a call of {function}, for which there are no instructions")
    return Call(function, arguments, result, begin, end)


def without_calls(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The same with instructions in place of the calls of functions that no library has.

    Raises:
        ValueError: as `calls`.
    """
    new: dict[int, str] = {}
    for number, call in enumerate(calls(statements)):
        if call.function in _INSTRUCTIONS:
            new.update(dict.fromkeys(range(call.begin, call.end + 1), ""))
            new[call.begin] = _instructions(call, number)
    return edited(statements, new)


def _instructions(call: Call, number: int) -> str:
    # Arguments may be constants, which not every instruction takes.
    lines, text = ["{"], _INSTRUCTIONS[call.function]
    names = [f"a{k}" for k in range(len(call.arguments))]
    for k, argument in enumerate(call.arguments):
        if f"{{{k}}}" in text:
            lines.append(f"\t.reg .b{argument.bits} a{k}; mov.b{argument.bits} a{k}, {argument.value};")
    constants = [argument.value for argument in call.arguments]
    lines += ["\t" + text.format(*names, result=call.result, label=f"CALL_{number}", constants=constants), "\t}"]
    return "\n".join(lines)
