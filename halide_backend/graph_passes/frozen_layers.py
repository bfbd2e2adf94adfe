"""Layers of frozen graphs whose weights Inductor packed for oneDNN are partitions of oneDNN's graph API, which cost
less than torch's operators (docs/design/products.md).

Inductor fuses a convolution with its activation by a node that calls a lowering, so what is replaced are lowerings.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.graph_passes.frozen_filters import filter_pictures
from halide_backend.graph_passes.own_lowerings import prefer
from halide_backend.products.partition import Layer, Operand, Partition

_log = logging.getLogger(__name__)

#: Elements of a result up to which it is added to another tensor by a partition: that copies the tensor first, and
#: torch's operator adds in place (benchmarks/partitions.py).
_MOST_ADDED = 1 << 16

#: Products of a linear layer up to which what is saved of a call is some 3 % of its time (benchmarks/partitions.py).
_MOST_PRODUCTS = 1 << 25


@functools.cache
def compile_frozen_layers() -> None:
    """Let Inductor lower oneDNN's operators with constant weights to partitions, for graphs of this backend."""
    ours: dict[Any, Callable[..., Any]] = {
        torch.ops.mkldnn._convolution_pointwise.default: _convolution,
        torch.ops.mkldnn._convolution_pointwise.binary: _convolution_and_sum,
        torch.ops.mkldnn._convolution_pointwise_.binary: _convolution_and_sum,
        torch.ops.mkldnn._linear_pointwise.default: _linear,
    }
    for operator, lower in ours.items():
        prefer(operator, lower)


def _convolution(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    *geometry, activation, scalars, algorithm = rest
    activate = _activation(activation, scalars, algorithm)
    filters, offsets = _weight(weight), _constant(bias)
    if activate is None or filters is None or (bias is not None and offsets is None):
        return None

    if _is_static(x) and _elements(x):
        filtered = filter_pictures(x, weight, filters, offsets, *geometry, activation)
        if filtered is not None:
            return filtered

    def onednn_convolution(x: Tensor) -> Tensor:
        return activate(_convolve(x, filters, offsets, *geometry))

    def without_swish(x: Tensor) -> Tensor:
        return _convolve(x, filters, offsets, *geometry)

    is_swish = activation == "swish"
    return _partition(onednn_convolution, [x], weight, True, without_swish if is_swish else None)


def _convolution_and_sum(x: Any, other: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    *geometry, binary, alpha, activation, scalars, algorithm = rest
    activate = _activation(activation or "none", scalars, algorithm)
    filters, offsets = _weight(weight), _constant(bias)
    if activate is None or filters is None or (bias is not None and offsets is None):
        return None
    if binary != "add" or alpha not in (None, 1) or not _is_static(other):
        return None
    if _is_static(x) and _elements(x):
        filtered = filter_pictures(x, weight, filters, offsets, *geometry, activation or "none", added=other)
        if filtered is not None:
            return filtered
    if _elements(other) > _MOST_ADDED:
        return None

    def onednn_convolution_add(x: Tensor, other: Tensor) -> Tensor:
        return activate(_convolve(x, filters, offsets, *geometry) + other)

    return _partition(onednn_convolution_add, [x, other], weight, True)


def _linear(x: Any, weight: Any, bias: Any, activation: str, scalars: Any, algorithm: Any, layout: Any = None) -> Any:
    activate = _activation(activation, scalars, algorithm)
    matrix, offsets = _weight(weight), _constant(bias)
    if activate is None or matrix is None or (bias is not None and offsets is None) or len(x.get_size()) != 2:
        return None
    if not _is_static(x) or int(x.get_size()[0]) * matrix.numel() > _MOST_PRODUCTS:
        return None

    def onednn_linear(x: Tensor) -> Tensor:
        return activate(F.linear(x, matrix, offsets))

    return _partition(onednn_linear, [x], weight, False)


def _convolve(x: Tensor, *arguments: Any) -> Tensor:
    weight, bias, padding, stride, dilation, groups = arguments
    return (F.conv2d if x.dim() == 4 else F.conv3d)(x, weight, bias, stride, padding, dilation, groups)


def _swish(value: Tensor) -> Tensor:
    return value * torch.sigmoid(value)


#: By Inductor's names; the others have scalars, or oneDNN Graph leaves them to others.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda value: value,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "swish": _swish,
    "hardswish": F.hardswish,
}


def _activation(name: str, scalars: Any, algorithm: Any) -> Callable[[Tensor], Tensor] | None:
    if name == "gelu" and algorithm == "none":
        return F.gelu
    if name == "hardtanh":
        return functools.partial(F.hardtanh, min_val=scalars[0], max_val=scalars[1])
    if name == "leaky_relu":
        return functools.partial(F.leaky_relu, negative_slope=scalars[0])
    return _ACTIVATIONS.get(name)


def _constant(tensor: Any) -> Tensor | None:
    from torch._inductor.ir import ConstantBuffer, StorageBox, TensorBox
    from torch._inductor.virtualized import V

    while isinstance(tensor, (TensorBox, StorageBox)):
        tensor = tensor.data
    # Inductor makes a loop of up to 8 numbers.
    found = V.graph.constants.get(tensor.get_name()) if isinstance(tensor, ConstantBuffer) else None
    return None if found is None else found.detach()


def _weight(tensor: Any) -> Tensor | None:
    """The constant as ATen has it, if it is of float32 and packed for oneDNN; other types were not measured."""
    from torch.utils._mode_utils import no_dispatch

    packed = _constant(tensor)
    if packed is None or not packed.is_mkldnn or packed.dtype != torch.float32:
        return None
    with no_dispatch():
        return packed.to_dense()


def _is_static(tensor: Any) -> bool:
    return all(getattr(size, "is_number", True) for size in tensor.get_size())


def _elements(tensor: Any) -> int:
    return int(functools.reduce(lambda product, size: product * int(size), tensor.get_size(), 1))


def _partition(
    layer: Layer, operands: Sequence[Any], weight: Any, channels_last: bool, without_swish: Layer | None = None
) -> Any:
    """The call of a partition of `layer`, or None."""
    from torch._inductor.ir import ExternKernel, TensorBox
    from torch.utils._mode_utils import no_dispatch

    from halide_backend.graph_passes.partition_call import PartitionCall

    if not all(_is_static(each) and _elements(each) for each in operands):
        return None
    dimensions = len(operands[0].get_size())
    order = [*reversed(range(dimensions))]
    if channels_last:
        order = [dimensions - 1, 0, *range(dimensions - 2, 0, -1)]
    laid_out = [ExternKernel.require_stride_order(ExternKernel.realize_input(each), order) for each in operands]
    layouts = [Operand(*(tuple(map(int, each())) for each in (x.get_size, x.get_stride))) for x in laid_out]
    try:
        with no_dispatch():
            partition = Partition(layer, tuple(layouts))
    except (RuntimeError, ValueError) as error:
        _log.debug("%s is torch's operator: %s", layer.__name__, error)
        return None
    without = None if without_swish is None else functools.partial(Partition, without_swish, tuple(layouts))
    return TensorBox.create(PartitionCall(layer.__name__, partition, laid_out, weight.get_name(), without))
