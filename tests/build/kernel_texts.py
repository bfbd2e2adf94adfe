"""Kernel texts for the tests of this folder, small enough to check by hand."""

from __future__ import annotations

HEADER = """
import halide as hl
from halide_backend.kernel_library.arguments import Input, Output
"""


def elementwise(expression: str, inputs: int = 1, extent: int = 16, vector: int = 8) -> str:
    """A text of one float32 output: `expression` over a, b, c, the inputs at one index."""
    names = "abc"[:inputs]
    declared = ", ".join(f'Input("{name}", "float32", {extent})' for name in names)
    params = "\n    ".join(f'{n}_ = hl.ImageParam(hl.Float(32), 1, "{n}")' for n in names)
    values = "\n    ".join(f"{name} = {name}_[i]" for name in names)
    return f"""{HEADER}
ARGUMENTS = ({declared}, Output("out", "float32", (({extent}, 1),)))

def pipeline():
    i = hl.Var("i")
    {params}
    {values}
    out = hl.Func("out")
    out[i] = {expression}
    out.bound(i, 0, {extent}).vectorize(i, {vector})
    out.output_buffer().dim(0).set_bounds(0, {extent}).set_stride(1)
    return [{", ".join(f"{name}_" for name in names)}], [out]
"""


DOUBLED = elementwise("a + a")

#: Row sums by a parallel loop over rows: calls halide_do_par_for and has an intermediate Func.
ROW_SUMS = f"""{HEADER}
ARGUMENTS = (Input("x", "float32", 64 * 32), Output("rows", "float32", ((64, 1),)))

def pipeline():
    i, u = hl.Var("i"), hl.Var("u")
    r = hl.RDom([(0, 4)], "r")
    x = hl.ImageParam(hl.Float(32), 1, "x")
    lanes, rows = hl.Func("lanes"), hl.Func("rows")
    lanes[u, i] = hl.f32(0)
    lanes[u, i] += x[i * 32 + r * 8 + u]
    total = lanes[0, i]
    for lane in range(1, 8):
        total = total + lanes[lane, i]
    rows[i] = total
    rows.bound(i, 0, 64).parallel(i)
    lanes.compute_at(rows, i).bound_extent(u, 8).vectorize(u).update().vectorize(u)
    return [x], [rows]
"""
