"""The first call of a kernel with a schedule of the user's shows whether it computes what the rules' kernel does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from halide_backend.errors import KernelIndexError
from halide_backend.launch import first_call
from halide_backend.launch.first_call import FirstCall


class Calls:
    """Kernels that count how often they run, and what the comparison found."""

    def __init__(
        self, scheduled: Callable[..., None], rules: Callable[..., None], written: tuple[int, ...] = (1,)
    ) -> None:
        self.accepted = 0
        self.ran: list[str] = []

        def counted(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
            def run(*arguments: Any) -> None:
                self.ran.append(name)
                kernel(*arguments)

            return run

        self.kernel = FirstCall(
            "k", "a.toml, line 4", counted("scheduled", scheduled), counted("rules", rules), written, self._accept
        )

    def _accept(self) -> None:
        self.accepted += 1


def double(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x * 2)


def test_equal_results_are_accepted_and_the_schedule_is_used_from_then_on() -> None:
    calls = Calls(double, double)
    x, out = torch.randn(10), torch.zeros(10)
    for _ in range(3):
        calls.kernel(x, out)
        assert torch.equal(out, x * 2)
    assert calls.ran == ["scheduled", "rules", "scheduled", "scheduled"] and calls.accepted == 1


def off_by(error: float, place: int = 3) -> Callable[..., None]:
    def kernel(x: torch.Tensor, out: torch.Tensor) -> None:
        double(x, out)
        out.view(-1)[place] += error

    return kernel


def test_other_results_are_reported_and_the_rules_kernel_is_used(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(off_by(0.01), double)
    x, out = torch.randn(10), torch.zeros(10)
    for _ in range(3):
        calls.kernel(x, out)
        assert torch.equal(out, x * 2)
    assert calls.ran == ["scheduled", "rules", "rules", "rules"] and calls.accepted == 0
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith("a.toml, line 4: this schedule of k is left out, 1 of 10 elements of argument 1 differ")


@pytest.mark.parametrize(
    ("dtype", "error", "same"),
    [
        (torch.float32, 1e-5, True),
        (torch.float32, 1e-3, False),
        (torch.float64, 1e-14, True),
        (torch.float64, 1e-11, False),
        (torch.bfloat16, 0.0078125, True),
        (torch.bfloat16, 0.25, False),
        (torch.float16, 0.001, True),
        (torch.float16, 0.05, False),
        (torch.int64, 1, False),
        (torch.uint8, 1, False),
        (torch.float32, float("nan"), False),
        (torch.float32, float("inf"), False),
    ],
)
def test_rounding_is_no_difference_anything_else_is(dtype: torch.dtype, error: float, same: bool) -> None:
    calls = Calls(off_by(error), double)
    x = torch.ones(10, dtype=dtype)
    calls.kernel(x, torch.zeros(10, dtype=dtype))
    assert bool(calls.accepted) is same


def test_what_is_no_number_has_to_be_the_same() -> None:
    def odd(*places: int) -> Callable[..., None]:
        def kernel(x: torch.Tensor, out: torch.Tensor) -> None:
            double(x, out)
            out[places[0]], out[places[1]], out[places[2]] = float("nan"), float("inf"), float("-inf")

        return kernel

    x = torch.ones(10)
    for first, accepted in ((odd(0, 1, 2), 1), (odd(3, 1, 2), 0), (odd(0, 2, 1), 0), (double, 0)):
        calls = Calls(first, odd(0, 1, 2))
        calls.kernel(x, torch.zeros(10))
        assert calls.accepted == accepted


def test_a_mutated_argument_is_mutated_once_and_views_share_their_memory() -> None:
    def increment(x: torch.Tensor, y: torch.Tensor) -> None:
        # y is the same memory as x.
        x.add_(1)
        y.mul_(3)

    memory = torch.arange(24.0).reshape(4, 6)
    x, y = memory[:, ::2], memory[1:]
    expected = memory.clone()
    increment(expected[:, ::2], expected[1:])
    calls = Calls(increment, increment, (0, 1))
    calls.kernel(x, y)
    assert torch.equal(memory, expected) and calls.accepted == 1


def test_numbers_scalars_and_empty_tensors_are_arguments() -> None:
    def fill(number: int, out: torch.Tensor, none: torch.Tensor) -> None:
        out.fill_(number)

    calls = Calls(fill, fill, (1, 2))
    out = torch.zeros(())
    calls.kernel(7, out, torch.zeros(0, 3))
    assert out.item() == 7 and calls.accepted == 1


def test_an_error_of_the_scheduled_kernel_alone_is_a_difference(caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: torch.Tensor, out: torch.Tensor) -> None:
        raise KernelIndexError("out of range")

    calls = Calls(fails, double)
    x, out = torch.randn(10), torch.zeros(10)
    calls.kernel(x, out)
    assert torch.equal(out, x * 2) and calls.accepted == 0
    assert "it fails where the rules' kernel does not" in caplog.text


def test_an_error_of_both_is_raised_and_the_next_call_compares() -> None:
    bad = True

    def kernel(x: torch.Tensor, out: torch.Tensor) -> None:
        if bad:
            raise KernelIndexError("out of range")
        double(x, out)

    calls = Calls(kernel, kernel)
    x, out = torch.randn(10), torch.zeros(10)
    with pytest.raises(KernelIndexError):
        calls.kernel(x, out)
    bad = False
    calls.kernel(x, out)
    assert torch.equal(out, x * 2) and calls.accepted == 1


def test_without_memory_for_copies_nothing_is_compared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*arguments: Any) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(first_call, "_copies", none)
    calls = Calls(double, double)
    x, out = torch.randn(10), torch.zeros(10)
    calls.kernel(x, out)
    assert torch.equal(out, x * 2) and calls.ran == ["scheduled"] and calls.accepted == 0
    assert "no memory to check" in caplog.text


def test_long_results_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_call, "_BLOCK", 100)
    for shape in ((1000,), (7, 33), (3, 5, 70), (2, 500)):
        x = torch.randn(shape)
        for error, place, accepted in ((0.0, 0, 1), (1.0, 0, 0), (1.0, x.numel() - 1, 0)):
            calls = Calls(off_by(error, place), double)
            calls.kernel(x, torch.zeros(shape))
            assert calls.accepted == accepted
