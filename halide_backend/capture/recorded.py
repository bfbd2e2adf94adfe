"""The values that a loop body handles while it is recorded, and the interface of the recorder for modules that record
parts of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import sympy
import torch

from halide_backend.capture.program_builder import ProgramBuilder
from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Nest
from halide_backend.versions import saturates_float8


@dataclass(frozen=True)
class Recorded:
    """What the handler hands to the loop body: a value of the program, with the type facts Inductor asks for."""

    position: int
    dtype: torch.dtype
    is_scalar: bool = False
    shape: tuple[int, ...] | None = (1,)


class BodyRecorder(Protocol):
    """Records values of the program of `builder`, over the axes of `nest`; Inductor's other operations as well."""

    builder: ProgramBuilder
    nest: Nest
    mask: Recorded | None

    def value(self, operation: str, dtype: torch.dtype, *operands: Recorded, attribute: object = None) -> Recorded:
        """One operation, as it stands in the program."""

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> Recorded:
        """A number."""

    def number(self, operand: Any, dtype: torch.dtype) -> Recorded:
        """An existing value, or a constant."""

    def cast(self, operand: Recorded, dtype: torch.dtype) -> Recorded:
        """The operand in another dtype."""

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Recorded:
        """The value of an index expression."""

    def load(self, name: str, index: sympy.Expr) -> Recorded:
        """An element of a buffer."""

    def indirect_indexing(self, index: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Expr:
        """A symbol for an index that is data."""

    def __getattr__(self, operation: str) -> Callable[..., Any]: ...


def dtype_name(dtype: torch.dtype) -> str:
    """What programs call `dtype`.

    Raises:
        Unsupported: no program has values of it.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in ELEMENT:
        raise Unsupported("unsupported-dtype", f"a value of {dtype}")
    if dtype == torch.float8_e4m3fn and not saturates_float8():
        raise Unsupported(
            "float8-needs-newer-torch",
            f"float8_e4m3fn with torch {torch.__version__}, where too large values become NaN",
        )
    return name
