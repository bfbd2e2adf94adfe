"""What is turned in tiles: values, not their operands, masked loads, and results rather than the operands of rows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import compile_for


def code_of(function: object, *arguments: Tensor) -> str:
    """The code of the one kernel of `function`, whose results are those of eager in float64."""
    found = compile_for("halide_backend", function)
    ours = found(*arguments)
    truth = function(*(each.double() if each.is_floating_point() else each for each in arguments))
    pairs = zip(ours, truth, strict=True) if isinstance(ours, tuple) else ((ours, truth),)
    for one, other in pairs:
        torch.testing.assert_close(one.to(other.dtype), other, rtol=1e-5, atol=1e-4)  # norms of norms, in float32
    (code,) = found.codes
    assert code.count("load_kernel(") == 1
    return code


@pytest.mark.parametrize(("rows", "columns"), [(196, 320), (49, 250), (7, 33), (64, 64)])
def test_a_sum_is_turned_once(rows: int, columns: int) -> None:
    def turned(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return ((x + y) * z).transpose(1, 2).contiguous()

    code = code_of(turned, *(torch.randn(2, rows, columns) for _ in range(3)))
    assert code.count("memory.transposed(") == (1 if min(rows, columns) > 7 else 0)


def test_what_is_turned_may_have_a_factor_for_each_row_or_column() -> None:
    def turned(x: Tensor, y: Tensor, z: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        total = (x * scale[:, None] + y + bias).transpose(1, 2).contiguous()
        return total * z

    x, y, z = torch.randn(2, 100, 70), torch.randn(2, 100, 70), torch.randn(2, 70, 100)
    code = code_of(turned, x, y, z, torch.randn(100), torch.randn(70))
    assert code.count("memory.transposed(") == 1


def test_a_load_that_is_needed_by_itself_is_turned_by_itself() -> None:
    def turned(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        sides = (x > 0).transpose(1, 2) & (z > 0)
        return torch.where(sides, (x + y).transpose(1, 2), z).contiguous()

    x, y, z = torch.randn(2, 100, 70), torch.randn(2, 100, 70), torch.randn(2, 70, 100)
    assert code_of(turned, x, y, z).count("memory.transposed(") == 2


def test_a_sum_that_two_results_need_is_turned_for_both() -> None:
    def turned(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return (total * 2).transpose(1, 2).contiguous(), (total - z).transpose(1, 2).contiguous()

    code = code_of(turned, *(torch.randn(3, 33, 50) for _ in range(3)))
    assert code.count("memory.transposed(") == 2  # The sum, and what is subtracted.


def test_norms_and_functions_are_turned_with_their_operands() -> None:
    def turned(x: Tensor, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        norm = (x - mean[:, None]) * (variance[:, None] + 1e-5).rsqrt()
        return F.gelu(norm + y).transpose(1, 2).contiguous()

    code = code_of(turned, torch.randn(3, 33, 50), torch.randn(3, 33, 50), torch.randn(33), torch.rand(33) + 0.1)
    assert code.count("memory.transposed(") == 1


def test_elements_of_16_bits_are_turned_before_they_are_added() -> None:
    def turned(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).transpose(0, 1).contiguous()

    x, y = (torch.randn(130, 70).bfloat16() for _ in range(2))
    found = compile_for("halide_backend", turned)
    torch.testing.assert_close(found(x, y), turned(x, y), rtol=0, atol=0)
    assert found.codes[0].count("memory.transposed(") == 2


def test_padding_is_turned() -> None:
    """A scan's gradient: gates along the steps, and states across them, of which the last ones are padding."""

    def padded(states: Tensor, gates: Tensor) -> Tensor:
        return F.pad(states.transpose(1, 2) * gates, (0, 3)) + 1

    code = code_of(padded, torch.randn(2, 64, 130), torch.randn(2, 130, 64))
    assert code.count("memory.transposed(") == 1


