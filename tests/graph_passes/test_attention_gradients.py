"""The gradients of attention as a kernel of this backend: their values against float64, and who computed them."""

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

FORWARD, BACKWARD = (f"halide_backend.attention_{each}.default(" for each in ("with_logsumexp", "gradients"))
ATENS = tuple(f"_scaled_dot_product_flash_attention_for_cpu{each}.default(" for each in ("", "_backward"))

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


def operands(batch: int, heads: int, queries: int, keys: int, depth: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradient of the result, query, key and value, as a linear layer leaves them: the heads of a row lie together."""
    sizes = [(batch, rows, heads, depth) for rows in (queries, queries, keys, keys)]
    return tuple(random(*size[:3], depth + n)[..., :depth].transpose(1, 2) for n, size in enumerate(sizes))  # type: ignore[return-value]


def gradients(attend: Any, given: tuple[Tensor, ...], mask: Tensor | None) -> list[Tensor]:
    slope, *rest = given
    leaves = [each.detach().requires_grad_() for each in rest]
    attend(*leaves, mask).backward(slope)
    return [leaf.grad for leaf in leaves]  # type: ignore[misc]


def check(given: tuple[Tensor, ...], mask: Tensor | None = None, ours: bool = True, **named: Any) -> Compiled:
    """The gradients of compiled attention against those of float64."""
    options = {f"halide_backend.{name}": named.pop(name) for name in ("attention", "target") if name in named}

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **named)

    compiled = compile_for("halide_backend", attend, options={"halide_backend.attention": "halide", **options})
    got, eager = gradients(compiled, given, mask), gradients(attend, given, mask)
    wide = None if mask is None or mask.dtype == torch.bool else mask.double()
    exact = gradients(attend, tuple(each.double() for each in given), mask if wide is None else wide)
    for ours_, atens, wanted in zip(got, eager, exact, strict=True):
        assert ours_.stride() == atens.stride()
        scale = float(wanted.abs().max())
        assert scale > 0
        torch.testing.assert_close(ours_.double(), wanted, atol=BOUND * scale, rtol=0)
    assert None not in attention_call._kernels.values(), "a kernel was refused"
    assert not artifacts._memory.ahead, "another kernel was built ahead"
    forward, backward = compiled.codes
    assert (forward.count(FORWARD), backward.count(BACKWARD)) == ((1, 1) if ours else (0, 0))
    for code, atens_operator in zip((forward, backward), ATENS, strict=True):
        assert (atens_operator in code) != ours
        # Whoever loads the code of a graph has to find the operators.
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
    if keys == 1:
        # The weight is 1 whatever the scores are: the gradients of query and key are 0 but for rounding.
        given = operands(batch, heads, queries, keys, depth)
        compiled = compile_for(
            "halide_backend", F.scaled_dot_product_attention, options={"halide_backend.attention": "halide"}
        )
        got = gradients(lambda query, key, value, mask: compiled(query, key, value, is_causal=causal), given, None)
        scale = float(given[0].abs().max() * given[3].abs().max() * depth)
        assert got[0].abs().max() <= BOUND * scale and got[1].abs().max() <= BOUND * scale * queries
        torch.testing.assert_close(got[2].double(), given[0].double().sum(2, keepdim=True), atol=1e-5, rtol=0)
        return
    check(operands(batch, heads, queries, keys, depth), is_causal=causal)


@pytest.mark.parametrize("target", ["avx2", "sse41"])
def test_vectors_of_other_lengths(target: str) -> None:
    check(operands(2, 2, 37, 45, 48), target=target)


def test_a_scale() -> None:
    check(operands(1, 2, 40, 40, 32), scale=0.75)


def test_contiguous_heads_and_a_slope_that_is_the_same_for_all() -> None:
    heads = (random(2, 3, 32, 64), random(2, 3, 40, 64), random(2, 3, 40, 64))
    check((torch.ones(1, 1, 1, 1).expand(2, 3, 32, 64), *heads))


MASKS = {
    "for all": random(40, 50),
    "of heads": random(1, 3, 40, 50),
    "of keys": random(2, 1, 1, 50),
    "of each": random(2, 3, 40, 50),
    "transposed": random(2, 3, 50, 40).transpose(2, 3),
    "booleans": random(40, 50) > 0,
    "keys unseen by all": (torch.arange(50) != 7).expand(2, 1, 40, 50),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks(mask: Tensor) -> None:
    check(operands(2, 3, 40, 50, 32), mask)


def call(given: tuple[Tensor, ...], mask: Tensor | None = None, causal: bool = False) -> tuple[Tensor, ...]:
    """The gradients by the operators themselves."""
    slope, *rest = given
    last = (mask, causal, rest[0].shape[3] ** -0.5, "")
    result, logsumexp = torch.ops.halide_backend.attention_with_logsumexp(*rest, *last)
    got: tuple[Tensor, ...] = torch.ops.halide_backend.attention_gradients(slope, *rest, result, logsumexp, *last)
    assert None not in attention_call._kernels.values(), "a kernel was refused"
    return got


def test_a_query_that_sees_no_key_adds_nothing() -> None:
    mask = torch.zeros(40, 40)
    mask[5] = -torch.inf
    given = operands(1, 2, 40, 40, 32)
    others = torch.arange(40) != 5
    got = call(given, mask)
    wanted = call((given[0][:, :, others], given[1][:, :, others], *given[2:]))
    torch.testing.assert_close(got[0][:, :, others], wanted[0])
    assert not got[0][:, :, 5].any()
    torch.testing.assert_close(got[1:], wanted[1:])


@pytest.mark.parametrize("operand", [0, 1, 2, 3])
@pytest.mark.parametrize("queries", [40, 64])
def test_what_is_no_number_stays_in_its_head(operand: int, queries: int) -> None:
    given = tuple(each.clone() for each in operands(1, 2, queries, 45, 32))
    given[operand][0, 0, -1, 3] = torch.nan
    got = call(given)
    assert any(each[0, 0].isnan().any() for each in got)
    for ours, wanted in zip(got, call(operands(1, 2, queries, 45, 32)), strict=True):
        torch.testing.assert_close(ours[0, 1], wanted[0, 1], atol=0, rtol=0)


def test_an_infinite_slope_of_the_last_query_is_infinite_in_the_values() -> None:
    """Rows that pad the last block read its row."""
    given = tuple(each.clone() for each in operands(1, 1, 35, 40, 32))
    given[0][0, 0, -1, 3] = torch.inf
    *_, value = call(given)
    assert (value[0, 0, :, 3] == torch.inf).all()
    assert value[0, 0, :, :3].isfinite().all() and value[0, 0, :, 4:].isfinite().all()


def test_scores_far_below_zero_of_queries_that_pad_no_block() -> None:
    """Where a row that pads the last block had weights, they would be infinite: its scores are 0."""
    slope, query, key, value = operands(1, 1, 35, 40, 32)
    query, key = query + 10, key - 10
    got, wanted = call((slope, query, key, value)), [each.double().requires_grad_() for each in (query, key, value)]
    F.scaled_dot_product_attention(*wanted).backward(slope.double())
    for ours, exact in zip(got, wanted, strict=True):
        assert exact.grad is not None
        torch.testing.assert_close(ours.double(), exact.grad, atol=1e-3 * float(exact.grad.abs().max()), rtol=0)


@pytest.mark.parametrize("depth", [16, 32, 48, 80])
@pytest.mark.parametrize("rows", [8, 37])
def test_nothing_is_written_beside_the_results(monkeypatch: pytest.MonkeyPatch, depth: int, rows: int) -> None:
    """An update rounds its loops up to whole tiles, whatever the bounds of the output are."""
    memory = []

    def between_others(like: Tensor) -> Tensor:
        batch, heads, rows, depth = like.shape
        memory.append(torch.full((batch + 2, rows, heads, depth), 7.0))
        return memory[-1][1:-1].transpose(1, 2)

    monkeypatch.setattr(attention_call, "_matrices", between_others)
    call(operands(2, 3, rows, rows + 8, depth))
    assert len(memory) == 4
    for each in memory:
        assert (each[0] == 7).all() and (each[-1] == 7).all()
        assert not (each[1:-1] == 7).any()


def test_the_logarithms_of_sums_are_atens() -> None:
    _, query, key, value = operands(2, 3, 37, 45, 32)
    mask = random(37, 45)
    mask[4] = -torch.inf
    got = torch.ops.halide_backend.attention_with_logsumexp(query, key, value, mask, False, 0.5, "")
    result, wanted = attention_call.FLASH(query, key, value, 0.0, False, attn_mask=mask, scale=0.5)
    others = torch.arange(37) != 4
    assert got[1].stride() == wanted.stride()
    torch.testing.assert_close(got[1][..., others], wanted[..., others], atol=2e-6, rtol=1e-6)
    torch.testing.assert_close(got[0], result, atol=2e-6, rtol=0)
    assert (got[1][..., 4] == -torch.inf).all()


def test_parts_on_several_threads() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(operands(3, 5, 70, 70, 64))
    finally:
        torch.set_num_threads(threads)


def test_what_stays_with_aten() -> None:
    check(operands(1, 2, 40, 40, 32), attention="aten", ours=False)
    check(operands(1, 2, 7, 40, 32), ours=False)
    check(operands(1, 2, 40, 40, 22), ours=False)


def test_a_kernel_that_cannot_be_compiled_is_left_to_aten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*arguments: Any) -> None:
        raise HalideCompileError("no", where="here", cure="none")

    slope, *rest = operands(1, 2, 48, 48, 32)
    monkeypatch.setattr(attention_call, "_kernel", lambda *known: refused)
    last = (None, False, 0.5, "")
    with caplog.at_level(logging.WARNING, "halide_backend"):
        for _ in range(2):
            result, logsumexp = torch.ops.halide_backend.attention_with_logsumexp(*rest, *last)
            got = torch.ops.halide_backend.attention_gradients(slope, *rest, result, logsumexp, *last)
            forward = attention_call.FLASH(*rest, 0.0, False, scale=0.5)
            wanted = attention_call.FLASH_BACKWARD(slope, *rest, *forward, 0.0, False, scale=0.5)
            torch.testing.assert_close(got, wanted)
    assert len([record for record in caplog.records if "left to ATen" in record.message]) == 2
