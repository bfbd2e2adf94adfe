"""One compilation serves every size on a GPU: blocks, steps of a row and strides are computed at the launch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor_config

from halide_backend.errors import KernelArgumentError

pytestmark = pytest.mark.gpu
Native = Callable[[], int]

#: More columns than rows: Inductor makes a guard of that, and another compilation behind it. The second has rows longer
#: than all threads of a block take in one round, the others primes and powers of two.
SIZES = ((6, 8), (37, 4099), (8, 1003), (64, 128), (257, 259), (4, 5), (2, 40_961))


def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y * 2, x[:, 1:]], 1)


def places(x: Tensor) -> Tensor:
    return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]]] = {
    "pointwise": lambda x, y: torch.where(x > y, x.exp(), y) * x.shape[0] / (x.shape[1] + 0.5),
    "several outputs": lambda x, y: (x * 2 + y, x > y, (x - y).bfloat16()),
    "broadcast": lambda x, y: (x[:, :1] * y + x[:1], y + x.sum(0)),
    "rows": lambda x, y: torch.softmax(x, -1) + y.sum(-1, keepdim=True),
    "log softmax": lambda x, y: (torch.log_softmax(x, -1), torch.logsumexp(y, -1)),
    "variances": lambda x, y: (x.var(1), y.std(0), torch.var_mean(x + y, 1)[1]),
    "columns": lambda x, y: (x.var(0), y.amax(0), (x * y).mean(0)),
    "layer norm": lambda x, y: F.layer_norm(x, x.shape[1:]) * y,
    "everything": lambda x, y: (x * y).sum() / x.numel(),
    "argmax": lambda x, y: (x.argmax(1), y.argmin(0), (x + y).argmax()),
    "logical": lambda x, y: ((x > y).any(1), (x < 9).all(0), (x > 5).any()),
    "transpose": lambda x, y: (x.t().contiguous(), (x + y).t().contiguous() * 3),
    "reshape": lambda x, y: (x.reshape(-1) * 2, (x > y).reshape(x.shape[1], x.shape[0])),
    "views of a product of sizes": lambda x, y: (x[:1, None] != y).flatten(1) ^ (x[:1, None] < y).flatten(1),
    "concatenation": joined,
    "padding": lambda x, y: F.pad(x, (1, 2, 0, 1)) * 2,
    "gather": lambda x, y: x[torch.arange(x.shape[0] - 1, -1, -1, device=x.device)] + y.roll(1, 1),
    "scatter": lambda x, y: x.index_add(0, places(x), y),
    "positions": lambda x, y: x + torch.arange(x.shape[1], device=x.device) * y.shape[0],
    "quotients of sizes": lambda x, y: x * (x.shape[1] // 2) + y * (x.shape[0] % 5),
    "half": lambda x, y: torch.softmax(x.half(), -1) * y.bfloat16().sum(-1, keepdim=True),
}


def operands(rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    x, y = torch.randn(2, rows, columns, generator=generator, device="cuda")
    return x, y


def same(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_object_for_all_sizes(native: Native, name: str) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    kernels = set()
    for number, (rows, columns) in enumerate(SIZES):
        x, y = operands(rows, columns, number)
        # Sums of many numbers, in another order than eager's, and the rounding of 16 bits.
        same(compiled(x, y), function(x, y), {"everything": 1e-2, "half": 2e-2, "columns": 1e-3}.get(name, 1e-4))
        kernels.add(native())
    assert len(kernels) == 1 and kernels != {0}


GRADIENTS = ("rows", "log softmax", "variances", "columns", "layer norm", "gather", "scatter", "concatenation")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_for_all_sizes(native: Native, name: str) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    kernels = set()
    for number, (rows, columns) in enumerate(SIZES):
        x, y = operands(rows, columns, number)
        found = []
        for run in (compiled, function):
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            results = run(*leaves)
            results = results if isinstance(results, tuple) else (results,)
            torch.autograd.backward([(r * r).sum() for r in results])
            found.append([leaf.grad for leaf in leaves])
        largest = max(1.0, *(float(g.abs().max()) for g in found[1] if g is not None))
        torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4 * largest)
        kernels.add(native())
    assert len(kernels) == 1 and kernels != {0}


@pytest.mark.parametrize("columns", [64, 100, 1000, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_dynamic_number_of_rows_of_known_length(native: Native, columns: int, dtype: torch.dtype) -> None:
    """The batch alone is dynamic: rows stay in registers, and are moved in vectors."""

    def block(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return F.layer_norm(x, x.shape[-1:], weight), F.gelu(x) * weight, x.float().sum(0), x.amax(-1)

    compiled = torch.compile(block, fullgraph=True)
    weight = torch.randn(columns, device="cuda", dtype=dtype)
    kernels = []
    for batch in (3, 17, 256, 1009, 2):
        x = torch.randn(batch, 5, columns, device="cuda", dtype=dtype)
        torch._dynamo.mark_dynamic(x, 0)
        tolerance = 2e-5 if dtype is torch.float32 else 2e-2
        same(compiled(x, weight), block(x, weight), tolerance * (batch**0.5))
        kernels.append(native())
    assert len(set(kernels)) == 1


def test_cross_entropy_of_any_batch_and_vocabulary(native: Native) -> None:
    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), target, ignore_index=-100)

    compiled = torch.compile(loss, dynamic=True, fullgraph=True)
    for rows, columns in ((5, 11), (64, 1000), (33, 50_257), (2, 3)):
        logits = torch.randn(rows, columns, device="cuda")
        target = torch.randint(0, columns, (rows,), device="cuda")
        target[0] = -100
        found = []
        for run in (compiled, loss):
            leaf = logits.clone().requires_grad_()
            value = run(leaf, target)
            value.backward()
            found.append((value.detach(), leaf.grad))
        same(found[0], found[1], 1e-5)
    assert native() >= 2


def test_embeddings_and_their_gradients(native: Native) -> None:
    def looked_up(weight: Tensor, index: Tensor) -> Tensor:
        return (F.embedding(index, weight) ** 2).sum(-1)

    compiled = torch.compile(looked_up, dynamic=True, fullgraph=True)
    for rows, columns, count in ((10, 64, 7), (1000, 65, 4099), (50, 128, 2)):
        weight = torch.randn(rows, columns, device="cuda")
        index = torch.randint(0, rows, (count,), device="cuda")
        found = []
        for run in (compiled, looked_up):
            leaf = weight.clone().requires_grad_()
            run(leaf, index).sum().backward()
            found.append(leaf.grad)
        same(found[0], found[1])
    assert native() >= 2


def test_accumulating_index_put(native: Native) -> None:
    def put(x: Tensor, i: Tensor, j: Tensor, v: Tensor) -> Tensor:
        return x.index_put((i, j), v, accumulate=True)

    compiled = torch.compile(put, dynamic=True, fullgraph=True)
    for rows, columns, count in ((9, 7, 100), (129, 65, 5000), (3, 4, 2)):
        x = torch.randint(-8, 9, (rows, columns), device="cuda").float()
        i, j = torch.randint(-rows, rows, (count,), device="cuda"), torch.randint(0, columns, (count,), device="cuda")
        v = torch.randint(-8, 9, (count,), device="cuda").float()
        assert torch.equal(compiled(x, i, j, v), put(x, i, j, v))
    assert native() >= 1


def test_sizes_that_become_dynamic_by_themselves(native: Native) -> None:
    """The second size makes Dynamo compile for all of them; the third one compiles nothing."""
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1))
    counts = []
    for rows in (5, 9, 70, 1033):
        x = torch.randn(rows, rows + 1, device="cuda")
        same(compiled(x), torch.softmax(x * 2, -1))
        counts.append(native())
    assert counts[0] < counts[1] == counts[2] == counts[3]


def test_a_size_that_is_data(native: Native) -> None:
    """An unbacked size, 0 among them: how many elements are positive is known when the kernel is launched."""

    def chosen(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x[x > 0]
        return z.exp() * 2 + 1, z.sum(), torch.cat([z * 2, y]), F.pad(z, (2, 3)) + 1, z[:, None] - y

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(chosen, fullgraph=True)
        y = torch.randn(6, device="cuda")
        for x in (torch.randn(30), torch.randn(5000), -torch.ones(30), torch.ones(1), torch.randn(4099)):
            same(compiled(x.cuda(), y), chosen(x.cuda(), y), 1e-3)
    assert native() >= 1


@pytest.mark.parametrize("length", [0, 1, 2, 127, 128, 129, 1024, 100_003])
def test_rows_and_lengths_around_a_block(native: Native, length: int) -> None:
    """0 and 1, too, which an unbacked size may be."""

    def work(x: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        n = count.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[1])
        z = x.narrow(1, 0, n)
        return z * 2 + 1, z.sum(1), (z + 1).sum(0), z.exp().sum()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(work, fullgraph=True)
        x, count = torch.rand(3, 100_003, device="cuda"), torch.tensor(length)
        same(compiled(x, count), work(x, count), 1e-3)
    assert native() >= 1


def test_nothing_beyond_the_end_is_written(native: Native) -> None:
    def update(x: Tensor) -> Tensor:
        return x.add_(3)

    compiled = torch.compile(update, dynamic=True)
    for count in (2, 7, 1001, 4099, 100_003):
        for dtype in (torch.float32, torch.bfloat16, torch.uint8):
            whole = (torch.randn(count + 64, device="cuda") * 10).to(dtype)
            wanted = whole.clone()
            wanted[:count] += 3
            compiled(whole[:count])
            assert torch.equal(whole, wanted)
    assert native() >= 3


def test_symbolic_strides_and_offsets(native: Native) -> None:
    compiled = torch.compile(lambda x: (x * 2 + 1, x.sum(0), torch.softmax(x, -1)), dynamic=True, fullgraph=True)
    for rows, columns, step in ((9, 7, 2), (40, 33, 2), (13, 64, 3), (129, 1025, 2)):
        x = torch.randn(rows + 1, columns * step, device="cuda")[1:, 1::step]
        same(compiled(x), (x * 2 + 1, x.sum(0), torch.softmax(x, -1)))
    assert native() >= 1


def test_several_dynamic_axes_of_a_row(native: Native) -> None:
    """Attention scores: three dynamic axes that no view makes one."""

    def scores(q: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        s = q + bias[:, None, :, :]
        return torch.softmax(s, -1), s.amax(-1)

    compiled = torch.compile(scores, dynamic=True, fullgraph=True)
    for batch, heads, length in ((2, 3, 17), (3, 8, 128), (5, 2, 300)):
        q, bias = torch.randn(batch, heads, length, length, device="cuda"), torch.randn(batch, length, length).cuda()
        same(compiled(q, bias), scores(q, bias))
    assert native() >= 1


def test_random_numbers_are_those_of_a_static_kernel(native: Native) -> None:
    def drawn(x: Tensor) -> Tensor:
        return F.dropout(x, 0.3) + torch.rand_like(x)

    found = []
    for dynamic in (True, False):
        torch._dynamo.reset()
        compiled = torch.compile(drawn, dynamic=dynamic)
        values = []
        for shape in ((33, 65), (128, 1024)):
            torch.manual_seed(7)
            values.append(compiled(torch.ones(*shape, device="cuda")))
        found.append(values)
    assert all(torch.equal(a, b) for a, b in zip(*found))
    assert native() >= 2


def test_a_bad_index_ends_the_kernel() -> None:
    program = (
        "import torch, torch.nn.functional as F, halide_backend\n"
        "from torch._inductor import config\n"
        "config.cuda_backend = 'halide_backend'\n"
        "f = torch.compile(lambda w, i: F.embedding(i, w) * 2, dynamic=True)\n"
        "w = torch.randn(100, 33, device='cuda')\n"
        "f(w, torch.arange(50, device='cuda')); torch.cuda.synchronize(); print('fine')\n"
        "f(w, torch.full((70,), 100, device='cuda')); torch.cuda.synchronize(); print('silent')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "fine" in done.stdout
    assert "silent" not in done.stdout
    assert "CUDA error" in done.stderr


def test_more_elements_than_int32_can_index_are_refused(native: Native) -> None:
    """One kernel is compiled for all sizes; a number of elements that does not fit is an error before anything runs."""
    compiled = torch.compile(lambda x: x + 1, dynamic=True)
    compiled(torch.zeros(2, 1000, dtype=torch.uint8, device="cuda"))
    kernels = native()
    for columns in (2**30, 2**30 - 1000):
        with pytest.raises(KernelArgumentError, match="does not fit 32 bits"):
            compiled(torch.zeros(2, columns, dtype=torch.uint8, device="cuda"))
    large = compiled(torch.zeros(2, 2**30 - (1 << 17), dtype=torch.uint8, device="cuda"))
    assert bool((large == 1).all())
    assert native() == kernels


def test_a_model_in_training_with_a_changing_batch(native: Native) -> None:
    """Batch and length change in every step; the losses are eager's."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda()
    head = torch.nn.Linear(64, 100).cuda()
    embedding = torch.nn.Embedding(100, 64).cuda()

    def loss(tokens: Tensor) -> Tensor:
        hidden = layer(embedding(tokens))
        return F.cross_entropy(head(hidden).flatten(0, 1), tokens.flatten())

    with inductor_config.patch(max_autotune=False):
        compiled = torch.compile(loss, dynamic=True)
        for batch, length in ((4, 16), (7, 33), (3, 100), (16, 64)):
            tokens = torch.randint(0, 100, (batch, length), device="cuda")
            found = []
            for run in (compiled, loss):
                for module in (layer, head, embedding):
                    module.zero_grad()
                value = run(tokens)
                value.backward()
                found.append((value.detach(), embedding.weight.grad, layer.linear1.weight.grad))
            same(found[0], found[1], 1e-4)
    assert native() >= 4


@pytest.mark.parametrize("k", [4, -5, 3_000_000_001, -(1 << 61) - 12345])
def test_integers_are_data(native: Native, k: int) -> None:
    """They have 64 bits, and quotients round as Python's."""

    def function(x: Tensor, k: int) -> tuple[Tensor, ...]:
        positions = torch.arange(x.shape[0], device=x.device)
        return x + k, x + max(k, 0), x + k // -3, x + k % -5, positions * 3 + k + x, x.sum() + abs(k)

    x = torch.arange(-6, 1000, device="cuda")
    compiled = torch.compile(function, dynamic=True)
    for found, wanted in zip(compiled(x, k), function(x, k), strict=True):
        assert torch.equal(found, wanted)
    assert native() >= 2
