"""What only a GPU can show: values, streams, graphs, errors, memory that is not aligned, and models that learn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.inspection.compiled import compile_for

pytestmark = pytest.mark.gpu
Native = Callable[[], int]


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


@pytest.mark.parametrize("columns", [1, 7, 32, 33, 1000, 1024, 2048, 4097, 20000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_of_any_length(native: Native, columns: int, dtype: torch.dtype) -> None:
    x = normal(37, columns, dtype=dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    for function in (
        lambda x: torch.softmax(x, -1),
        lambda x: x.float().sum(-1),
        lambda x: x.amax(-1),
        lambda x: F.layer_norm(x, x.shape[-1:]),
    ):
        torch._dynamo.reset()
        wanted = function(x.double()).double()
        torch.testing.assert_close(
            compiled(function)(x).double(),
            wanted,
            rtol=tolerance,
            atol=tolerance * columns**0.5,
        )
    assert native() >= 4


@pytest.mark.parametrize("columns", [8, 16, 24, 37, 64, 200])
@pytest.mark.parametrize("rows", [65, 334, 784, 3000])
def test_columns_that_threads_share(native: Native, rows: int, columns: int) -> None:
    x = normal(rows, columns)
    x[rows // 2] = 3.0
    results = compiled(lambda x: (x.sum(0), (x * x).sum(0), x.amax(0), (x > 2.9).any(0)))(x)
    wide = x.double()
    for result, wanted in zip(results, (wide.sum(0), (wide * wide).sum(0), wide.amax(0)), strict=False):
        torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-5 * rows**0.5)
    assert results[3].all()
    assert torch.equal(compiled(lambda x: x.argmax(0))(x), x.argmax(0))
    assert native() >= 2


@pytest.mark.parametrize("shape", [(48, 16, 28, 28), (70, 8, 15, 15), (600, 24, 7, 9)], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_batch_norms_learn(native: Native, shape: tuple[int, ...], layout: torch.memory_format) -> None:
    x, gradient = (normal(*shape).to(memory_format=layout) * 3 + 100 for _ in range(2))
    weight, bias = normal(shape[1]), normal(shape[1])

    def normalised(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.silu(F.batch_norm(x, None, None, weight, bias, training=True))

    def learn(x: Tensor, weight: Tensor, bias: Tensor, gradient: Tensor) -> Any:
        result, derivative = torch.func.vjp(normalised, x, weight, bias)
        return result, *derivative(gradient)

    wanted = learn(*(each.double() for each in (x, weight, bias, gradient)))
    for result, right in zip(compiled(learn)(x, weight, bias, gradient), wanted, strict=True):
        error = (result.double() - right).abs().max() / right.abs().max()
        assert error < 1e-4
    assert native() >= 4


@pytest.mark.parametrize("shape", [(33, 65), (64, 64), (66, 100), (1000, 30), (1000, 31), (3, 70, 45)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_transposes_are_exact(native: Native, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (normal(*shape) * 10).to(dtype)
    y = x.transpose(-1, -2).contiguous()
    result = compiled(lambda x, y: torch.where(y == y, x.transpose(-1, -2), y).contiguous())(x, y)
    assert torch.equal(result, y)
    assert native() == 1


@pytest.mark.parametrize("columns", [3, 64, 201, 2050])
def test_a_transpose_changes_nothing_beyond_its_end(native: Native, columns: int) -> None:
    x, whole = normal(columns, 1003), normal(1003 * columns + 64)
    wanted = whole.clone()
    wanted[: 1003 * columns] += x.t().reshape(-1)
    compiled(lambda y, x: y.add_(x.t()))(whole[: 1003 * columns].view(1003, columns), x)
    assert torch.equal(whole, wanted)
    assert native() >= 1


@pytest.mark.parametrize("columns", [1, 6, 31, 64, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_additions_at_computed_rows(native: Native, columns: int, dtype: torch.dtype) -> None:
    index = torch.randint(0, 300, (5000,), device="cuda")
    source = torch.randint(-8, 9, (5000, columns), device="cuda").to(dtype)
    wanted = torch.zeros(300, columns, device="cuda").index_add(0, index, source.float())
    found = compiled(lambda i, s: torch.zeros(300, columns, device="cuda").index_add(0, i, s.float()))(index, source)
    assert torch.equal(found, wanted)
    assert native() >= 1


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine_of_any_angle(native: Native, name: str) -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (1 << 22,), device="cuda", dtype=torch.int64).to(torch.int32)
    near = torch.randint(-(1 << 20), 1 << 20, (1 << 20,), device="cuda") * (torch.pi / 2)
    for x in (bits.view(torch.float32), normal(1 << 20) * 100, near.float()):
        torch._dynamo.reset()
        found, wanted = compiled(getattr(torch, name))(x), getattr(torch, name)(x.double())
        assert torch.equal(found.isnan(), wanted.isnan())
        unit = torch.exp2(torch.floor(torch.log2(wanted.abs().clamp(min=1e-37))) - 23)
        error = ((found.double() - wanted).abs() / unit).nan_to_num(0)
        assert float(error.max()) < 2.5
    assert native() >= 1


@pytest.mark.parametrize("count", [3, 100, 12_100])
def test_a_mean_divides_exactly(native: Native, count: int) -> None:
    # Of one number and zeros: Inductor multiplies by the reciprocal of a constant, but divides the sum of a mean.
    rows = (1 << 22) // count
    bits = torch.randint(-(2**31), 2**31 - 1, (rows,), device="cuda", dtype=torch.int64).to(torch.int32)
    x = torch.zeros(rows, count, device="cuda")
    x[:, 0] = bits.view(torch.float32)
    found, wanted = compiled(lambda x: x.mean(-1))(x), x[:, 0] / torch.tensor(float(count), device="cuda")
    large = wanted.abs() >= torch.finfo(torch.float32).tiny
    assert torch.equal(found[large], wanted[large])
    assert torch.equal(found.isnan(), wanted.isnan())
    assert native() >= 1


@pytest.mark.parametrize("columns", [64, 100, 2048, 2001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_reversed_rows(native: Native, columns: int, dtype: torch.dtype) -> None:
    x = (normal(99, columns) * 10).to(dtype)
    assert torch.equal(compiled(lambda x: x.flip(-1))(x), x.flip(-1))
    assert torch.equal(compiled(lambda x: x.flip(0, 1))(x), x.flip(0, 1))
    assert native() >= 1


@pytest.mark.parametrize("count", [1, 7, 1001, 4099, 100_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_an_odd_length_changes_nothing_beyond_its_end(native: Native, count: int, dtype: torch.dtype) -> None:
    whole = (normal(count + 64) * 10).to(dtype)
    wanted = whole.clone()
    wanted[:count] += 3
    compiled(lambda x: x.add_(3))(whole[:count])
    assert torch.equal(whole, wanted)
    assert native() >= 1


@pytest.mark.parametrize("count", [5, 1001, 4097, 100_003])
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_odd_length_of_two_widths_changes_nothing_beyond_its_end(native: Native, count: int, dynamic: bool) -> None:
    def update(x: Tensor, y: Tensor) -> None:
        y.copy_(x * 2)
        x.add_(3)

    narrow, whole = normal(count + 64).bfloat16(), normal(count + 64)
    wanted = narrow.clone(), whole.clone()
    update(wanted[1][:count], wanted[0][:count])
    torch.compile(update, dynamic=dynamic)(whole[:count], narrow[:count])
    assert torch.equal(narrow, wanted[0])
    assert torch.equal(whole, wanted[1])
    assert native() >= 1


def test_more_rows_than_the_second_dimension_of_a_grid_has(native: Native) -> None:
    x = normal(3, 70_000, 2, 40)
    found = compiled(lambda x: torch.softmax(x.permute(1, 2, 0, 3), -1))(x)
    torch.testing.assert_close(found, torch.softmax(x.permute(1, 2, 0, 3), -1))
    assert native() >= 1


@pytest.mark.parametrize("columns", [250, 1000, 1536, 3000, 6272, 50257])
def test_a_ragged_row_changes_nothing_beyond_its_end(native: Native, columns: int) -> None:
    whole = normal(9, columns)
    wanted = whole.clone()
    wanted[:5] -= wanted[:5].double().mean(-1, keepdim=True).float()
    compiled(lambda x: x.sub_(x.mean(-1, keepdim=True)))(whole[:5])
    torch.testing.assert_close(whole, wanted)
    assert torch.equal(whole[5:], wanted[5:])
    # The longest row meets a branch before its threads exchange, which is refused; Triton takes it.
    assert columns == 50257 or native() >= 1


@pytest.mark.parametrize("columns", [8, 30, 64, 128])
@pytest.mark.parametrize("rows", [1, 3, 8, 100])
def test_short_rows_that_share_a_warp(native: Native, rows: int, columns: int) -> None:
    x = normal(rows, columns)
    torch.testing.assert_close(compiled(lambda x: torch.softmax(x, -1))(x), torch.softmax(x, -1))
    assert native() >= 1


def test_pooling_reads_windows() -> None:
    for dtype, shape in (
        (torch.float32, (2, 3, 64, 64)),
        (torch.bfloat16, (2, 3, 32, 48)),
        (torch.float32, (1, 2, 9, 11)),
    ):
        torch._dynamo.reset()
        x = normal(*shape, dtype=dtype)
        assert torch.equal(compiled(lambda x: F.max_pool2d(x, 2))(x), F.max_pool2d(x, 2))


@pytest.mark.parametrize("shape", [(3000, 100), (100, 3000), (5000, 3), (1, 1)], ids=str)
def test_sums_over_either_dimension(native: Native, shape: tuple[int, int]) -> None:
    x = normal(*shape)
    rows, columns, whole = compiled(lambda x: (x.sum(1), x.sum(0), x.sum()))(x)
    wide = x.double()
    torch.testing.assert_close(rows.double(), wide.sum(1), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(columns.double(), wide.sum(0), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(whole.double(), wide.sum(), rtol=1e-5, atol=1e-2)
    assert native()


def test_scatters_add_every_contribution(native: Native) -> None:
    index = torch.randint(0, 50, (100_000,), device="cuda")
    ones = torch.ones(100_000, device="cuda")
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        torch._dynamo.reset()
        zeros = torch.zeros(50, device="cuda", dtype=dtype)
        counts = compiled(lambda x, i, s: x.index_add(0, i, s))(zeros, index, ones.to(dtype))
        assert torch.equal(counts, torch.bincount(index, minlength=50).to(dtype))
    assert native()


def test_random_numbers_are_those_of_triton() -> None:
    def draw(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.rand_like(x), torch.nn.functional.dropout(x, 0.3)

    x = torch.ones(1000, device="cuda")
    results = []
    for backend in ("halide_backend", "triton"):
        torch.manual_seed(3)
        drawing = compile_for(backend, draw)
        results.append(drawing(x))
        drawing.check_code()
    (ours, dropped), (theirs, dropped_by_triton) = results
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(dropped, dropped_by_triton)


def test_memory_that_is_not_aligned() -> None:
    function = compiled(lambda x: x * 2 + 1)
    whole = normal(4097, dtype=torch.bfloat16)
    for offset in (0, 1):
        x = whole[offset : 4096 + offset]
        assert torch.equal(function(x), x * 2 + 1)


def test_work_runs_on_the_current_stream() -> None:
    function = compiled(lambda x: x + 1)
    x = torch.zeros(1 << 20, device="cuda")
    function(x)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        y = function(x.fill_(5.0))
    side.synchronize()
    assert torch.equal(y, torch.full_like(x, 6.0))


def test_a_graph_captures_even_the_first_launch() -> None:
    x = normal(64, 1024)
    function = compiled(lambda x: torch.softmax(x, -1) * 2)
    function(x.clone())
    torch._dynamo.reset()
    graph = torch.cuda.CUDAGraph()
    function = compiled(lambda x: torch.softmax(x, -1) * 2)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(x)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            y = function(x)
    x.copy_(normal(64, 1024))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(y, torch.softmax(x, -1) * 2)


def test_reduce_overhead_replays_graphs() -> None:
    function = torch.compile(lambda x, w: torch.relu(F.layer_norm(x @ w, (64,))).sum(-1), mode="reduce-overhead")
    w = normal(32, 64)
    for _ in range(4):
        x = normal(16, 32)
        wanted = torch.relu(F.layer_norm(x @ w, (64,))).sum(-1)
        torch.testing.assert_close(function(x, w).clone(), wanted, rtol=1e-4, atol=1e-4)


def test_what_is_not_native_goes_to_triton() -> None:
    x = normal(100, 300)
    values, sums = compiled(lambda x: (torch.sort(x, -1).values * 2, x.cumsum(0) + 1))(x)
    torch.testing.assert_close(values, torch.sort(x, -1).values * 2)
    torch.testing.assert_close(sums, x.cumsum(0) + 1, rtol=1e-4, atol=1e-4)
    stats = halide_backend.stats()
    assert stats["delegated_kernels"]


def test_dynamic_sizes_are_right() -> None:
    function = torch.compile(lambda x: torch.softmax(x * 2, -1), dynamic=True)
    for columns in (5, 100, 1024):
        x = normal(17, columns)
        torch.testing.assert_close(function(x), torch.softmax(x * 2, -1))


def test_an_index_out_of_range_is_a_cuda_error() -> None:
    program = (
        "import torch, torch._inductor.config as c, halide_backend\n"
        "c.cuda_backend = 'halide_backend'\n"
        "w, i = torch.randn(10, 64, device='cuda'), torch.tensor([3, 11], device='cuda')\n"
        "f = torch.compile(lambda w, i: w[i] * 2, dynamic=False)\n"
        "f(w, torch.tensor([3, 4], device='cuda')); torch.cuda.synchronize(); print('fine')\n"
        "f(w, i); torch.cuda.synchronize(); print('silent')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "fine" in done.stdout
    assert "silent" not in done.stdout
    assert "CUDA error" in done.stderr


def test_a_transformer_learns_as_it_does_in_eager() -> None:
    def losses(compile: bool) -> list[float]:
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, device="cuda")
        head = torch.nn.Linear(64, 10, device="cuda")
        model = torch.nn.Sequential(layer, head)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        call = torch.compile(model, dynamic=False) if compile else model
        x, y = normal(8, 32, 64), torch.randint(0, 10, (8, 32), device="cuda")
        found = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    eager, ours = losses(False), losses(True)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(eager), rtol=2e-3, atol=2e-3)
    assert int(str(halide_backend.stats()["native_kernels"])) > 5


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_each_device_has_its_own_module() -> None:
    function = compiled(lambda x: torch.softmax(x, -1))
    for device in (0, 1, 0, 1):
        x = torch.randn(16, 256, device=f"cuda:{device}")
        torch.testing.assert_close(function(x), torch.softmax(x, -1))


@pytest.mark.parametrize("name", ["hermite_polynomial_h", "laguerre_polynomial_l", "legendre_polynomial_p"])
@pytest.mark.parametrize("columns", [12, 300, 1001])
def test_polynomials_of_a_degree_that_is_data(native: Native, name: str, columns: int) -> None:
    x = torch.linspace(-1, 1, 40, device="cuda", dtype=torch.float64)[:, None]
    n = (torch.arange(columns, device="cuda", dtype=torch.float64) % 14 - 2)[None]
    polynomial = getattr(torch.special, name)
    torch.testing.assert_close(compiled(lambda x, n: polynomial(x, n) * 2)(x, n), polynomial(x, n) * 2)
    assert native() == 1
