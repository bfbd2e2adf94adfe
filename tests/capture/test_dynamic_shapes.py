"""One compilation serves every size: extents and strides are arguments of the object."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend

#: More columns than rows: Inductor makes a guard of that, and another compilation behind it.
SIZES = ((6, 8), (37, 65), (8, 1003), (16, 129), (4, 5))


def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y * 2, x[:, 1:]], 1)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]]] = {
    "pointwise": lambda x, y: torch.where(x > y, x.exp(), y) * x.shape[0] / (x.shape[1] + 0.5),
    "rows": lambda x, y: torch.softmax(x, -1) + y.sum(-1, keepdim=True),
    "columns": lambda x, y: (x.var(0), y.amax(0), (x * y).mean(0)),
    "layer norm": lambda x, y: F.layer_norm(x, x.shape[1:]) * y,
    "everything": lambda x, y: (x * y).sum() / x.numel(),
    "argmax": lambda x, y: (x.argmax(1), y.argmin(0), (x + y).argmax()),
    "transpose": lambda x, y: (x.t().contiguous(), (x + y).t().contiguous() * 3),
    "reshape": lambda x, y: (x.reshape(-1) * 2, (x > y).reshape(x.shape[1], x.shape[0]), x.t().reshape(x.shape)),
    "views of a product of sizes": lambda x, y: (x[:, None] != y).flatten(1) ^ (x[:1, None] < y).flatten(1),
    "concatenation": joined,
    "padding": lambda x, y: F.pad(x, (1, 2, 0, 1)) * 2,
    "gather": lambda x, y: x[torch.arange(x.shape[0] - 1, -1, -1)] + y.roll(1, 1),
    "scatter": lambda x, y: x.index_add(0, torch.zeros(x.shape[0], dtype=torch.int64), y),
    "positions": lambda x, y: x + torch.arange(x.shape[1]) * y.shape[0],
    # Sizes that Inductor computes in floating point and rounds; the second from the first.
    "interpolation": lambda x, y: F.interpolate(x[None, None], scale_factor=0.5, mode="bilinear"),
    "two interpolations": lambda x, y: F.interpolate(
        F.interpolate(x[None, None], scale_factor=1.7, mode="bilinear") * 2, scale_factor=0.6, mode="nearest"
    ),
    "quotients of sizes": lambda x, y: x * (x.shape[1] // 2) + y * (x.shape[0] % 5),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_one_object_for_all_sizes(function: Callable[..., object]) -> None:
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    kernels = set()
    for number, (rows, columns) in enumerate(SIZES):
        generator = torch.Generator().manual_seed(number)
        x, y = torch.randn(2, rows, columns, generator=generator)
        torch.testing.assert_close(compiled(x, y), function(x, y))
        kernels.add(halide_backend.stats()["native_kernels"])
    assert len(kernels) == 1 and kernels != {0}
    assert halide_backend.stats()["delegation_reasons"] == {}


@pytest.mark.parametrize("function", [FUNCTIONS[name] for name in ("rows", "columns", "layer norm", "scatter")])
def test_gradients_for_all_sizes(function: Callable[..., object]) -> None:
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for number, (rows, columns) in enumerate(SIZES):
        generator = torch.Generator().manual_seed(number)
        x, y = torch.randn(2, rows, columns, generator=generator)
        found = []
        for run in (compiled, function):
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            results = run(*leaves)
            results = results if isinstance(results, tuple) else (results,)
            torch.autograd.backward([(r * r).sum() for r in results])
            found.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
    assert halide_backend.stats()["delegation_reasons"] == {}


def test_sizes_that_become_dynamic_by_themselves() -> None:
    """The second size makes Dynamo compile for all of them; the third one compiles nothing."""
    halide_backend.reset_stats()
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1))
    counts = []
    for rows in (5, 9, 70, 33):
        x = torch.randn(rows, rows + 1)
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1))
        counts.append(halide_backend.stats()["native_kernels"])
    assert counts[0] < counts[1] == counts[2] == counts[3]


def test_a_size_that_is_data() -> None:
    """An unbacked size: how many elements are positive is known when the kernel is launched."""
    halide_backend.reset_stats()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda x: x[x > 0].exp() * 2 + 1, fullgraph=True)
        for length in (30, 500, 7):
            x = torch.randn(length)
            torch.testing.assert_close(compiled(x), x[x > 0].exp() * 2 + 1)
        assert compiled(-torch.ones(30)).shape == (0,)
    assert halide_backend.stats()["native_kernels"] >= 1


def test_a_check_of_no_points_does_not_fail() -> None:
    """The largest of no conditions was the smallest int32, which is not zero: an IndexError without an index."""

    def rows(x: Tensor, index: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        places = index[chosen.nonzero().squeeze(1)]
        return x[places] * 2, 60 // places

    x, index = torch.randn(5, 7), torch.tensor([1, 3, 4, 1])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(rows, fullgraph=True)
        for chosen in ((True, True, False, False), (False,) * 4, (True,) * 4):
            mask = torch.tensor(chosen)
            torch.testing.assert_close(compiled(x, index, mask), rows(x, index, mask))
        with pytest.raises(IndexError):
            compiled(x, index + 3, torch.tensor((True, False, True, True)))


def test_symbolic_strides_and_offsets() -> None:
    halide_backend.reset_stats()
    compiled = torch.compile(lambda x: (x * 2 + 1, x.sum(0)), dynamic=True, fullgraph=True)
    for rows, columns, step in ((9, 7, 2), (40, 33, 2), (13, 64, 3)):
        x = torch.randn(rows + 1, columns * step)[1:, 1::step]
        torch.testing.assert_close(compiled(x), (x * 2 + 1, x.sum(0)))
    assert halide_backend.stats()["delegation_reasons"] == {}


@pytest.mark.parametrize("length", [1000, 300_001])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_memory_that_is_overwritten_from_its_neighbours(length: int, shift: int) -> None:
    """Inductor writes the copy into the memory that it reads; in parallel and in vectors, old values would be lost."""

    def move(x: Tensor) -> Tensor:
        x[1:-1].copy_((x * 2)[1 + shift : len(x) - 1 + shift])
        return x

    halide_backend.reset_stats()
    x = torch.randn(length)
    wanted = move(x.clone())
    assert torch.equal(torch.compile(move, dynamic=True)(x), wanted)
    assert torch.equal(x, wanted)
    assert halide_backend.stats()["delegation_reasons"] == {}


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    return x * cosine + torch.cat((-x[..., 4:], x[..., :4]), -1) * sine


def overwritten_columns(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 1:5].copy_(x[:, :4].exp())
    return y


@pytest.mark.parametrize("function", [rotated, overwritten_columns], ids=["rotated", "columns"])
def test_a_few_columns_of_longer_rows_are_no_scatter(function: Callable[..., Tensor]) -> None:
    """The strides alone do not say that rows are longer than the four columns that are stored; guards do."""
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for columns in (8, 9, 37):
        x = torch.randn(6, 5, columns) if function is rotated else torch.randn(6, columns)
        others = (torch.randn(5, columns), torch.randn(5, columns)) if function is rotated else ()
        torch.testing.assert_close(compiled(x, *others), function(x, *others))
    texts = [record.text for record in halide_backend.records()]
    assert texts and not any("Role.SCATTER" in text for text in texts)


def corners(x: Tensor, ends: Tensor, rows: Tensor) -> Tensor:
    x = x.clone()
    x[:, -8:-4, :3] = ends[..., :3]
    x[:, -8:-4, -5:] = ends[..., 3:8]
    x[:, -4:] = rows
    return x


def middle(x: Tensor, part: Tensor) -> Tensor:
    x = x.clone()
    x[:, 2:6, 1:8] = part
    return x


@pytest.mark.parametrize(("function", "width", "clamps"), [(corners, 8, 5), (middle, 7, 2)], ids=["corners", "middle"])
def test_parts_are_read_along_the_dimensions_of_their_buffers(
    function: Callable[..., Tensor], width: int, clamps: int
) -> None:
    """Wherever the last rows of a picture begin: of the whole index that is clamped each element of a vector is loaded
    by itself."""
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for images, rows, columns in ((3, 300, 410), (1, 8, 8), (2, 9, 100), (5, 300, 17), (2, 8, 16), (7, 10, 257)):
        parts = [torch.randn(images, 4, width + (function is corners))]
        parts += [torch.randn(images, 4, columns)] if function is corners else []
        x = torch.randn(images, rows, columns)
        assert torch.equal(compiled(x, *parts), function(x, *parts))
    texts = [record.text for record in halide_backend.records()]
    assert texts and all(text.split("VARIANT")[0].count("hl.clamp(") == clamps for text in texts)
    assert halide_backend.stats()["delegation_reasons"] == {}


@pytest.mark.parametrize("factors", [(2.0,), (3.0,), (2.0, 3.0), (1.0, 2.0), (2.0, 2.0, 2.0)], ids=str)
def test_upsampling_reads_at_quotients(factors: tuple[float, ...]) -> None:
    halide_backend.reset_stats()

    def upsampled(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=factors, mode="nearest") + 1

    compiled = torch.compile(upsampled, dynamic=True, fullgraph=True)
    for size in (5, 6, 17):
        x = torch.randn(2, 3, *(size + number for number in range(len(factors))))
        torch.testing.assert_close(compiled(x), upsampled(x))
    texts = [record.text for record in halide_backend.records()]
    assert texts and not any("ops.indirect" in text for text in texts)


def test_positions_that_are_added_up() -> None:
    """Half of a position, as two fourths of it, from integers of two types."""

    def halves(x: Tensor) -> Tensor:
        fourth = torch.arange(2 * x.shape[0]) * 0.25 + torch.arange(2 * x.shape[0], dtype=torch.int32) * 0.25
        return torch.ops.aten._unsafe_index(x, [fourth.long()]) + 1

    compiled = torch.compile(halves, dynamic=True, fullgraph=True)
    for size in (5, 8, 33):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), halves(x))


def turned_halves(x: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return torch.cat((one * 0.6 - other * 0.8, other * 0.6 + one * 0.8), -1)


def turned_thirds(x: Tensor) -> Tensor:
    one, two, three = x.chunk(3, -1)
    return torch.cat((one * two, two + three, three * one), -1)


def halves_added_up(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(half.exp().sum(-1) for half in x.chunk(2, -1))


@pytest.mark.parametrize(("function", "kernels"), [(turned_halves, 1), (turned_thirds, 1), (halves_added_up, 2)])
def test_halves_that_are_equal_are_one_loop(function: Callable[[Tensor], Tensor], kernels: int) -> None:
    """What is made of both of n//2 and (n + 1)//2 elements; of an odd number they are different loops."""
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    columns = [81, 80, 5, 33] if function is halves_added_up else [78, 84, 6, 300]
    for number, length in enumerate(columns):
        x = torch.randn(3 + number, 5, length)
        torch.testing.assert_close(compiled(x), function(x))
    assert len(halide_backend.records()) == kernels
    assert halide_backend.stats()["delegation_reasons"] == {}
