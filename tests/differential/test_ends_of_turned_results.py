"""Norms in 16 bits whose lines lie across memory read nothing beyond it, and are right."""

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(15, 16, 17), (2, 64, 50), (3, 96, 197)])
def test_nothing_beyond_the_end_is_read(shape: tuple[int, ...], dtype: torch.dtype, tmp_path: Path) -> None:
    x, target = torch.randn(shape).to(dtype), Target.host()
    functions: tuple[Callable[[Tensor], Tensor], ...] = (rms_norm, layer_norm, softmax)
    for function in functions:
        for number, kernel in enumerate(captured_kernels(function, (x,), target, False)):
            text = plan_kernel(kernel.program, device_of(target)).text
            (tmp_path / f"{function.__name__}_{number}.py").write_text(text)
        ours = compile_for("halide_backend", function)(x)
        tolerance = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours.double(), function(x.double()), rtol=tolerance, atol=2e-6)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.differential.guard", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"violations": []' in ran.stdout and f'"kernels": {len(list(tmp_path.glob("*.py")))}' in ran.stdout
