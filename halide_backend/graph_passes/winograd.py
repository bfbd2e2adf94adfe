"""Filters of 3 x 3 by Winograd's algorithm, and gradients of their pictures (docs/design/products.md).

Halide is imported when there is such a convolution: what only rewrites graphs does without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.fx import GraphModule, Node

from halide_backend import config
from halide_backend.device_type import CPU
from halide_backend.graph_passes.filter_call import FilterCall
from halide_backend.graph_passes.own_lowerings import prefer, prefers
from halide_backend.kernel_library.window import Window

if TYPE_CHECKING:
    from halide_backend.kernel_library.winograd import Blocks, Winograd

    Planned = tuple[Winograd, Blocks]

_aten = torch.ops.aten
_FORWARD, _BACKWARD = _aten.convolution.default, _aten.convolution_backward.default

_library = torch.library.Library("halide_backend", "FRAGMENT")
_library.define("convolution_3x3(Tensor input, Tensor weight, Tensor? bias, int[2] padding) -> Tensor")
_library.define("convolution_3x3_gradient(Tensor gradient, Tensor input, Tensor weight, int[2] padding) -> Tensor")

#: A convolution without steps, and the gradient of its `input`.
CONVOLUTION = torch.ops.halide_backend.convolution_3x3.default
GRADIENT = torch.ops.halide_backend.convolution_3x3_gradient.default

#: Stride before the padding; dilation, whether it is transposed, padding of the output and groups behind it.
_BEFORE, _BEHIND = ([1, 1],), ([1, 1], False, [0, 0], 1)

#: What the rows and the columns of a filter are multiplied by (kernel_library/winograd.py).
_OF_FILTER = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))

#: Pixels of all results from which it takes less time to transform weights whose channels lie together, and filters far
#: apart, than it saves (benchmarks/convolutions_3x3.py).
_FEWEST_PIXELS = 32

#: Elements from which an index is no int32, which is what the kernels compute.
_TOO_FAR = 2**31


def compute_by_winograd(graph: GraphModule) -> None:
    """Take such convolutions, and the gradients of their pictures, from ATen's operators.

    Inductor brings the weights of ATen's into channels-last with the pictures, and back in training; a kernel takes
    weights as they are.
    """
    if not (config.winograd and prefers()):
        return
    for node in graph.graph.find_nodes(op="call_function", target=_FORWARD):
        x, weight, bias, *steps = node.args
        if _is_planned(x, weight, steps, is_gradient=False):
            _install_lowerings()
            node.target, node.args = CONVOLUTION, (x, weight, bias, _pair(steps[1]))
    for node in graph.graph.find_nodes(op="call_function", target=_BACKWARD):
        gradient, _, weight, _, *steps, mask = node.args
        if mask[0] and _is_planned(gradient, weight, steps, is_gradient=True):
            _install_lowerings()
            _take_gradient(node)


def _is_planned(x: Any, weight: Any, steps: Sequence[Any], is_gradient: bool) -> bool:
    x, weight = x.meta["val"], weight.meta["val"]
    stride, padding, dilation, is_transposed, _, groups = steps
    sizes = [*x.shape, *weight.shape]
    if len(sizes) != 8 or weight.dtype != torch.float32 or weight.device.type != CPU.name:
        return False
    if is_transposed or {*stride, *dilation, groups} != {1} or not all(isinstance(each, int) for each in sizes):
        return False
    of_filter, of_channel, of_row, of_column = weight.stride()
    strides = (of_filter, of_channel, of_row, of_column)
    return _planned(x.shape, weight.shape, strides, _pair(padding), False, is_gradient) is not None


def _take_gradient(node: Node) -> None:
    """Let an operator of its own compute the gradient of the pictures."""
    operands, (padding, mask), graph = node.args[:3], (node.args[5], node.args[-1]), node.graph
    of_picture, *others = node.meta["val"]
    with graph.inserting_before(node):
        taken = graph.call_function(GRADIENT, (*operands, _pair(padding)))
    taken.meta["val"] = of_picture
    node.args = (*node.args[:-1], [False, *mask[1:]])
    node.meta["val"] = (None, *others)
    for part in list(node.users):
        if part.args[1] == 0:
            part.replace_all_uses_with(taken)
            graph.erase_node(part)
    if not node.users:
        graph.erase_node(node)


def _pair(values: Sequence[int]) -> list[int]:
    return list(values) * (2 // len(values))


def _install_lowerings() -> None:
    from torch._inductor.lowering import add_needs_realized_inputs, fallback_handler, lowerings, register_lowering

    if CONVOLUTION in lowerings:
        return
    convolution, backward = lowerings[_FORWARD], fallback_handler(_BACKWARD, add_to_fallback_set=False)

    def lower(x: Any, weight: Any, bias: Any, padding: Any) -> Any:
        return convolution(x, weight, bias, *_BEFORE, padding, *_BEHIND)

    def lower_gradient(gradient: Any, x: Any, weight: Any, padding: Any) -> Any:
        return backward(gradient, x, weight, None, *_BEFORE, padding, *_BEHIND, [True, False, False])[0]

    add_needs_realized_inputs([CONVOLUTION, GRADIENT])
    register_lowering(CONVOLUTION, type_promotion_kind=None)(lower)
    register_lowering(GRADIENT, type_promotion_kind=None)(lower_gradient)
    prefer(CONVOLUTION, _convolution)
    prefer(GRADIENT, _gradient)


def _convolution(x: Any, weight: Any, bias: Any, padding: Any) -> Any:
    return _call_with(x, weight, bias, padding, is_gradient=False)


def _gradient(gradient: Any, x: Any, weight: Any, padding: Any) -> Any:
    return _call_with(gradient, weight, None, padding, is_gradient=True)


def _call_with(x: Any, weight: Any, bias: Any, padding: Any, is_gradient: bool) -> Any:
    """The call of a kernel that transforms the weights, or None."""
    from torch._inductor.ir import ExternKernel

    weight = ExternKernel.realize_input(weight)
    weight.freeze_layout()
    of_filter, of_channel, of_row, of_column = map(int, weight.get_stride())
    strides = (of_filter, of_channel, of_row, of_column)
    planned = _planned(x.get_size(), weight.get_size(), strides, padding, bias is not None, is_gradient)
    if planned is None:
        return None
    terms = [] if bias is None else [ExternKernel.realize_input(bias)]
    return call(planned, [channels_last(x), weight, *terms])


def _planned(
    size: Sequence[Any],
    of_weight: Sequence[Any],
    strides: tuple[int, int, int, int],
    padding: Sequence[int],
    has_offsets: bool,
    is_gradient: bool,
) -> Planned | None:
    """A kernel for pictures, or for gradients of the results, of this `size`."""
    filters, channels, down, across = map(int, of_weight)
    (above, left), (height, width) = padding, map(int, size[2:])
    if is_gradient:
        # The turned filters are for the channels that they had, and reach beyond the gradient as far as they can.
        filters, strides = channels, (strides[1], strides[0], *strides[2:])
        above, left = down - 1 - above, across - 1 - left
    rows, columns = height + 2 * above - down + 1, width + 2 * left - across + 1
    window = Window(rows=rows, columns=columns, down=down, across=across, stride=(1, 1), above=above, left=left)
    return plan(size, filters, window, has_offsets, weight_strides=strides, is_turned=is_gradient)


def plan(
    size: Sequence[Any],
    filters: int,
    window: Window,
    has_offsets: bool,
    *,
    after: str = "none",
    adds: bool = False,
    weight_strides: tuple[int, int, int, int] | None = None,
    is_turned: bool = False,
) -> Planned | None:
    """The work of a kernel for pictures of this `size`, N x C x H x W, and how it is grouped, or None if none would be
    faster. The other arguments are attributes of `Winograd`."""
    if (window.down, window.across, *window.stride) != (3, 3, 1, 1) or min(*size, window.rows, window.columns) < 1:
        return None
    from halide_backend.codegen.cpu.winograd_text import blocks
    from halide_backend.kernel_library.winograd import Winograd
    from halide_backend.pipeline import current_target

    batch, channels, height, width = map(int, size)
    pixels = batch * window.rows * window.columns
    if max(batch * channels * height * width, filters * pixels, 16 * filters * channels) >= _TOO_FAR:
        return None
    if weight_strides is not None and weight_strides[0] > weight_strides[1] == 1 and pixels < _FEWEST_PIXELS:
        return None
    work = Winograd(
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        filters=filters,
        window=window,
        after=after,
        has_offsets=has_offsets,
        adds=adds,
        weight_strides=weight_strides,
        is_turned=is_turned,
    )
    groups = blocks(work, current_target(CPU.name).vector_bytes // 4, torch.get_num_threads())
    return None if groups is None else (work, groups)


def transformed(weights: Tensor, together: int) -> Tensor:
    """The 4 x 4 numbers of each filter and channel, with as many filters `together`; made in float64."""
    rows = torch.tensor(_OF_FILTER, dtype=torch.float64)
    points = torch.einsum("ia,fcab,jb->ijcf", rows, weights.double(), rows).float()
    return points.unflatten(-1, (-1, together)).permute(3, 0, 1, 2, 4).contiguous()


def channels_last(tensor: Any) -> Any:
    """`tensor`, of Inductor's IR, in memory, the channels of a pixel together."""
    from torch._inductor.ir import ExternKernel

    return ExternKernel.require_stride_order(ExternKernel.realize_input(tensor), [3, 0, 2, 1])


