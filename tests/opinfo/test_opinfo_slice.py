"""A slice through torch's operator database: all kinds of kernels, all data types, gradients."""

from __future__ import annotations

import pytest

from halide_backend.opinfo import crew
from halide_backend.opinfo.case import Case, Request
from halide_backend.opinfo.outcome import Outcome

SLICE = {
    "float32": (
        "addmm amax argmax atan2 cat cholesky cumsum gather index_add logsumexp "
        "nn.functional.avg_pool2d "
        "nn.functional.batch_norm nn.functional.conv2d nn.functional.dropout nn.functional.gelu "
        "nn.functional.interpolate.bilinear nn.functional.layer_norm nn.functional.max_pool2d "
        "pow prod softmax sort special.ndtr std_mean tril where"
    ),
    "float16": "exp mul nn.functional.group_norm softmax sum",
    "bfloat16": "add log_softmax mean nn.functional.silu tanh",
    "float64": "cumprod erf lgamma linalg.vector_norm sin",
    "int32": "clamp floor_divide remainder bitwise_left_shift sum",
    "int64": "argsort div.floor_rounding gather index_select scatter",
    "bool": "all any eq logical_xor masked_fill",
    "uint8": "bitwise_xor cumsum max.binary mul sub",
}

#: What does not pass, and why.
FAILURES = {
    "cholesky float32": "Inductor has no lowering of aten.cholesky, as torch's own test expects",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    cases = [Case(op, dtype, gradients=True) for dtype, ops in SLICE.items() for op in ops.split()]
    found = crew.outcomes(Request(jobs=2), cases, str(tmp_path_factory.mktemp("opinfo")))
    return {f"{o.op} {o.dtype}": o for o in found}


def test_nothing_fails_that_is_not_expected_to(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) == sum(len(ops.split()) for ops in SLICE.values())
    wrong = {name: o.failures for name, o in outcomes.items() if o.status != "passed"}
    assert wrong.keys() == FAILURES.keys(), wrong


def test_every_kernel_of_the_slice_is_native(outcomes: dict[str, Outcome]) -> None:
    delegated = {name: dict(o.reasons) for name, o in outcomes.items() if o.delegated}
    assert delegated == {}
    # Operators that are one call into ATen (addmm, conv2d, sort, ...) have no loop kernel.
    assert sum(o.native for o in outcomes.values()) > len(outcomes)


def test_gradients_were_compared(outcomes: dict[str, Outcome]) -> None:
    for name in ("softmax float32", "nn.functional.layer_norm float32", "tanh bfloat16"):
        assert outcomes[name].gradients == 1
