"""The benchmark: its cases, what it calls wrong, and its command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from halide_backend.bench.kernels import KERNELS, SIZES, Case, Kernel, Operands, cases
from halide_backend.bench.measurement import Result, evaluate
from halide_backend.cli import main

SMALL = Operands(4, 6, torch.float32, "cpu")


def test_both_devices_have_the_same_kernels_at_even_and_odd_sizes() -> None:
    assert len(KERNELS) >= 40
    for device, sizes in SIZES.items():
        assert {rows % 2 for rows, _ in sizes} == {columns % 2 for _, columns in sizes} == {0, 1}
        names = [case.name for case in cases(device)]
        assert len(set(names)) == len(names) == len(KERNELS) * len(sizes) * 2


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_kernel_runs_in_eager(kernel: Kernel) -> None:
    for make in (replace(SMALL, rows=64, columns=66), replace(SMALL, rows=67, columns=65, dtype=torch.bfloat16)):
        kernel.function(*kernel.operands(make))


def test_the_gradient_is_that_of_autograd() -> None:
    x, gradient = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    (backward,) = [kernel for kernel in KERNELS if kernel.name == "softmax_backward"]
    (wanted,) = torch.autograd.grad(torch.softmax(x, -1), x, gradient)
    torch.testing.assert_close(backward.function(x.detach(), gradient)[0], wanted)


def test_a_result_unlike_eager_is_wrong() -> None:
    calls = []

    def changing(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x + len(calls)

    kernel = Kernel("changing", torch.compiler.disable(changing), lambda make: make.matrices(1))
    result = evaluate(Case(kernel, SMALL, "float32"), "eager", timing=False)
    assert not result.right
    assert "not close" in result.error


def test_a_ratio_above_one_says_that_this_backend_is_faster() -> None:
    result = Result("k", samples={"eager": [3.0, 4.0, 100.0], "halide_backend": [2.0, 2.0, 1.0]})
    assert result.ratio("eager") == 2.0


def test_the_command_writes_every_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "cpu", ((8, 6), (7, 5)))
    file, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    assert main(["bench", "--only", "add_relu_8", "--json", str(file), "--plot", str(plot)]) == 0
    document = json.loads(file.read_text())
    assert [result["name"] for result in document["results"]] == ["add_relu_8x6_float32", "add_relu_8x6_bfloat16"]
    assert all(len(samples) == 9 for result in document["results"] for samples in result["samples"].values())
    assert plot.read_text().lstrip().startswith("<?xml")


def test_a_backend_of_the_other_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--against", "triton"]) == 1
    assert "no triton backend for cpu" in capsys.readouterr().err
