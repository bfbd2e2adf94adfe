"""A linear layer by oneDNN, as an operator of FX graphs and as the call that Inductor writes for it.

torch's own operator for this, `mkldnn::_linear_pointwise`, takes dense operands, but Inductor's lowering of it takes
constant weights alone, and copies those that are transposed. What is written is a call of torch's operator, in Python
or of its C function, so generated code needs nothing of this package for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_pointwise = torch.ops.mkldnn._linear_pointwise

_library = torch.library.Library("halide_backend", "DEF")
_library.define("onednn_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")

#: `input` of m x k times the transpose of `weight` of n x k, plus `bias` of n elements on each row; float32, on a CPU,
#: of any strides.
ONEDNN_LINEAR = torch.ops.halide_backend.onednn_linear.default


def _computed(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = _pointwise(input, weight, bias, "none", [], "")
    return result


def _shape(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return input.new_empty(input.shape[0], weight.shape[0])


_library.impl("onednn_linear", _computed, "CPU")
# Not by `register_fake`, which looks for the line of its caller among all modules: 20 ms of `import torch._inductor`.
_library.impl("onednn_linear", _shape, "Meta")


def install_lowering() -> None:
    """Tell Inductor how the operator is lowered; the second time does nothing."""
    from torch._inductor.lowering import lowerings, register_lowering

    if ONEDNN_LINEAR not in lowerings:
        register_lowering(ONEDNN_LINEAR, type_promotion_kind=None)(_lower)


def _lower(input: Any, weight: Any, bias: Any = None) -> Any:
    from torch._inductor.ir import ExternKernel, FixedLayout, TensorBox
    from torch._inductor.mkldnn_ir import LinearUnary, _create_output_node

    # torch's operator copies an input that is not contiguous, serially and element by element.
    operands = [_dense(input), _dense(weight, columns=True)]
    constants: list[Any] = ["none", [-1], ""]
    if bias is None:
        constants.insert(0, None)
    else:
        operands.append(ExternKernel.require_contiguous(ExternKernel.realize_input(bias)))
    size = [input.get_size()[0], weight.get_size()[0]]
    layout = FixedLayout(device=input.get_device(), dtype=input.get_dtype(), size=size)
    return TensorBox.create(_create_output_node(LinearUnary(layout, operands, constants)))


def _dense(matrix: Any, columns: bool = False) -> Any:
    """`matrix` with contiguous rows or, where it has them and they may stay, contiguous `columns`, and nothing between
    them: for a part of a larger matrix oneDNN has its reference implementation alone, hundreds of times as slow."""
    from torch._inductor.ir import ExternKernel

    matrix = ExternKernel.realize_input(matrix)
    rows, row = matrix.get_size()
    by_columns = columns and matrix.get_stride()[0] == 1 and matrix.get_stride()[1] != 1
    return ExternKernel.require_exact_strides(matrix, [1, rows] if by_columns else [row, 1])
