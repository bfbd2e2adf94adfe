"""Attention as a kernel of this backend: its values against float64, and which operator computed it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.build import artifacts
from halide_backend.errors import HalideCompileError
from halide_backend.graph_passes import attention_call
from halide_backend.inspection.compiled import Compiled, compile_for

OURS, ATENS = "halide_backend.attention.default(", "_scaled_dot_product_flash_attention_for_cpu.default("

#: Relative to the largest value.
BOUND = 2e-6


@pytest.fixture(autouse=True)
def no_kernels() -> Iterator[None]:
    attention_call._kernels.clear()
    artifacts._memory.ahead.clear()
    yield
    attention_call._kernels.clear()


def random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def operands(batch: int, heads: int, queries: int, keys: int, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """As a linear layer leaves them: the heads of a query lie together."""
    sizes = [(batch, rows, heads, depth) for rows in (queries, keys, keys)]
    return tuple(random(*size[:3], depth + n)[..., :depth].transpose(1, 2) for n, size in enumerate(sizes))  # type: ignore[return-value]


def check(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, ours: bool = True, **named: Any
) -> Compiled:
    """Compiled attention against that of float64, or of eager where its way with a mask of booleans counts."""
    options = {f"halide_backend.{name}": named.pop(name) for name in ("attention", "target") if name in named}
    given = (query, key, value) if mask is None else (query, key, value, mask)

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **named) * 2

    compiled = compile_for("halide_backend", attend, options={"halide_backend.attention": "halide", **options})
    with torch.no_grad():
        got = compiled(*given)
        eager = attend(*given)
        wanted = attend(*(each.double() if each.is_floating_point() else each for each in given))
    assert got.stride() == eager.stride()
    scale = float(wanted[wanted.isfinite()].abs().max())
    torch.testing.assert_close(got.double(), wanted, atol=BOUND * scale, rtol=0, equal_nan=True)
    assert None not in attention_call._kernels.values(), "a kernel was refused"
    assert not artifacts._memory.ahead, "another kernel was built ahead"
    code = "".join(compiled.codes)
    assert (code.count(OURS), code.count(ATENS)) == ((1, 0) if ours else (0, 1))
    # Whoever loads the code of a graph has to find the operator.
    assert (f"import {attention_call.__name__}\n" in code) == ours
    return compiled


@pytest.mark.parametrize(
    ("batch", "heads", "queries", "keys", "depth"),
    [
        (2, 3, 37, 37, 64),
        (1, 2, 8, 5, 16),
        (1, 2, 9, 1, 32),
        (2, 1, 100, 33, 48),
        (1, 2, 31, 64, 80),
        (1, 1, 24, 250, 128),
        (1, 2, 197, 197, 64),
        (1, 1, 18, 34, 32),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_sizes(batch: int, heads: int, queries: int, keys: int, depth: int, causal: bool) -> None:
    check(*operands(batch, heads, queries, keys, depth), is_causal=causal)


@pytest.mark.parametrize("target", ["avx2", "sse41"])
def test_vectors_of_other_lengths(target: str) -> None:
    check(*operands(2, 2, 37, 45, 48), target=target)


def test_a_scale() -> None:
    check(*operands(1, 2, 40, 40, 32), scale=0.75)


def test_contiguous_heads() -> None:
    check(random(2, 3, 32, 64), random(2, 3, 40, 64), random(2, 3, 40, 64))


def test_rows_that_are_not_contiguous() -> None:
    """The graph has none, but what Inductor hands over is not the operator's to choose."""
    query, key = random(2, 3, 64, 32).transpose(2, 3), random(2, 3, 64, 40).transpose(2, 3)
    value, mask = random(2, 3, 40, 128)[..., ::2], random(40, 32).t()
    got = torch.ops.halide_backend.attention(query, key, value, mask, False, 0.5, "")
    wide = (each.double() for each in (query, key, value))
    wanted = F.scaled_dot_product_attention(*wide, attn_mask=mask.double(), scale=0.5)
    torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=0)


def test_one_key_for_all_heads_and_batches() -> None:
    key = random(1, 1, 40, 64).expand(2, 3, 40, 64)
    check(random(2, 3, 32, 64), key, key)


