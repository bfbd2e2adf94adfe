"""PTX run by numpy: the threads of a block take each instruction together, as far as they go the same way.

What a thread does outside of its tensors, or in a shuffle that some lanes of its warp do not come to, is an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halide_backend.build.ptx.instructions import Statement, address, elements, parse

Array = npt.NDArray[Any]

_KINDS = {"f": "f", "s": "i", "u": "u", "b": "u"}
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
#: To integers, whose type may still be that of a float.
_ROUNDINGS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.([xyz])")
_GUARD, _WARP = 256, 32


@dataclass(frozen=True)
class Pointer:
    """An argument of a launch: the byte `offset` of tensor number `tensor`."""

    tensor: int
    offset: int = 0


#: Bytes that a block has of shared memory, and a thread of local memory.
_SHARED, _LOCAL = 1 << 16, 1 << 9


def run(code: str, grid: int, block: tuple[int, int], tensors: Sequence[Array], table: bytes = b"") -> None:
    """Run the one kernel of `code` over `grid` blocks on `tensors`, in the order of its parameters.

    A joint kernel has a `table` for its one parameter, in which the tensors have the addresses of their arrays.
    """
    whole = [*tensors, np.frombuffer(table, np.uint64).copy()]
    launch(code, (grid, 1, 1), (*block, 1), whole, [Pointer(number) for number in range(len(whole))], len(table))


def launch(
    code: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    tensors: Sequence[Array],
    arguments: Sequence[Pointer | int],
    table: int = 0,
) -> None:
    """Run the one kernel of `code` on `tensors` with its `arguments`; the last tensor is a table of so many bytes."""
    memory = np.zeros(_GUARD + sum(_room(tensor) for tensor in tensors), np.uint8)
    owned = np.zeros(memory.shape, bool)
    places, at = [], _GUARD
    for tensor in tensors:
        raw = tensor.reshape(-1).view(np.uint8)
        memory[at : at + raw.size], owned[at : at + raw.size] = raw, True
        places.append(at)
        at += _room(tensor)
    words = memory[places[-1] :][:table].view(np.uint64)
    for tensor, place in zip(tensors[:-1], places):
        words[words == tensor.ctypes.data] = place
    (kernel,) = parse(code).functions
    statements = [s for s in kernel.statements if s.opcode not in ("{", "}") and not s.opcode.startswith(".")]
    parameters = [places[a.tensor] + a.offset if isinstance(a, Pointer) else a for a in arguments]
    for number in itertools.product(*map(range, reversed(grid))):
        _Block(statements, memory, owned, parameters, number[::-1], block).run()
    for tensor, at in zip(tensors, places):
        raw = tensor.reshape(-1).view(np.uint8)
        raw[:] = memory[at : at + raw.size]


def _fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float64, the product in two parts (Dekker), and the sum, too."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    back = total - product
    missing = (product - (total - back)) + (c - back)
    exact = np.isfinite(rest) & np.isfinite(missing)
    return np.where(exact, total + (missing + rest), total)


def _halves(x: Array) -> tuple[Array, Array]:
    """The 26 highest bits of float64, and the others."""
    high = x * (2.0**27 + 1)
    high = high - (high - x)
    return high, x - high


def _flushed(x: Array) -> Array:
    """float32 without denormal numbers."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def _head(x: Array) -> Array:
    """The higher words of float64."""
    return (np.ascontiguousarray(x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


def _room(tensor: Array) -> int:
    return -(-tensor.nbytes // _GUARD) * _GUARD + _GUARD


class _Block:
    def __init__(
        self,
        statements: list[Statement],
        memory: Array,
        owned: Array,
        parameters: list[int],
        number: tuple[int, ...],
        block: tuple[int, int, int],
    ) -> None:
        self.statements, self.memory, self.owned, self.parameters = statements, memory, owned, parameters
        self.threads = block[0] * block[1] * block[2]
        index = np.arange(self.threads, dtype=np.uint64)
        zero = np.zeros(self.threads, np.uint64)
        self.special = {
            ("tid", "x"): index % block[0], ("tid", "y"): index // block[0] % block[1],
            ("tid", "z"): index // (block[0] * block[1]),
            ("ctaid", "x"): zero + number[0], ("ctaid", "y"): zero + number[1], ("ctaid", "z"): zero + number[2],
        }  # fmt: skip
        self.labels = {statement.label: number for number, statement in enumerate(statements) if statement.label}
        self.registers: dict[str, Array] = {}
        # Behind what threads share is what each has to itself.
        size = _SHARED + self.threads * _LOCAL
        self.shared = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
        self.places_in_code = np.zeros(self.threads, np.int64)

    def run(self) -> None:
        """Whoever is furthest behind goes first, so that threads meet again after a branch; but who comes to a barrier,
        or to an exchange between the lanes of a warp, waits there for all others of the block, or the warp."""
        end = len(self.statements)
        while self.places_in_code.min() < end:
            now, active = self.next_in_code(end)
            self.places_in_code[active] += 1
            statement = self.statements[now]
            if statement.label:
                continue
            guard = active
            if statement.guard:
                value = self.registers[statement.guard.lstrip("!")].astype(bool)
                guard = guard & (~value if statement.guard.startswith("!") else value)
            self.step(statement.opcode.split("."), list(statement.operands), guard)

    def next_in_code(self, end: int) -> tuple[int, Array]:
        """The number of a statement, and which threads take it."""
        found = ""
        for now in np.unique(self.places_in_code):
            if now == end:
                break
            active, opcode = self.places_in_code == now, self.statements[now].opcode
            if opcode.startswith("bar.") and not active.all():
                found = "some threads of a block do not come to a barrier"
                continue
            if opcode.startswith("shfl."):
                active &= np.repeat(active.reshape(-1, _WARP).all(1), _WARP)
            if active.any():
                return int(now), active
            found = "some lanes of a warp do not come to a shuffle"
        raise AssertionError(found)

    # -- operands ----------------------------------------------------------------------------------------------

    def raw(self, operand: str) -> Array:
        special = _SPECIAL.fullmatch(operand)
        if special:
            return self.special[special[1], special[2]]
        if operand in self.registers:
            return self.registers[operand]
        if operand.startswith(("0f", "0d")):
            return np.full(self.threads, int(operand[2:], 16), np.uint64)
        if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+U?", operand):
            return np.full(self.threads, int(operand.rstrip("U"), 0) & (2**64 - 1), np.uint64)
        if operand in ("exchange_between_warps", "table"):
            return np.full(self.threads, self.parameters[-1] if operand == "table" else 0, np.uint64)
        if operand.startswith("__local_depot"):
            return np.uint64(_SHARED) + np.arange(self.threads, dtype=np.uint64) * np.uint64(_LOCAL)
        if re.fullmatch(r"%[a-z]+\d+", operand):
            # A branch that no thread took would have defined it ("implicit-def"): of what it has nothing is used.
            return np.full(self.threads, 0x5A5A5A5A5A5A5A5A, np.uint64)
        raise NotImplementedError(operand)

    def get(self, operand: str, kind: str) -> Array:
        if kind == "pred":
            return self.raw(operand).astype(bool)
        bits = int(kind[1:])
        return self.raw(operand).astype(f"u{bits // 8}").view(f"{_KINDS[kind[0]]}{bits // 8}")

    def put(self, register: str, value: Array, guard: Array) -> None:
        value = np.ascontiguousarray(value)
        raw = value.astype(np.uint64) if value.dtype == bool else value.view(f"u{value.itemsize}").astype(np.uint64)
        old = self.registers.get(register)
        self.registers[register] = raw if old is None else np.where(guard, raw, old)

    # -- instructions ------------------------------------------------------------------------------------------

    def step(self, name: list[str], operands: list[str], guard: Array) -> None:
        match name:
            case ["ld", "param", *rest] if operands[1].startswith("[joint_"):
                self.access(False, False, rest[-1], operands, guard)
            case ["ld", "param", *_]:
                number = int(operands[1].rstrip("]").rpartition("_")[2])
                value = self.parameters[number] & (2**64 - 1)
                self.put(operands[0], np.full(self.threads, value, np.uint64), guard)
            case ["ld" | "st", "global" | "shared" | "local", *rest]:
                self.access(name[0] == "st", name[1] != "global", rest[-1], operands, guard)
            case ["red", *_, kind]:
                self.add(kind, operands, guard)
            case ["bra", *_]:
                self.places_in_code[guard] = self.labels[operands[0]]
            case ["trap"]:
                assert not guard.any(), "a check failed"
            case ["ret"]:
                self.places_in_code[guard] = len(self.statements)
            case ["bar", *_]:
                assert guard.all(), "some threads of a block do not come to a barrier"
            case ["mov", kind] if operands[0].startswith("{"):
                low, high = elements(operands[0])
                bits = int(kind[1:]) // 2
                value = self.get(operands[1], kind)
                self.put(low, (value & np.uint64(2**bits - 1)).astype(f"u{bits // 8}"), guard)
                self.put(high, (value >> np.array(bits, value.dtype)).astype(f"u{bits // 8}"), guard)
            case ["mov", kind] if operands[1].startswith("{"):
                low, high = map(self.raw, elements(operands[1]))
                self.put(
                    operands[0], (low | high << np.uint64(int(kind[1:]) // 2)).astype(f"u{int(kind[1:]) // 8}"), guard
                )
            case ["mov", kind]:
                self.put(operands[0], self.get(operands[1], kind), guard)
            case ["cvta", *_]:
                self.put(operands[0], self.raw(operands[1]), guard)
            case ["shfl", "sync", mode, "b32"]:
                self.shuffle(mode, operands, guard)
            case ["setp", comparison, *rest]:
                a, b = self.get(operands[1], rest[-1]), self.get(operands[2], rest[-1])
                unordered = comparison.endswith("u") and rest[-1][0] == "f" and comparison not in _COMPARISONS
                if comparison in ("nan", "num"):
                    found = np.isnan(a) | np.isnan(b)
                    found = found if comparison == "nan" else ~found
                else:
                    found = _COMPARISONS[comparison[:-1] if unordered else comparison](a, b)
                    found = found | np.isnan(a) | np.isnan(b) if unordered else found
                    if rest[-1][0] == "f" and comparison == "ne":
                        found = found & ~np.isnan(a) & ~np.isnan(b)
                if rest[0] in ("and", "or", "xor"):
                    third = self.get(operands[3], "pred")
                    found = {"and": found & third, "or": found | third, "xor": found ^ third}[rest[0]]
                self.put(operands[0], found, guard)
            case ["selp", kind]:
                chosen = self.get(operands[3], "pred")
                self.put(operands[0], np.where(chosen, self.get(operands[1], kind), self.get(operands[2], kind)), guard)
            case ["cvt", "rn", "bf16x2", "f32"]:
                low, high = (_bfloat16(self.get(operand, "f32")) for operand in (operands[2], operands[1]))
                self.put(operands[0], low | high << np.uint32(16), guard)
            case ["cvt", "rn", "f16x2", "f32"]:
                low, high = (
                    self.get(operand, "f32").astype(np.float16).view(np.uint16).astype(np.uint32)
                    for operand in (operands[2], operands[1])
                )
                self.put(operands[0], low | high << np.uint32(16), guard)
            case ["cvt", *modes, target, source]:
                value = self.get(operands[1], source)
                for mode in modes:
                    value = _ROUNDINGS[mode](value) if mode in _ROUNDINGS and source[0] == "f" else value
                value = value.astype(f"{_KINDS[target[0]]}{int(target[1:]) // 8}")
                # Of a wider register the sign fills what is left; the narrowest one has 16 bits.
                self.put(operands[0], value.astype(np.int16) if target == "s8" else value, guard)
            case ["mad", mode, kind]:
                wide = self.wide(self.get(operands[1], kind), self.get(operands[2], kind), mode)
                self.put(operands[0], wide + self.raw(operands[3]).astype(wide.dtype), guard)
            case ["mul", "lo" | "wide" | "hi" as mode, kind]:
                self.put(operands[0], self.wide(self.get(operands[1], kind), self.get(operands[2], kind), mode), guard)
            case ["prmt", "b32"]:
                low, high, chosen = (self.raw(operand) & np.uint64(2**32 - 1) for operand in operands[1:])
                pool, result = low | high << np.uint64(32), np.zeros(self.threads, np.uint64)
                for k in range(4):
                    byte = chosen >> np.uint64(4 * k) & np.uint64(15)
                    assert (byte < 8).all(), "a sign is copied"
                    result |= (pool >> np.uint64(8) * byte & np.uint64(255)) << np.uint64(8 * k)
                self.put(operands[0], result.astype(np.uint32), guard)
            case ["fma", "rn", kind]:
                a, b, c = (self.get(operand, kind).astype(np.float64) for operand in operands[1:])
                found = _fused(a, b, c) if kind == "f64" else a * b + c
                self.put(operands[0], found.astype(f"f{int(kind[1:]) // 8}"), guard)
            case [operation, *_, kind]:
                self.put(operands[0], self.arithmetic(operation, name[1:-1], kind, operands[1:]), guard)
            case _:
                raise NotImplementedError(".".join(name))

    def wide(self, a: Array, b: Array, mode: str) -> Array:
        if mode == "lo":
            return a * b
        # numpy has no integers of 128 bits.
        kind = f"{a.dtype.kind}{a.itemsize * 2}" if a.itemsize < 8 else object
        product = a.astype(kind) * b.astype(kind)
        return product if mode == "wide" else (product >> 8 * a.itemsize).astype(a.dtype)

    def arithmetic(self, operation: str, modifiers: list[str], kind: str, operands: list[str]) -> Array:
        values = [self.get(operand, kind) for operand in operands]
        match operation, values:
            case "add", [a, b]:
                return a + b
            case "sub", [a, b]:
                return a - b
            case "mul", [a, b]:
                return a * b
            case "div", [a, b]:
                return a / b if kind[0] == "f" else _quotient(a, b)
            case "rem", [a, b]:
                return a - _quotient(a, b) * b
            case "and", [a, b]:
                return a & b
            case "or", [a, b]:
                return a | b
            case "xor", [a, b]:
                return a ^ b
            case "not", [a]:
                return ~a
            case "neg", [a]:
                return -a
            case "abs", [a]:
                return np.abs(a)
            case "copysign", [sign, a]:
                return np.copysign(a, sign)
            case "ex2", [a]:
                return np.exp2(a)
            case "lg2", [a]:
                return np.log2(a)
            case "lg2", [a]:
                return np.log2(a)
            case "sqrt", [a]:
                return np.sqrt(a)
            case "rsqrt" | "rcp", [a] if kind == "f64" and "approx" in modifiers:
                # Of the higher words, the lower one is zero.
                found = 1 / (np.sqrt(_head(a)) if operation == "rsqrt" else _head(a))
                return _head(np.asarray(found))
            case "rsqrt", [a]:
                return (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype)
            case "rcp", [a] if "ftz" in modifiers:
                return _flushed(1 / _flushed(a))
            case "rcp", [a]:
                return (1 / a).astype(a.dtype)
            case "bfe", [a, begin, length] if kind[0] == "s":
                # The highest bit of the field is its sign.
                above = np.array(a.itemsize * 8, a.dtype) - (length & 255)
                return a << (above - (begin & 255)) >> above
            case "bfe", [a, begin, length]:
                return a >> (begin & 255) & (np.array(1, a.dtype) << (length & 255)) - np.array(1, a.dtype)
            case "shl" | "shr", [a, _]:
                by = self.get(operands[1], "u32").astype(a.dtype)
                kept = by < a.itemsize * 8
                moved = np.left_shift(a, by * kept) if operation == "shl" else np.right_shift(a, by * kept)
                return np.where(kept, moved, 0 if operation == "shl" or kind[0] != "s" else a >> (a.itemsize * 8 - 1))
            case "max", [a, b]:
                return np.maximum(a, b) if "NaN" in modifiers or kind[0] != "f" else np.fmax(a, b)
            case "min", [a, b]:
                return np.minimum(a, b) if "NaN" in modifiers or kind[0] != "f" else np.fmin(a, b)
        raise NotImplementedError(f"{operation} {modifiers} {kind}")

    def shuffle(self, mode: str, operands: list[str], guard: Array) -> None:
        warps = guard.reshape(-1, _WARP)
        assert (warps.any(1) == warps.all(1)).all(), "some lanes of a warp do not come to a shuffle"
        value, by, clamp = self.raw(operands[1]), self.get(operands[2], "s32"), self.get(operands[3], "s32")
        lane = np.arange(self.threads, dtype=np.int64) % _WARP
        segment, last = (clamp >> 8) & 31, clamp & 31
        if mode == "up":
            found = np.where(lane - by >= (lane & segment | last & ~segment), lane - by, lane)
        elif mode == "bfly":
            found = np.where((lane ^ by) <= (lane & segment | last & ~segment), lane ^ by, lane)
        else:
            assert mode == "idx"
            found = (lane & segment) | (by & ~segment)
        self.put(operands[0], value[np.arange(self.threads) // _WARP * _WARP + found].astype(np.uint32), guard)

    def add(self, kind: str, operands: list[str], guard: Array) -> None:
        """Add to memory, one thread after another."""
        base, offset = address(operands[0])
        values = [self.get(name, kind) for name in elements(operands[1])]
        size = values[0].itemsize
        places = self.raw(base).astype(np.int64) + offset
        assert (places[guard] % (size * len(values)) == 0).all(), "an addition at no multiple of its size"
        for thread in np.flatnonzero(guard):
            for number, value in enumerate(values):
                place = slice(places[thread] + number * size, places[thread] + (number + 1) * size)
                assert place.start >= 0 and self.owned[place].all(), "an addition beyond its tensor"
                self.memory[place] = (self.memory[place].view(value.dtype) + value[thread]).view(np.uint8)

    def access(self, stores: bool, shared: bool, kind: str, operands: list[str], guard: Array) -> None:
        place, registers = operands if stores else operands[::-1]
        base, offset = address(place)
        names = elements(registers)
        size = int(kind[1:]) // 8
        at = (self.raw(base).astype(np.int64) + offset)[:, None] + np.arange(size * len(names))
        memory = self.shared if shared else self.memory
        aligned = bool((at[guard, 0] % (size * len(names)) == 0).all())
        assert aligned, f"an access at no multiple of its size: {place}"
        inside = (at >= 0) & (at < memory.size)
        at = np.where(inside, at, 0)
        if stores:
            assert inside[guard].all() and (shared or self.owned[at[guard]].all()), "a store beyond its tensor"
            data = np.stack([self.raw(name).astype(f"u{size}") for name in names], 1).view(np.uint8)
            memory[at[guard]] = data.reshape(self.threads, -1)[guard]
            return
        whole = inside.all(1) & (shared | self.owned[at].any(1) if not shared else True)
        assert whole[guard].all(), "a load beyond its tensor"
        data = np.ascontiguousarray(memory[at]).view(f"u{size}").reshape(self.threads, len(names))
        if kind[0] == "s":
            data = data.view(f"i{size}").astype(np.int64)
        for number, name in enumerate(names):
            self.put(name, data[:, number], guard)


def _quotient(a: Array, b: Array) -> Array:
    """Rounded towards zero; of a division by zero, whose result is not used, all bits."""
    floor = np.floor_divide(a, np.where(b == 0, 1, b))
    up = (floor < 0) & (floor * b != a)
    return np.where(b == 0, np.array(-1).astype(a.dtype), floor + up.astype(a.dtype))


def _bfloat16(value: Array) -> Array:
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint32(0x7FFF), rounded).astype(np.uint32)
