"""Kernels that are taken from a model compute what the model does there, and run as cases of the benchmark."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend.bench import recorded
from halide_backend.bench.case import Case
from halide_backend.bench.contestants import Contestants
from halide_backend.bench.measurement import evaluate
from halide_backend.bench.recorded import Operand, RecordedKernel
from halide_backend.bench.recorder import Recorder
from halide_backend.cli import main
from halide_backend.errors import HalideBackendError
from halide_backend.inspection.compiled import compile_for

NAME = "halide_backend"


def kernels_of(function: Callable[..., Any], *inputs: Tensor, dynamic: bool = False) -> Recorder:
    recorder = Recorder()
    with recorder:
        compile_for(NAME, function, dynamic=dynamic).call(*inputs)
    return recorder


def the_kernel(recorder: Recorder) -> RecordedKernel:
    (kernel,) = recorder.kernels.values()
    return kernel


def norm(x: Tensor, w: Tensor, table: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    y = x + table[rows]
    return torch.nn.functional.layer_norm(y, y.shape[-1:], w), y.exp()


def test_a_kernels_function_is_what_it_computes() -> None:
    inputs = torch.randn(6, 40), torch.randn(40), torch.randn(9, 40), torch.randint(0, 9, (6,))
    kernel = the_kernel(kernels_of(norm, *inputs))
    operands = {(operand.shape, operand.dtype, operand.below) for operand in kernel.operands}
    assert operands == {((6, 40), "float32", 0), ((40,), "float32", 0), ((9, 40), "float32", 0), ((6,), "int64", 9)}
    order = [next(each for each in inputs if each.shape == operand.shape) for operand in kernel.operands]
    got = sorted(kernel.kernel("cpu").function(*order), key=torch.sum)
    for found, wanted in zip(got, sorted(norm(*inputs), key=torch.sum), strict=True):
        torch.testing.assert_close(found, wanted)


def test_the_mean_that_a_kernel_stores_is_a_result() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, (40,))

    x = torch.randn(6, 40, requires_grad=True)
    recorder = kernels_of(function, x)
    results = [each.kernel("cpu").function(*(operand.tensor("cpu") for operand in each.operands))
               for each in recorder.kernels.values()]  # fmt: skip
    shapes = [sorted(tuple(part.shape) for part in parts) for parts in results]
    assert [(6, 1), (6, 1), (6, 40)] in shapes


def test_a_kernel_without_operands() -> None:
    kernel = the_kernel(kernels_of(lambda: torch.arange(30).square()))
    (squares,) = kernel.kernel("cpu").function()
    assert squares.tolist() == [n * n for n in range(30)]


def test_what_a_library_computes_is_an_operand() -> None:
    x = torch.randn(1, 2, 5, 8)
    recorder = kernels_of(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x).exp(), x)
    kernel = the_kernel(recorder)
    assert "attention" not in kernel.source
    assert [operand.shape for operand in kernel.operands] == [(1, 2, 5, 8)]


def test_a_copy_in_another_layout_is_one() -> None:
    x = torch.randn(3, 4, 5)
    kernel = the_kernel(kernels_of(lambda x: x.transpose(0, 2).contiguous(), x))
    (copy,) = kernel.kernel("cpu").function(x)
    assert copy.is_contiguous()
    torch.testing.assert_close(copy, x.transpose(0, 2), rtol=0, atol=0)


def test_equal_programs_are_one_kernel() -> None:
    x = torch.randn(6, 40)
    recorder = Recorder()
    with recorder:
        for offset in (1, 1):
            compile_for(NAME, lambda x, offset=offset: (x + offset).exp()).call(x)
    assert len(recorder.kernels) == 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.nn.functional.dropout(x, 0.5).exp(), "draws random numbers"),
        (lambda x: x.add_(1), "changes an operand"),
    ],
)
def test_what_is_no_function_is_left_out(function: Callable[..., Any], reason: str) -> None:
    recorder = kernels_of(function, torch.randn(6, 40))
    assert not recorder.kernels
    assert dict(recorder.left_out) == {reason: 1}


def test_places_in_windows_are_no_random_numbers() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.ops.aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[1] + 1

    recorder = kernels_of(function, torch.randn(2, 8, 16, 16))
    assert not recorder.kernels
    assert dict(recorder.left_out) == {"an operand has places in windows": 1}


def test_dynamic_sizes_are_left_out() -> None:
    recorder = kernels_of(lambda x: x.exp(), torch.randn(6, 40), dynamic=True)
    assert not recorder.kernels
    assert dict(recorder.left_out) == {"sizes are dynamic": 1}


def test_nothing_is_taken_afterwards() -> None:
    recorder = kernels_of(lambda x: x.exp(), torch.randn(6, 40))
    compile_for(NAME, lambda x: x.sin()).call(torch.randn(6, 40))
    assert len(recorder.kernels) == 1


@pytest.mark.parametrize("name", ["kernels.json", "kernels.json.gz"])
def test_a_file_has_cases_of_the_benchmark(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = torch.randn(6, 40), torch.randn(40), torch.randn(9, 40), torch.randint(0, 9, (6,))
    kernel = the_kernel(kernels_of(norm, *inputs))
    recorded.write([kernel], tmp_path / name)
    assert recorded.read(tmp_path / name) == [kernel]
    assert main(["bench", "--recorded", str(tmp_path / name), "--no-timing"]) == 0
    assert f"model_{kernel.name}_{kernel.digest[:8]}_float32" in capsys.readouterr().out


def test_kernels_do_not_count_as_one_that_is_compiled_again_and_again() -> None:
    source = "def forward(x0):\n    return (x0 + 1,)\n"
    kernels = [RecordedKernel(str(k) * 64, "model", "add", "float32", source, ()).kernel("cpu") for k in range(3)]
    # Up to torch 2.12 functions without a source share one code object (pytorch issue 124269).
    assert [inspect.getsource(kernel.function) for kernel in kernels] == [source] * 3
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled = [torch.compile(kernel.function, backend="eager", fullgraph=True) for kernel in kernels]
        for each in compiled:
            assert torch.equal(each(torch.ones(5))[0], torch.full((5,), 2.0))


def test_a_wrong_result_of_a_recorded_kernel_is_told() -> None:
    source = "def forward(x0):\n    return (x0 + (1 if torch.compiler.is_compiling() else 2),)\n"
    kernel = RecordedKernel("0" * 64, "model", "wrong", "float32", source, (Operand((5, 7), (7, 1), "float32"),))
    result = evaluate(Case("model", kernel.kernel("cpu"), "small", "float32", "cpu"), Contestants(()), timed=False)
    assert not result.right
    assert "not close" in result.error


@pytest.mark.parametrize(
    ("shape", "stride"), [((3, 4), (4, 1)), ((3, 4), (1, 3)), ((3, 4), (0, 1)), ((0, 4), (4, 1)), ((), ())]
)
@pytest.mark.parametrize(("dtype", "below"), [("float32", 0), ("bfloat16", 0), ("bool", 0), ("int64", 5), ("int8", 2)])
def test_operands(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str, below: int) -> None:
    tensor = Operand(shape, stride, dtype, below).tensor("cpu")
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (shape, stride, getattr(torch, dtype))
    if below:
        assert ((tensor >= 0) & (tensor < below)).all()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"no JSON", b"\xff", json.dumps({"operands": []}).encode()])
def test_a_file_of_something_else_is_an_error(content: bytes, tmp_path: Path) -> None:
    for name in ("kernels.json", "kernels.json.gz"):
        (tmp_path / name).write_bytes(content + b"\n")
        with pytest.raises(HalideBackendError, match=r"kernels\.json"):
            recorded.read(tmp_path / name)
    with pytest.raises(HalideBackendError, match="record_kernels"):
        recorded.read(tmp_path / "missing.json")


def test_the_kernels_of_models_are_functions_that_every_backend_compiles() -> None:
    kernels = recorded.read(Path(__file__).parents[2] / "benchmarks" / "kernels_of_models.json.gz")
    assert len({kernel.digest for kernel in kernels}) == len(kernels) > 400
    for kernel in kernels:
        assert callable(kernel.kernel("cpu").function)
        # The control of the benchmark refuses callables of another backend that run one of this one's.
        assert "halide_backend" not in kernel.source
        assert not {operand.below for operand in kernel.operands if operand.dtype.startswith("int")} & {0}
