"""Writes docs/reference/operations.md: every operation of Inductor's handler, and what becomes of it."""

from __future__ import annotations

import sys
from pathlib import Path

from halide_backend.program.dtypes import ELEMENT, FLOAT8
from halide_backend.program.operation_names import (
    FLOAT_ONLY,
    INTEGER_ONLY,
    OPERATIONS,
    RENAMED,
)

HEAD = """\
# Operations

<!-- Written by `make reference` from halide_backend/program/operation_names.py; do not edit. -->

Inductor describes the body of a loop kernel by the operations of `torch._inductor.ops_handler.OpsHandler`. These are
all of them in torch 2.11 to 2.15. *native*: Halide code of this backend. *-*: Inductor converts to another dtype first.
float16 and bfloat16 are
computed in float32. float8 (e4m3fn, e4m3fnuz, e5m2, e5m2fnuz) is loaded, stored and converted on a CPU; torch has no
arithmetic of it. A kernel with another dtype (complex, float8_e8m0fnu) is delegated.
"""

#: Operations that are not a function of values alone, and how they become native.
STRUCTURE = {
    "bucketize": "on CUDA; on a CPU Inductor asks for BackendFeature.BUCKETIZE and falls back to ATen",
    "check_bounds": "a check, reported by the launcher as IndexError",
    "constant": "",
    "device_assert_async": "a check, reported by the launcher as RuntimeError",
    "frexp": "mantissa and exponent are two values",
    "index_expr": "",
    "indirect_indexing": "clamped to the tensor, with a check",
    "load": "",
    "load_seed": "",
    "masked": "loads under a mask are clamped to the tensor",
    "polygamma": "digamma, trigamma, or a factorial times zeta; its order is never data",
    "rand": "float32, the bits of Inductor's C++ backend",
    "rand_eager": "as rand",
    "randint64": "int64, the bits of Inductor's C++ backend",
    "randn": "float32, the bits of Inductor's C++ backend",
    "reduction": "sum, prod, max, min, any, xor_sum, argmax, argmin, welford_reduce, welford_combine",
    "scan": "any combination; on a CPU ATen computes those of several components, as cummax",
    "store": "also atomic_add",
    "store_reduction": "",
    "to_dtype": "",
    "to_dtype_bitcast": "between dtypes of one size",
    "value_expr": "",
}

#: Operations that Inductor does not ask this backend for.
NEVER_HANDED = {
    "dot": "Triton's matrix products only",
    "halide_clamp": "the in-tree Halide backend only",
    "inline_asm_elementwise": "GPU assembly only",
    "mul_rn": "CUDA only",
    "output": "part of FX graphs, not of loop bodies",
    "partial_accumulate": "Triton's split reductions only",
    "placeholder": "part of FX graphs, not of loop bodies",
    "sort": "Inductor asks for BackendFeature.SORT and falls back to ATen",
}


def page() -> str:
    """The text of the page."""
    dtypes = [dtype for dtype in ELEMENT if dtype not in FLOAT8]
    lines = [HEAD, "## Functions of values", ""]
    lines += [f"| operation | {' | '.join(dtypes)} |", "|---" * (len(dtypes) + 1) + "|"]
    lines += [f"| `{name}` | {' | '.join(status(name, d) for d in dtypes)} |" for name in elementwise()]
    lines += [""]
    lines += ["## Memory, indices, reductions, random numbers", "", "All native.", "", "| operation | |", "|---|---|"]
    lines += [f"| `{name}` | {note} |" for name, note in sorted(STRUCTURE.items())]
    lines += ["", "## Never asked for", "", "| operation | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(NEVER_HANDED.items())]
    return "\n".join([*lines, ""])


def elementwise() -> list[str]:
    """The operations that are functions of values, by Inductor's names."""
    return sorted((OPERATIONS | set(RENAMED)) - set(STRUCTURE) - {"bitcast", "trigamma"})


def status(name: str, dtype: str) -> str:
    """`native`, or `-` where Inductor converts the operands first."""
    operation = RENAMED.get(name, name)
    is_float = "float" in dtype
    if dtype in FLOAT8 or (operation in FLOAT_ONLY and not is_float) or (operation in INTEGER_ONLY and is_float):
        return "-"
    return "native"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