@pytest.mark.parametrize("channels", [16, 30, 96, 256])
def test_a_norm_of_a_norm_is_computed_along_its_pixels(channels: int) -> None:
    def norms(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        first = F.layer_norm(x.flatten(2).transpose(1, 2), (channels,), weight)
        return first, F.layer_norm(first, (channels,))

    code = code_of(norms, torch.randn(2, channels, 24, 20), torch.randn(channels))
    assert "memory.transposed(" in code and "Role.STAGED_LOAD" in code
    assert "Vectorize('sum_0', 'x1_" in code


def test_rows_that_are_looked_up_stay_rows() -> None:
    """A norm of pixels' channels, to which positions are added that are enlarged: of more operands than not the
    channels lie side by side."""

    def positions(x: Tensor, table: Tensor) -> Tensor:
        enlarged = F.interpolate(table, (20, 16), mode="bilinear").flatten(2).transpose(1, 2)
        return F.layer_norm(x.flatten(2).transpose(1, 2), (64,)) + enlarged

    table = torch.randn(1, 10, 8, 64).permute(0, 3, 1, 2)
    code = code_of(positions, torch.randn(2, 64, 20, 16), table)
    assert "Vectorize('out_ptr0', 'x2_v')" in code and code.count("memory.transposed(") == 1


def test_a_block_has_few_columns_where_much_is_turned_for_it() -> None:
    """The gradient of a norm of pixels' channels, added to one of another norm and stored as a picture: operands
    across, and what several loops share of them, of which a cache holds that of a few columns."""

    def gradient(
        x: Tensor, g: Tensor, h: Tensor, residual: Tensor, table: Tensor, rows: Tensor, weights: Tensor
    ) -> tuple[Tensor, ...]:
        inner, outer = ((v - m) * s for v, m, s in ((x.transpose(1, 2), rows[0], rows[1]), (table, rows[2], rows[3])))
        norm, g = outer + inner * weights[0], (g + h) * weights[1]
        found = g * 128 - g.sum(2, keepdim=True) - norm * (g * norm).sum(2, keepdim=True)
        total = residual + (found * (rows[3] / 128)).transpose(1, 2)
        last = total * weights[0][:, None]
        return norm.contiguous(), total, last.sum(1), (last * inner.transpose(1, 2)).sum(1)

    pictures, others = torch.randn(2, 2, 128, 784), torch.randn(2, 2, 784, 128) / 8
    rows, weights = torch.rand(4, 2, 784, 1) / 8, torch.randn(2, 128)
    code = code_of(gradient, pictures[0], *others, pictures[1], torch.randn(784, 128), rows, weights)
    found = re.search(r"Split\('out_ptr\d', 'x1', 'x1_b', 'x1_i', (\d+)\)", code)
    assert found is not None and int(found[1]) <= 64


def test_rows_of_tiles_beside_blocks_of_their_width_are_unrolled() -> None:
    """A block of 16 columns is a tile's: its elements are adjacent, and no gathers."""

    def attention_gradient(x: Tensor, blocks: Tensor, parts: Tensor) -> Tensor:
        total, zeros = blocks, torch.zeros_like(blocks)
        for number, place in enumerate((0, 1, 2, -1)):
            part = parts[..., 16 * number : 16 * number + 16].transpose(1, 2)
            total = total + torch.select_scatter(zeros, part, 1, place)
        return x + total.reshape(x.shape[0], -1, x.shape[1]).transpose(1, 2)

    code = code_of(attention_gradient, torch.randn(3, 64, 256), torch.randn(3, 16, 16, 64), torch.randn(3, 64, 96))
    assert "STAGED_LOAD" in code and "Unroll('out_ptr0', 'x1_u')" in code


def lower(x: Tensor) -> Tensor:
    return x.tril().t().contiguous()


def folded(x: Tensor) -> Tensor:
    return x.triu() + x.tril(-1).t()


def upper_elsewhere(x: Tensor) -> Tensor:
    return torch.where(torch.ones_like(x).triu(9) > 0, x.t(), -x)


@pytest.mark.parametrize("size", [33, 40, 100, 128])
@pytest.mark.parametrize("function", [lower, folded, upper_elsewhere])
def test_tiles_that_a_condition_leaves_out_are_stored_in_their_place(
    function: Callable[[Tensor], Tensor], size: int
) -> None:
    """Those below a diagonal were stored beyond their memory: a segmentation fault."""
    assert "memory.transposed(" in code_of(function, torch.randn(size, size))
