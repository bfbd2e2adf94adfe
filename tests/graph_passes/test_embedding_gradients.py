"""Gradients of embeddings in 16 bits: right against float64, without a table in float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import compile_for

ROWS, WIDTH = 600, 24

#: Bits of a number's fraction, and one more that the sum of a few rounded numbers may lose.
_PRECISION = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


def gradient(
    function: Callable[[Tensor, Tensor], Tensor], table: Tensor, tokens: Tensor, dynamic: bool = False
) -> tuple[Tensor, Tensor, str]:
    """The gradient of `table` from the compiled `function`, that from float64, and the code that was generated."""
    compiled = compile_for("halide_backend", function, dynamic=dynamic)
    leaf, exact = table.clone().requires_grad_(), table.double().requires_grad_()
    result = compiled.call(leaf, tokens)
    outer = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result.dtype)
    result.backward(outer)
    function(exact, tokens).backward(outer.double())
    assert leaf.grad is not None and exact.grad is not None
    return leaf.grad, exact.grad, compiled.codes[-1]


def has_float32_table(code: str) -> bool:
    return f"({ROWS}, {WIDTH}), ({WIDTH}, 1), torch.float32" in code


def check(found: Tensor, wanted: Tensor) -> None:
    error = (found.double() - wanted).abs() / wanted.abs().clamp(min=1)
    assert error.max() <= _PRECISION[found.dtype], error.max()


TOKENS = {
    "few_rows": torch.arange(200).reshape(4, 50) % 7,
    "all_different": torch.arange(0, 600, 2),
    "one_row": torch.full((2, 60), 5),
    "int32": (torch.arange(240) * 37 % 600).to(torch.int32),
    "one_token": torch.tensor([599]),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("padding", [None, 5, 0])
def test_rows_are_added_up_in_float32(name: str, dtype: torch.dtype, padding: int | None) -> None:
    table = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)
    found, wanted, code = gradient(lambda w, i: F.embedding(i, w, padding_idx=padding), table, TOKENS[name])
    check(found, wanted)
    assert not has_float32_table(code)


def test_a_row_of_many_tokens_is_as_exact_as_float32() -> None:
    """Eager rounds after each of 256 tokens, and is 0.5 off."""
    table = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16)
    found, wanted, _ = gradient(lambda w, i: F.embedding(i, w), table, torch.full((256,), 3))
    check(found, wanted)


@pytest.mark.parametrize(
    ("tokens", "dtype"),
    [(torch.arange(400) * 7 % 600, torch.bfloat16), (torch.arange(30), torch.float32)],
    ids=["many_tokens", "float32"],
)
def test_what_would_gain_nothing_is_left(tokens: Tensor, dtype: torch.dtype) -> None:
    table = torch.randn(ROWS, WIDTH).to(dtype)
    found, wanted, code = gradient(lambda w, i: F.embedding(i, w), table, tokens)
    assert has_float32_table(code)
    assert (found.double() - wanted).abs().max() <= 2**-6


def test_dynamic_numbers_of_tokens_are_left() -> None:
    table = torch.randn(ROWS, WIDTH).bfloat16()
    found, wanted, _ = gradient(lambda w, i: F.embedding(i, w), table, torch.arange(100) % 9, dynamic=True)
    check(found, wanted)


def test_a_scatter_of_more_than_rows_is_left() -> None:
    def scatter(values: Tensor, index: Tensor) -> Tensor:
        zeros = torch.zeros(ROWS, WIDTH)
        return zeros.index_put((index, index % WIDTH), values.float(), accumulate=True).bfloat16()

    values, index = torch.randn(100).bfloat16(), torch.arange(100) % 40
    found = compile_for("halide_backend", scatter).call(values, index)
    check(found, scatter(values.double(), index).double())


def test_negative_places_count_from_the_end() -> None:
    """Not an embedding: its places are checked, and may be negative."""

    def scatter(values: Tensor, index: Tensor) -> Tensor:
        return torch.zeros(ROWS, WIDTH).index_put((index,), values.float(), accumulate=True).bfloat16()

    values, index = torch.randn(100, WIDTH).bfloat16(), torch.arange(100) % 40 - 20
    compiled = compile_for("halide_backend", scatter)
    check(compiled.call(values, index), scatter(values, index).double())
    assert not has_float32_table(compiled.codes[-1])
    with pytest.raises((IndexError, RuntimeError)):
        compiled.call(values, index + ROWS)
