"""Several kernels in one launch: PTX whose blocks look up which kernel they belong to, and its arguments, in a table.

An optimizer's step is a kernel for every parameter, each too short to fill a GPU or to be worth a launch. The table is
the joint kernel's one parameter; `launch/cuda.c` fills it with what each kernel would have been launched with:

    uint32 begins[MOST]    the first block of each entry, ascending
    uint32 places[MOST]    variant << 16 | the byte of the table where the entry's arguments begin
    uint32 count, padding
    arguments              of an entry at multiples of their sizes, in order
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from halide_backend.build.ptx import entries

#: Bytes of a table (a kernel may have 4,096 bytes of parameters), and its most entries.
TABLE_BYTES, MOST = 4000, 64

#: Name of the joint kernel.
JOINT = "joint"

_BEGINS, _PLACES, _COUNT = 0, 4 * MOST, 8 * MOST
_ENTRY = re.compile(
    r"\.visible \.entry \w+\((?P<parameters>[^)]*)\)\s*\.maxntid (?P<threads>\d+), 1, 1\s*"
    r"\{(?P<body>.*)\}\s*$",
    re.DOTALL,
)
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.[bfsu](\d+)[^,]*?\s(\w+)\s*(?:,|$)")
_LABEL = re.compile(r"(\$L_\w+|\bCALL_\d+)")
_VERSION = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
_TARGET = re.compile(r"^\.target .*$", re.MULTILINE)
#: What blocks share, or what only a launch of the kernel's own has.
_OWN = re.compile(r"\bbar\.|\.shared|%ctaid\.[yz]|%nctaid|%ntid|^\.(?:global|const|func|extern)", re.MULTILINE)

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


def can_join(ptx: str) -> bool:
    """Whether the kernel of `ptx`, completed, can be a variant of a joint one."""
    found = _ENTRY.search(ptx)
    return len(entries(ptx)) == 1 and found is not None and not _OWN.search(ptx)


def joined(ptxs: Sequence[str]) -> str:
    """One kernel with a variant for each of `ptxs`, all of which `can_join`."""
    variants = "\n".join(_variant(number, ptx) for number, ptx in enumerate(ptxs))
    version = max((int(major), int(minor)) for ptx in ptxs for major, minor in _VERSION.findall(ptx))
    target = _TARGET.findall(ptxs[0])[0]
    threads = max(int(_parts(ptx)["threads"]) for ptx in ptxs)
    return f""".version {version[0]}.{version[1]}
{target}
.address_size 64

.visible .entry {JOINT}(.param .align 8 .b8 table[{TABLE_BYTES}])
.maxntid {threads}, 1, 1
{{{_LOOK_UP}{variants}
	ret;
}}
"""


def _parts(ptx: str) -> re.Match[str]:
    found = _ENTRY.search(ptx)
    assert found is not None
    return found


def _variant(number: int, ptx: str) -> str:
    parts = _parts(ptx)
    body = _LABEL.sub(rf"\1_{number}", parts["body"].replace("%ctaid.x", "joint_block"))
    place = 0
    for bits, name in _PARAMETER.findall(parts["parameters"]):
        size = int(bits) // 8
        place = -(-place // size) * size
        body = body.replace(f"[{name}]", f"[joint_arguments+{place}]")
        place += size
    return f"""
	setp.ne.b32 joint_found, joint_variant, {number}; @joint_found bra JOINT_AFTER_{number};
	mov.u32 joint_middle, %tid.x; setp.ge.u32 joint_found, joint_middle, {parts["threads"]}; @joint_found ret;
{{
{body}
}}
JOINT_AFTER_{number}:"""
