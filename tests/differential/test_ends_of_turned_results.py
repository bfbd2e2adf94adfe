"""Norms of rows that lie across memory read nothing beyond it, and are right; nor do reflected rows read before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of

ROOT = Path(__file__).parents[2]


def rms_norm(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    return F.rms_norm(y, y.shape[-1:]).contiguous()


def layer_norm(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    return F.layer_norm(y, y.shape[-1:]).contiguous()


def softmax(x: Tensor) -> Tensor:
    return x.transpose(1, 2).softmax(-1).contiguous()


def log_softmax(x: Tensor) -> Tensor:
    return x.transpose(1, 2).log_softmax(-1).contiguous()


def scaled(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    return (y / (y.abs().amax(-1, keepdim=True) + 1)).contiguous()


def clamped(x: Tensor) -> Tensor:
    return layer_norm(x).clamp(-1, 1)


def gated(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    return (y * y.sum(-1, keepdim=True).sigmoid()).contiguous()


NORMS = (rms_norm, layer_norm, softmax, log_softmax, scaled, clamped, gated)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *(((15, 16, 17), dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)),
        *(((3, 64, 197), dtype) for dtype in (torch.bfloat16, torch.float32)),
    ],
    ids=str,
)
def test_nothing_beyond_the_end_is_read(shape: tuple[int, ...], dtype: torch.dtype, tmp_path: Path) -> None:
    x, tolerance = torch.randn(shape).to(dtype), 2 * torch.finfo(dtype).eps
    for function in NORMS:
        _write(function, x, tmp_path)
        ours = compile_for("halide_backend", function)(x)
        torch.testing.assert_close(ours.double(), function(x.double()), rtol=tolerance, atol=max(2e-6, tolerance))
    _check_guarded(tmp_path)


def reflected(x: Tensor) -> Tensor:
    return F.pad(x, (3, 2), mode="reflect")


def computed(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1), mode="reflect") * 2 + 1


def repeated(x: Tensor) -> Tensor:
    return F.pad(x, (3, 2), mode="replicate")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("columns", [13, 16, 33])
def test_nothing_before_the_start_is_read(columns: int, dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.arange(2 * 5 * columns).remainder(50).view(2, 5, columns).to(dtype)
    for function in (reflected, computed, repeated):
        _write(function, x, tmp_path)
        assert torch.equal(compile_for("halide_backend", function)(x), function(x))
    _check_guarded(tmp_path)


def _write(function: Callable[[Tensor], Tensor], x: Tensor, folder: Path) -> None:
    """Write the texts of the kernels that compute `function` of `x` into `folder`."""
    target = Target.host()
    for number, kernel in enumerate(captured_kernels(function, (x,), target, False)):
        text = plan_kernel(kernel.program, device_of(target)).text
        (folder / f"{function.__name__}_{number}.py").write_text(text)


def _check_guarded(folder: Path) -> None:
    """Run the kernels in `folder` between inaccessible pages."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.differential.guard", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"violations": []' in ran.stdout and f'"kernels": {len(list(folder.glob("*.py")))}' in ran.stdout
