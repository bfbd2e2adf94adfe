"""What is compared, and how closely."""

from __future__ import annotations

import pytest
import torch

from halide_backend.opinfo import table, tolerances
from halide_backend.opinfo.comparison import Comparison, as_near
from halide_backend.opinfo.outcome import Failure, Outcome, same_failures
from halide_backend.opinfo.twin import like, twin, wider

FLOAT32 = tolerances.forward("sin", "float32")


@pytest.mark.parametrize(
    ("actual", "same"),
    [
        ([1.0, float("nan")], True),
        ([1.0 + 2e-5, float("nan")], True),
        ([1.0 + 4e-5, float("nan")], False),
        ([1.0, 0.0], False),
        ([1.0, float("inf")], False),
    ],
)
def test_float32_is_compared_to_the_tolerance_of_torchs_test(actual: list[float], same: bool) -> None:
    expected = torch.tensor([1.0, float("nan")])
    found = Comparison((0.0, 0.0)).difference([torch.tensor(actual)], [expected], FLOAT32)
    assert (found == "") is same


def test_the_data_type_counts() -> None:
    found = Comparison((0.0, 0.0)).difference([torch.ones(2, dtype=torch.float64)], [torch.ones(2)], FLOAT32)
    assert "dtype" in found


def test_undefined_values_are_compared_by_shape_and_type_alone() -> None:
    comparison, tolerance = Comparison((0.0, 0.0)), tolerances.forward("empty", "float32")
    assert comparison.difference([torch.zeros(2)], [torch.ones(2)], tolerance) == ""
    assert "shape" in comparison.difference([torch.zeros(2)], [torch.ones(3)], tolerance)


def test_a_twin_has_strides_offset_and_overlap_of_the_original() -> None:
    memory = torch.arange(24.0)
    tree = [memory.as_strided((3, 4), (2, 1), 5), memory[3:], {"x": 1}]
    copy = twin(tree)
    assert copy[0].stride() == (2, 1) and copy[0].storage_offset() == 5
    assert torch.equal(copy[0], tree[0]) and copy[2] == {"x": 1}
    copy[0][0, 0] = -1
    # Element 5 of the memory, which both tensors of the copy see, and no tensor of the original.
    assert copy[1][2] == -1
    assert memory[5] == 5


def test_types_are_widened_and_narrowed_again() -> None:
    x = torch.tensor([1.5], dtype=torch.bfloat16, requires_grad=True)
    wide = wider([x, torch.tensor([1])])
    assert wide[0].dtype is torch.float32 and wide[0].requires_grad and wide[0].is_leaf
    assert wide[1].dtype is torch.int64
    assert like(wide, [x, wide[1]])[0].dtype is torch.bfloat16


def test_the_same_failure_is_the_same_sample_and_the_same_kind() -> None:
    ours = (Failure(0, "raised", "a"), Failure(3, "values", "b"))
    assert same_failures(ours, (*ours, Failure(4, "values", "c")))
    assert not same_failures(ours, (Failure(0, "raised", "a"),))
    assert not same_failures(ours, (Failure(0, "values", "a"), Failure(3, "values", "b")))


def test_the_table_counts_statuses_kernels_and_reasons() -> None:
    text = table.write(
        [
            Outcome("sin", "float32", "passed", samples=1, native=2),
            Outcome("zeta", "float32", "passed", native=1, delegated=3, reasons={"operation zeta": 3}),
            Outcome("cos", "int32", "failed", failures=(Failure(0, "values", "1 != 2"),)),
        ]
    )
    rows = [line.split() for line in text.splitlines()]
    assert ["float32", "2", "2", "0", "0", "0", "0", "0", "3", "3"] in rows
    assert ["all", "3", "2", "1", "0", "0", "0", "0", "3", "3"] in rows
    assert ["3", "operation", "zeta", "zeta"] in rows
    assert "cos int32: failed: sample 0, values: 1 != 2" in text


def test_as_near_to_the_truth_as_eager() -> None:
    truth = [torch.tensor([1.0, 2.0], dtype=torch.float64)]
    eager = [torch.tensor([1.0, 2.25])]
    assert as_near([torch.tensor([0.6, 2.0])], eager, truth)
    assert not as_near([torch.tensor([0.4, 2.0])], eager, truth)
    assert not as_near([torch.tensor([float("nan"), 2.0])], eager, truth)
    assert not as_near([torch.tensor([0.8, 2.0], dtype=torch.float64)], eager, truth)
    assert not as_near([None], eager, truth)
    assert not as_near(eager, [None], truth)
    assert not as_near([torch.tensor([1])], [torch.tensor([2])], [torch.tensor([1])])