def call(planned: Planned, operands: Sequence[Any], replaced: str | None = None) -> Any:
    """The call of the kernel that is `planned`, which takes `operands` (see `FilterCall`)."""
    from torch._inductor.ir import TensorBox

    from halide_backend.codegen.cpu.winograd_text import winograd_text

    work, groups = planned
    text = winograd_text(work, groups)
    return TensorBox.create(FilterCall("halide_winograd", text, operands, work.out_dims, replaced))


def _computed(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    result: Tensor = _FORWARD(x, weight, bias, *_BEFORE, padding, *_BEHIND)
    return result.contiguous(memory_format=_layout(x, weight))


def _computed_gradient(gradient: Tensor, x: Tensor, weight: Tensor, padding: Sequence[int]) -> Tensor:
    steps = (*_BEFORE, padding, *_BEHIND, [True, False, False])
    result: Tensor = _BACKWARD(gradient, x, weight, None, *steps)[0]
    return result.contiguous(memory_format=_layout(x, weight))


def _layout(*tensors: Tensor) -> torch.memory_format:
    """That of ATen's results, which Inductor gives what the backward step needs of them."""
    formats = [suggest_memory_format(each) for each in tensors]
    return torch.channels_last if torch.channels_last in formats else torch.contiguous_format


for _dispatch_key in ("CPU", "Meta"):
    _library.impl("convolution_3x3", _computed, _dispatch_key)
    _library.impl("convolution_3x3_gradient", _computed_gradient, _dispatch_key)
