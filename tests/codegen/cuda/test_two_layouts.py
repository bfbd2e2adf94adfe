"""What is stored along two axes is stored by two kernels."""

from __future__ import annotations

from cuda_programs import TARGET

from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Store, Value
from halide_backend.schedule.cuda.choose import stored_crosswise
from halide_backend.schedule.device import Gpu, device_of

DEVICE = device_of(TARGET)


def two_layouts(rows: int, columns: int, *, turned: bool) -> LoopProgram:
    """A tensor and its double, whose memory is the former's or its transpose."""
    axes = Axis("x0", rows, rows), Axis("x1", columns, columns)
    x0, x1 = (axis.symbol for axis in axes)
    along = frozenset({"x0", "x1"})
    values = (
        Value("load", "float32", (), Load("in_ptr0", columns * x0 + x1), along),
        Value("add", "float32", (0, 0), None, along),
    )
    stores = (
        Store("out_ptr0", columns * x0 + x1, 0, Nest(axes)),
        Store("out_ptr1", x0 + rows * x1 if turned else columns * x0 + x1, 1, Nest(axes)),
    )
    names = ("in_ptr0", "out_ptr0", "out_ptr1")
    buffers = [Buffer(name, "float32", rows * columns, k, aligned=True) for k, name in enumerate(names)]
    return LoopProgram(
        inputs=(buffers[0],),
        sizes=(),
        outputs=tuple(buffers[1:]),
        values=values,
        stores=stores,
        checks=(),
        outer=axes,
    )


def test_a_tensor_and_another_ones_transpose_are_two_kernels() -> None:
    assert isinstance(DEVICE, Gpu)
    assert stored_crosswise(two_layouts(1500, 384, turned=True), DEVICE) == "out_ptr1"
    assert stored_crosswise(two_layouts(1500, 384, turned=False), DEVICE) == ""
    assert stored_crosswise(two_layouts(1500, 8, turned=True), DEVICE) == ""
