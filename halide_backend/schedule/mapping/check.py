"""Whether a mapping that somebody wrote fits a program."""

from __future__ import annotations

from collections.abc import Mapping as AbstractMapping

from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram, Reduction, Scan
from halide_backend.schedule.device import Cpu, Device
from halide_backend.schedule.knobs import Choices, Setting
from halide_backend.schedule.mapping.choose import choose_mapping
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Role

#: Roles that say how to be fast. All others are facts of the program, or of what its memory is like.
_CHOICES = (Role.INLINE, Role.SHARED)

_PRIORITIES = ("", "L1::no_allocate", "L2::evict_last")

#: Registers that a thread can have (CUDA C++ Programming Guide, technical specifications).
_MOST_REGISTERS = 255


def check_mapping(program: LoopProgram, device: Device, mapping: Mapping, knobs: AbstractMapping[str, Setting]) -> None:
    """Check `mapping` for `program`, which has been prepared for `device`.

    It may give further values Funcs, and on a CPU say which of them are worth storing; Funcs that the rules find
    necessary stay, with their roles, and tiling, transposition and tuples are those of the rules for these settings of
    `knobs`.

    Raises:
        IllegalPlan: it does not fit.
        Unsupported: no mapping does.
    """
    rules = choose_mapping(program, device, Choices(knobs))
    roles, necessary = mapping.roles, rules.roles
    if len(roles) != len(mapping.funcs):
        _refuse("mapping", "a value has two roles", "name each position once")
    for position, role in mapping.funcs:
        _check_role(program, position, role, necessary.get(position))
    for position, role in necessary.items():
        if position not in roles:
            _refuse(f"value {position}", f"it has no Func, but needs one: {role.value}", "add it to funcs")
    if mapping.tiling != rules.tiling:
        _refuse("tiling", f"it is not the one of this program, {rules.tiling}", "choose another by knobs")
    if mapping.transposition != rules.transposition:
        _refuse("transposition", f"it is not the one of this program, {rules.transposition}", "choose it by knobs")
    if mapping.tuples != rules.tuples:
        _refuse("tuples", f"they are not those of this program, {rules.tuples}", "choose them by knobs")
    if mapping.joined != rules.joined:
        _refuse("joined", f"of this program it is {rules.joined}", "choose it by knobs")
    narrow = rules.narrow if {role for _, role in mapping.funcs} <= {Role.INLINE} else ""
    if mapping.narrow not in ("", narrow):
        _refuse("narrow", f"of this program and these Funcs it is {narrow!r}", "leave it out")
    if isinstance(device, Cpu):
        return
    if extra := set(mapping.divisions) - set(rules.divisions):
        _refuse(
            "divisions", f"{sorted(extra)} would round otherwise", "leave them out: IEEE's division is always right"
        )
    if mapping.loads not in _PRIORITIES:
        _refuse("loads", f"{mapping.loads!r} is no priority", f"use one of {', '.join(map(repr, _PRIORITIES))}")
    registers = mapping.registers
    number = type(registers) is int and 0 < registers <= _MOST_REGISTERS
    part = type(registers) is float and 0 < registers < 1
    if registers != "auto" and not number and not part:
        _refuse("registers", f"{registers!r}", f'use "auto", 1 to {_MOST_REGISTERS}, or a part between 0.0 and 1.0')


def _check_role(program: LoopProgram, position: int, role: Role, needed: Role | None) -> None:
    where = f"value {position}"
    if not 0 <= position < len(program.values):
        _refuse(where, "the program has no such value", f"it has {len(program.values)}")
    if needed is not None and needed not in _CHOICES:
        if role is not needed:
            _refuse(where, f"it is {needed.value}, and cannot be {role.value}", "leave its role")
        return
    value = program.values[position]
    if role not in _CHOICES:
        _refuse(where, f"nothing of it is {role.value}", 'use "inline" or "shared"')
    if value.operation in ("constant", "index") or isinstance(value.attribute, Reduction | Scan):
        _refuse(where, f"a {value.operation} has no Func, or one of its own", "leave it out")


def _refuse(where: str, why: str, cure: str) -> None:
    raise IllegalPlan(why, where=where, cure=cure)