MASKS = {
    "for all": random(40, 50),
    "of heads": random(1, 3, 40, 50),
    "of batches": random(2, 1, 40, 50),
    "of keys": random(2, 1, 1, 50),
    "of queries": random(2, 3, 40, 1),
    "of each": random(2, 3, 40, 50),
    "a part": random(2, 3, 40, 70)[..., 7:57],
    "transposed": random(2, 3, 50, 40).transpose(2, 3),
    "booleans": random(40, 50) > 0,
    "keys unseen by all": (torch.arange(50) != 7).expand(2, 1, 40, 50),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks(mask: Tensor) -> None:
    check(*operands(2, 3, 40, 50, 32), mask)


def test_a_query_that_sees_no_key_has_the_result_0() -> None:
    mask = torch.ones(40, 40, dtype=torch.bool)
    mask[5] = False
    query, key, value = operands(1, 2, 40, 40, 32)
    check(query, key, value, mask)
    check(query, key, value, torch.where(mask, 0.0, -torch.inf))


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
@pytest.mark.parametrize("keys", [32, 45])
def test_what_is_no_number_reaches_the_result(odd: float, keys: int) -> None:
    query, key, value = operands(1, 2, 40, keys, 32)
    query, key = query.abs(), key.clone()
    key[0, 0, 3] = odd
    compiled = check(query, random(1, 2, keys, 32), value)
    got = compiled(query, key, value)
    assert got[0, 0].isnan().all() and got[0, 1].isfinite().all()
    value[0, 0, 3] = odd
    torch.testing.assert_close(
        compiled(query, value, value), 2 * F.scaled_dot_product_attention(query, value, value), equal_nan=True
    )


def test_scores_far_apart_have_about_the_error_of_atens() -> None:
    query, key, value = operands(1, 2, 40, 40, 32)
    given = (query * 100, key * 100, value)
    wanted = F.scaled_dot_product_attention(*(each.double() for each in given), scale=0.2)
    atens = (F.scaled_dot_product_attention(*given, scale=0.2) - wanted).abs().max()
    ours = (torch.ops.halide_backend.attention(*given, None, False, 0.2, "") - wanted).abs().max()
    assert 0 < ours <= 2 * atens


def test_parts_on_several_threads() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(*operands(3, 5, 70, 70, 64))
    finally:
        torch.set_num_threads(threads)


def test_operands_of_other_strides_have_a_kernel_of_their_own() -> None:
    query, key, value = operands(1, 2, 40, 40, 32)
    compiled = check(query, key, value)
    torch.testing.assert_close(
        torch.ops.halide_backend.attention(query.contiguous(), key.contiguous(), value, None, False, 0.5, ""),
        F.scaled_dot_product_attention(query, key, value, scale=0.5),
    )
    torch.testing.assert_close(compiled(query, value, key), 2 * F.scaled_dot_product_attention(query, value, key))


def test_what_stays_with_aten() -> None:
    query, key, value = operands(1, 2, 40, 40, 32)
    check(query, key, value, attention="aten", ours=False)
    check(*operands(1, 2, 7, 40, 32), ours=False)
    check(*operands(1, 2, 40, 40, 22), ours=False)


def test_batches_that_are_too_far_apart_for_int32(caplog: pytest.LogCaptureFixture) -> None:
    far = torch.empty(2**31 + 32 * 32).as_strided((2, 1, 32, 32), (2**31, 0, 32, 1))  # two pages of 8 GB are touched
    query, key, value = (far.copy_(random(2, 1, 32, 32)), *operands(2, 1, 32, 32, 32)[1:])
    got = torch.ops.halide_backend.attention(query, key, value, None, False, 0.5, "")
    torch.testing.assert_close(got, F.scaled_dot_product_attention(query.contiguous(), key, value, scale=0.5))
    assert not caplog.records  # Halide would have refused the index


def test_a_kernel_that_cannot_be_compiled_is_left_to_aten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*arguments: Any) -> None:
        raise HalideCompileError("no", where="here", cure="none")

    query, key, value = operands(1, 2, 48, 48, 32)
    monkeypatch.setattr(attention_call, "_kernel", lambda *known: refused)
    with caplog.at_level(logging.WARNING, "halide_backend"):
        for _ in range(2):
            got = torch.ops.halide_backend.attention(query, key, value, None, False, 0.5, "")
            torch.testing.assert_close(got, F.scaled_dot_product_attention(query, key, value, scale=0.5))
    assert [record.message for record in caplog.records if "left to ATen" in record.message] == [
        caplog.records[0].message
    ]
