"""Several kernels in one launch: PTX whose blocks look up which kernel they belong to, and its arguments, in a table.

An optimizer's step is a kernel for every parameter, each too short to fill a GPU or to be worth a launch. The table is
the batched kernel's one parameter; `launch/cuda.c` fills it with what each kernel would have been launched with:

    uint32 begins[MOST]    the first block of each entry, ascending
    uint32 places[MOST]    variant << 16 | the byte of the table where the entry's arguments begin
    uint32 count, padding
    arguments              of an entry at multiples of their sizes, in order
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from halide_backend.build.ptx.instructions import Function, Module, Statement, parse

#: Bytes of a table (a kernel may have 4,096 bytes of parameters), and its most entries.
TABLE_BYTES, MOST = 4000, 64

#: Name of the batched kernel.
JOINT = "joint"

_BEGINS, _PLACES, _COUNT = 0, 4 * MOST, 8 * MOST
_THREADS = re.compile(r"\s*\.maxntid (\d+), 1, 1\s*")
#: What blocks share, or what only a launch of the kernel's own has.
_OWN_STATE = re.compile(r"^\.(?:global|const|func|extern|shared)", re.MULTILINE)
_OWN_REGISTERS = re.compile(r"%ctaid\.[yz]|%nctaid|%ntid")

_LOOK_UP = f"""
	.reg .pred joint_found; .reg .b32 joint_block, joint_low, joint_high, joint_middle, joint_begin, joint_variant;
	.reg .b64 joint_table, joint_at, joint_arguments;
	mov.b64 joint_table, table; mov.u32 joint_block, %ctaid.x;
	mov.b32 joint_low, 0; ld.param.b32 joint_high, [joint_table+{_COUNT}];
JOINT_SEARCH:
	sub.u32 joint_middle, joint_high, joint_low; setp.le.u32 joint_found, joint_middle, 1; @joint_found bra JOINT_FOUND;
	shr.u32 joint_middle, joint_middle, 1; add.u32 joint_middle, joint_middle, joint_low;
	mul.wide.u32 joint_at, joint_middle, 4; add.u64 joint_at, joint_table, joint_at;
	ld.param.b32 joint_begin, [joint_at+{_BEGINS}]; setp.lt.u32 joint_found, joint_block, joint_begin;
	selp.b32 joint_high, joint_middle, joint_high, joint_found;
	selp.b32 joint_low, joint_low, joint_middle, joint_found; bra JOINT_SEARCH;
JOINT_FOUND:
	mul.wide.u32 joint_at, joint_low, 4; add.u64 joint_at, joint_table, joint_at;
	ld.param.b32 joint_begin, [joint_at+{_BEGINS}]; sub.u32 joint_block, joint_block, joint_begin;
	ld.param.b32 joint_variant, [joint_at+{_PLACES}]; and.b32 joint_low, joint_variant, 0xffff;
	cvt.u64.u32 joint_arguments, joint_low; add.u64 joint_arguments, joint_table, joint_arguments;
	shr.u32 joint_variant, joint_variant, 16;
"""


def can_batch(module: Module) -> bool:
    """Whether the kernel of `module`, completed, can be a variant of a batched one."""
    if len(module.functions) != 1 or not _THREADS.fullmatch(module.functions[0].directives):
        return False
    (function,) = module.functions
    return not _OWN_STATE.search(function.before) and not any(map(_needs_its_own_launch, function.statements))


def batched(modules: Sequence[Module]) -> Module:
    """One kernel with a variant for each of `modules`, all of which `can_batch`."""
    functions = [function for module in modules for function in module.functions]
    variants = "\n".join(_variant(number, function) for number, function in enumerate(functions))
    major, minor = max(module.version for module in modules)
    text = f""".version {major}.{minor}
.target sm_{max(module.target for module in modules)}
.address_size 64

.visible .entry {JOINT}(.param .align 8 .b8 table[{TABLE_BYTES}])
.maxntid {max(map(_threads, functions))}, 1, 1
{{{_LOOK_UP}{variants}
	ret;
}}
"""
    return parse(text)


def _needs_its_own_launch(statement: Statement) -> bool:
    shared = statement.operation == "bar" or "shared" in statement.opcode.split(".")
    return shared or any(map(_OWN_REGISTERS.match, statement.operands))


def _threads(function: Function) -> int:
    found = _THREADS.fullmatch(function.directives)
    assert found is not None
    return int(found[1])


def _variant(number: int, function: Function) -> str:
    places, place = {}, 0
    for parameter in function.parameters:
        size = parameter.bits // 8
        place = -(-place // size) * size
        places[f"[{parameter.name}]"] = f"[joint_arguments+{place}]"
        place += size
    labels = {statement.label: f"{statement.label}_{number}" for statement in function.statements if statement.label}
    new = {**places, **labels, "%ctaid.x": "joint_block"}
    body = replace(function, statements=tuple(_renamed(statement, new) for statement in function.statements)).body
    return f"""
	setp.ne.b32 joint_found, joint_variant, {number}; @joint_found bra JOINT_AFTER_{number};
	mov.u32 joint_middle, %tid.x; setp.ge.u32 joint_found, joint_middle, {_threads(function)}; @joint_found ret;
{{
{body}
}}
JOINT_AFTER_{number}:"""


def _renamed(statement: Statement, new: dict[str, str]) -> Statement:
    text = statement.text
    for name in {statement.label, *statement.operands} & new.keys():
        text = text.replace(name, new[name])
    return statement._replace(text=text)
