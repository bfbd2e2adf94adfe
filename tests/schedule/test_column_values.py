"""Which values of columns are computed once for all rows on a CPU, and which of short rows in vectors of rows."""

from __future__ import annotations

import re

import pytest
import sympy
import torch
import torch.nn.functional as F

import halide_backend
from halide_backend.inspection.compiled import compile_for
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.mapping.materialise import column_values, row_values, values_of_sums

COLUMNS = Axis("x1", 40, 40)
MANY = Axis("x1", 80, 80)


def program(
    operation: str, *, rows: int = 64, along: str = "x1", reduced: bool = False, columns: Axis = COLUMNS
) -> LoopProgram:
    """x * operation(y) for a matrix x and a vector y of its columns (or, `along` x0, of its rows); or its sum over the
    rows."""
    outer = Axis("x0", rows, rows)
    index = columns.symbol + columns.hint * outer.symbol
    values: list[Value] = []

    def add(operation: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, "float32", operands, attribute, values))
        return len(values) - 1

    vector = add("load", (), Load("in_ptr1", (columns if along == "x1" else outer).symbol))
    matrix = add("load", (), Load("in_ptr0", index))
    product = add("mul", (matrix, add(operation, (vector,))))
    nest = Nest((outer, columns))
    if reduced:
        product = add("reduction", (product,), Reduction("sum", (outer,), None))
        index, nest = columns.symbol, Nest((columns,))
    return LoopProgram(
        inputs=(
            Buffer("in_ptr0", "float32", columns.hint * rows, 0),
            Buffer("in_ptr1", "float32", max(columns.hint, rows), 1),
        ),
        sizes=(),
        outputs=(Buffer("out_ptr0", "float32", columns.hint if reduced else columns.hint * rows, 2),),
        values=tuple(values),
        stores=(Store("out_ptr0", index, product, nest, None),),
        checks=(),
        outer=(columns,) if reduced else (outer, columns),
    )


@pytest.mark.parametrize("operation", ["rsqrt", "exp", "reciprocal"])
def test_divisions_and_functions_are(operation: str) -> None:
    assert column_values(program(operation)) == {2}


@pytest.mark.parametrize(
    "other",
    [
        program("neg"),  # cheaper than the load of what is stored
        program("rsqrt", rows=4),  # few rows
        program("rsqrt", along="x0"),  # of a row: computed around the loop over its columns
        program("rsqrt", reduced=True),  # the loop over rows is the inner one
    ],
    ids=["negative", "few rows", "row", "sum"],
)
def test_others_are_not(other: LoopProgram) -> None:
    assert column_values(other) == frozenset()


def test_divisions_and_functions_of_short_rows_are() -> None:
    assert row_values(program("exp", along="x0")) == {2}


@pytest.mark.parametrize(
    "other",
    [
        program("neg", along="x0"),
        program("exp", along="x0", rows=4),  # not a vector of rows
        program("exp", along="x0", columns=MANY),  # a row is long
        program("exp"),  # of a column
        program("exp", along="x0", reduced=True),  # a step of a sum
    ],
    ids=["negative", "few rows", "long rows", "column", "sum"],
)
def test_other_values_of_rows_are_not(other: LoopProgram) -> None:
    assert row_values(other) == frozenset()


def groups(pixels: int, *, channels: int = 4) -> LoopProgram:
    """x * x' * exp(y) + exp(z), for channels-last pictures x and x', weights y of their channels and biases z of the
    groups of these; what is stored is adjacent along the pixels."""
    axes = pixel, group, channel = Axis("x0", pixels, pixels), Axis("x1", 8, 8), Axis("x2", channels, channels)
    values: list[Value] = []

    def add(operation: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, "float32", operands, attribute, values))
        return len(values) - 1

    of_channel = channels * group.symbol + channel.symbol
    whole = 8 * channels * pixel.symbol + of_channel
    weight = add("exp", (add("load", (), Load("in_ptr2", of_channel)),))
    bias = add("exp", (add("load", (), Load("in_ptr3", group.symbol)),))
    matrix, other = (add("load", (), Load(name, whole)) for name in ("in_ptr0", "in_ptr1"))
    result = add("add", (add("mul", (add("mul", (matrix, other)), weight)), bias))
    sizes = {f"in_ptr{n}": extent for n, extent in enumerate((8 * channels * pixels,) * 2 + (8 * channels, 8))}
    return LoopProgram(
        inputs=tuple(Buffer(name, "float32", extent, place) for place, (name, extent) in enumerate(sizes.items())),
        sizes=(),
        outputs=(Buffer("out_ptr0", "float32", 8 * channels * pixels, 4),),
        values=tuple(values),
        stores=(Store("out_ptr0", of_channel * pixels + pixel.symbol, result, Nest(axes), None),),
        checks=(),
        outer=axes,
    )


def test_values_of_channels_and_of_groups_are_computed_once_for_all_pixels() -> None:
    """Vectors run along the channels, although the results are not adjacent there."""
    assert column_values(groups(512)) == {1}
    assert row_values(groups(512)) == {3}


