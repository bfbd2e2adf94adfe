"""What kernels of layers compute of a layer's result, by oneDNN's names."""

from __future__ import annotations

from collections.abc import Callable

import halide as hl

from halide_backend.kernel_library import mathematics

ACTIVATIONS: dict[str, Callable[[hl.Expr], hl.Expr]] = {
    "none": lambda value: value,
    "relu": lambda value: hl.max(value, hl.f32(0)),
    "swish": mathematics.silu,
}
