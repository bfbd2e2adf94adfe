"""How close a compiled result has to be to eager's.

The numbers are those of torch's test/inductor/test_torchinductor_opinfo.py: 1.3e-5 relative and
1.5e-5 absolute for float32, torch.testing's defaults for all other types, and the exceptions below.
That file compares no gradients on the CPU; for gradients the numbers are those it has for CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerance, None for torch.testing's default.

    With `values` False nothing is compared but shapes and data types.
    """

    relative: float | None = None
    absolute: float | None = None
    values: bool = True


_FLOAT32 = Tolerance(1.3e-5, 1.5e-5)

#: Memory that nobody has written, and a generator that Inductor replaces by its own.
_UNDEFINED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "randn",
)

_FORWARD = {
    ("_unsafe_masked_index_put_accumulate", "float16"): Tolerance(0.01, 1e-4),
    ("nn.functional.interpolate.bicubic", "float32"): Tolerance(0.0, 5e-3),
    ("nn.functional.interpolate.bicubic", "uint8"): Tolerance(0.0, 1.0),
    ("nn.functional.interpolate.bilinear", "uint8"): Tolerance(0.0, 1.0),
    ("nn.functional.multilabel_soft_margin_loss", "float16"): Tolerance(2e-3, 3e-4),
    ("nn.functional.triplet_margin_loss", "float16"): Tolerance(3e-3, 3e-4),
    ("nn.functional.triplet_margin_with_distance_loss", "float16"): Tolerance(3e-3, 3e-4),
    ("nn.functional.upsample_bilinear", "uint8"): Tolerance(0.0, 1.0),
    ("polygamma.polygamma_n_0", "float32"): Tolerance(1e-4, 1e-3),
    ("polygamma.polygamma_n_1", "float32"): Tolerance(1e-4, 1e-3),
    ("polygamma.polygamma_n_2", "float32"): Tolerance(1e-4, 1e-3),
    ("polygamma.polygamma_n_3", "float32"): Tolerance(1e-4, 1e-3),
    ("polygamma.polygamma_n_4", "float32"): Tolerance(1e-4, 1e-3),
    ("softmax", "float16"): Tolerance(0.02, 1e-4),
    ("special.polygamma.special_polygamma_n_0", "float32"): Tolerance(1e-4, 1e-3),
}


_GRADIENT = {
    ("cumprod", "float32"): Tolerance(2e-3, 7e-5),
    ("index_reduce.amax", ""): Tolerance(values=False),
    ("index_reduce.amin", ""): Tolerance(values=False),
    ("index_reduce.mean", ""): Tolerance(values=False),
    ("logcumsumexp", ""): Tolerance(1e-3, 8e-4),
    ("tanh", "float16"): Tolerance(1e-2, 1e-4),
}


def forward(op: str, dtype: str) -> Tolerance:
    """Tolerance of the results of `op` with inputs of `dtype`."""
    if op in _UNDEFINED:
        return Tolerance(values=False)
    return _FORWARD.get((op, dtype)) or _default(dtype)


def gradient(op: str, dtype: str) -> Tolerance:
    """Tolerance of the gradients of `op` with inputs of `dtype`."""
    return _GRADIENT.get((op, dtype)) or _GRADIENT.get((op, "")) or forward(op, dtype)


def _default(dtype: str) -> Tolerance:
    return _FLOAT32 if dtype == "float32" else Tolerance()