def test_values_of_long_groups_are_computed_around_them() -> None:
    assert row_values(groups(512, channels=80)) == frozenset()


@pytest.mark.parametrize(("channels", "side"), [(48, 4), (30, 4), (48, 8), (7, 3)])
def test_gates_and_statistics_of_small_images_are_eagers(channels: int, side: int) -> None:
    def gated(x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, ...]:
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        return x * gate.sigmoid(), mean, (variance + 1e-5).rsqrt()

    arguments = torch.randn(4, channels, side, side), torch.randn(4, channels, 1, 1)
    found = compile_for("halide_backend", gated).call(*arguments)
    for got, wanted in zip(found, gated(*(each.double() for each in arguments)), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


def centred(columns: Axis, operation: str = "rsqrt", dtype: str = "float32") -> LoopProgram:
    """x * operation(sum of x) for each row of x, stored as `dtype`."""
    row = Axis("x0", 64, 64)
    index = columns.extent * row.symbol + columns.symbol
    values: list[Value] = []

    def add(operation: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, "float32", operands, attribute, values))
        return len(values) - 1

    matrix = add("load", (), Load("in_ptr0", index))
    total = add("reduction", (matrix,), Reduction("sum", (columns,), None))
    result = add("mul", (matrix, add(operation, (total,))))
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", 64 * columns.extent, 0),),
        sizes=(),
        outputs=(Buffer("out_ptr0", dtype, 64 * columns.extent, 1),),
        values=tuple(values),
        stores=(Store("out_ptr0", index, result, Nest((row, columns)), None),),
        checks=(),
        outer=(row,),
    )


COMPUTED = Axis("x1", sympy.Symbol("n0", integer=True, positive=True), 100)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (centred(COMPUTED), {2}),
        (centred(COMPUTED, "neg"), set()),
        (centred(Axis("x1", 100, 100)), set()),  # LLVM unrolls its loops, or there is one
        (centred(Axis("x1", 100, 100), dtype="bfloat16"), {2}),
        (centred(Axis("x1", 500, 500), dtype="bfloat16"), set()),
    ],
    ids=["root", "negative", "known length", "in 16 bits", "long"],
)
def test_what_rows_of_computed_length_are_reduced_to_goes_on_once(found: LoopProgram, wanted: set[int]) -> None:
    assert values_of_sums(found) == wanted


@pytest.mark.parametrize(("height", "width"), [(19, 300), (5, 33)])
def test_what_sizes_are_divided_by_is_no_work(height: int, width: int) -> None:
    """The scale of an interpolation is a number, known or not: indices that are stored are loaded again, one by one."""

    def enlarged(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)

    halide_backend.reset_stats()
    compiled = compile_for("halide_backend", enlarged, dynamic=True)
    for more in (0, 1, -3, 40):
        x = torch.randn(2, 3, height + more, width + more)
        torch.testing.assert_close(compiled(x), enlarged(x), rtol=1e-4, atol=1e-4)
    texts = [record.text for record in halide_backend.records()]
    assert texts and not any(re.search(r"ComputeRoot\('(indirect|minimum)_", text) for text in texts)
    assert not compiled.delegated


def norms(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.flatten(2).transpose(1, 2)
    first = F.layer_norm(rows, rows.shape[-1:], weight, bias)
    return first, F.layer_norm(first, rows.shape[-1:], bias, weight)


@pytest.mark.parametrize("shape", [(2, 160, 14, 14), (1, 48, 9, 7), (3, 33, 5, 40)])
def test_a_norm_whose_results_are_turned_is_stored_without_divisions(shape: tuple[int, ...]) -> None:
    """The norm of it needs the first norm, but no stored difference from its mean."""
    channels = shape[1]
    arguments = (torch.randn(shape), torch.rand(channels) + 0.5, torch.randn(channels))
    compiled = compile_for("halide_backend", norms)
    for ours, truth in zip(compiled(*arguments), norms(*(each.double() for each in arguments)), strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=1e-4, atol=1e-4)
    assert set(compiled.kernels()) == {"halide_backend"} and not compiled.delegated
    assert not halide_backend.stats()["unfusing_reasons"]
    (code,) = compiled.codes
    stored = set(re.findall(r"ComputeAt\('(\w+)', 'out_ptr\d', 'x\d_o'\)", code))
    assert {"truediv_0", "rsqrt_0", "add_0"} <= stored
    assert not [name for name in stored if name.startswith("sub")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(33, 64), (48, 37), (7, 20), (100, 384), (3, 21, 100)])
def test_norms_in_16_bits_are_those_of_float64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    halide_backend.reset_stats()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = compile_for("halide_backend", lambda x: F.layer_norm(x, x.shape[-1:])).call(x)
    torch.testing.assert_close(found.double(), F.layer_norm(x.double(), shape[-1:]), rtol=1e-2, atol=1e-2)
    stats = halide_backend.stats()
    assert stats["delegated_kernels"] == 0 and not stats["unfusing_reasons"]
    assert "BoundExtent('sum_0', 'x0', " in halide_backend.records()[0].text or shape != (33, 64)
