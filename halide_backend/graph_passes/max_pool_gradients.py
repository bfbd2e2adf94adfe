"""Gradients of max pooling as reads: each element takes the gradients of the windows whose maximum it is.

torch's decomposition adds each window's gradient to memory, at a position that it computes from where the window found
its maximum. Such a scatter needs zeros that are stored first, reads them again, and is a loop over single elements,
whose result is stored in the order of channels first. The reads are a loop like any other: it has vectors, keeps
channels last where they are, and fuses with what uses the gradient.
"""

from __future__ import annotations

import functools
import math
from itertools import product
from typing import Any

import sympy
import torch
from torch import Tensor
from torch._inductor import inductor_prims
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from halide_backend.graph_passes.new_node import new_node

_library = torch.library.Library("halide_backend", "FRAGMENT")
_library.define(
    "max_pool_gradient(Tensor gradient, Tensor offsets, ScalarType dtype, SymInt[] sizes, int[] kernel, int[] stride, "
    "int[] padding) -> Tensor"
)

#: The gradient of the input, whose last sizes are `sizes`, by that of the result and where in its window each maximum
#: was found, `offsets`.
MAX_POOL_GRADIENT = torch.ops.halide_backend.max_pool_gradient.default

_aten, _prims = torch.ops.aten, torch.ops.prims
_POSITIONS = inductor_prims._low_memory_max_pool_offsets_to_indices
_CONVERT = _prims.convert_element_type.default
_VIEWS = (_aten.reshape.default, _aten.view.default)
_SAME = (*_VIEWS, _aten.clone.default)
_NARROW = (torch.bfloat16, torch.float16)

#: Windows that an element may lie in, with channels first and last. With 25 of 5 x 5 by steps of 1, 4 x 32 channels of
#: 56 x 56, reads take 609 and 391 us on an AMD Zen 5, the scatter 397 and 727 (in turns with C++'s, by a script).
_MOST_WINDOWS, _MOST_OF_CHANNELS_LAST = 9, 25


def read_max_pool_gradients(graph: GraphModule) -> None:
    """Rewrite such scatters, and the operator that is not decomposed, where an element lies in few windows."""
    for node in _calls(graph, _aten.scatter_add.default):
        zeros, axis, positions, values = node.args
        if not (zeros.target is _aten.full.default and zeros.args[1] == 0 and axis == 1):
            continue
        arguments = _arguments(positions, values, node.meta["val"].dtype)
        for view in list(node.users) if arguments else ():
            # Its sizes as they were asked for: those of the result may be quotients of products.
            if view.target in _VIEWS and _are_equal(view.args[1][-2:], arguments[3]):
                _replace(view, arguments)
    for node in _calls(graph, _aten.max_pool2d_with_indices_backward.default):
        values, *_, positions = node.args
        if arguments := _arguments(positions, values, node.meta["val"].dtype):
            _replace(node, arguments)
    graph.graph.eliminate_dead_code()


def _calls(graph: GraphModule, target: Any) -> list[Any]:
    return list(graph.graph.find_nodes(op="call_function", target=target))


def _replace(node: Node, arguments: tuple[Any, ...]) -> None:
    _install_lowering()
    with node.graph.inserting_before(node):
        node.replace_all_uses_with(new_node(MAX_POOL_GRADIENT, *arguments))


def _arguments(positions: Any, values: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """Those of the operator; none if `positions` are others, or an element lies in too many windows."""
    positions, values = _behind(positions), _behind(values)
    if positions.target is not _POSITIONS:
        return ()
    offsets, kernel, sizes, stride, padding, dilation = positions.args
    if not all(isinstance(each, int) for each in (*kernel, *stride, *padding)) or any(step != 1 for step in dilation):
        return ()
    if not _are_equal(values.meta["val"].shape, offsets.meta["val"].shape):
        return ()
    channels_last = str(offsets.meta["val"].stride()[-3]) == "1"
    if math.prod(map(_windows, kernel, stride)) > (_MOST_OF_CHANNELS_LAST if channels_last else _MOST_WINDOWS):
        return ()
    return values, offsets, dtype, sizes[-2:], kernel, stride, padding


def _behind(node: Any) -> Any:
    """What `node` has the elements of, in their order, though in fewer bits."""
    while node.target in _SAME or (node.target is _CONVERT and node.args[0].meta["val"].dtype in _NARROW):
        node = node.args[0]
    return node


def _are_equal(sizes: Any, others: Any) -> bool:
    """Whether the guards that there are say so: the size of a gradient is a symbol of its own, equal to a quotient."""
    known = ([size.meta["val"] if isinstance(size, Node) else size for size in each] for each in (sizes, others))
    return bool(statically_known_true(sym_eq(*known)))


def _windows(kernel: int, stride: int) -> int:
    """The windows that an element lies in along one dimension."""
    return -(-kernel // stride)


def _install_lowering() -> None:
    from torch._inductor.lowering import lowerings, register_lowering

    if MAX_POOL_GRADIENT not in lowerings:
        register_lowering(MAX_POOL_GRADIENT, type_promotion_kind=None)(_lower)


def _lower(gradient: Any, offsets: Any, dtype: torch.dtype, sizes: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    from torch._inductor.ir import Pointwise
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    for operand in (gradient, offsets):
        operand.realize()  # each element is read for a whole window
    load, load_offset = gradient.make_loader(), offsets.make_loader()
    *outer, rows, columns = gradient.get_size()

    def of_window(index: Any, back: tuple[int, ...]) -> Any:
        """What comes from the window that is `back` windows before the last one over an element."""
        window, places, inside = [], [], []
        for place, size, count, width, step, pad, before in zip(
            index[-2:], sizes, (rows, columns), kernel, stride, padding, back
        ):
            number = FloorDiv(place + pad, step) - before
            within = ModularIndexing(place + pad, 1, step) + before * step
            window.append(number)
            places.append(within)
            first, end = before * step - pad, (count + before) * step - pad
            if first > 0:
                inside.append(ops.ge(ops.index_expr(place, torch.int32), ops.constant(first, torch.int32)))
            if (before + 1) * step > width:
                inside.append(ops.lt(ops.index_expr(within, torch.int32), ops.constant(width, torch.int32)))
            # A pooling of unknown sizes has (size + 2 pad - width) // step + 1 windows at least.
            known = all(isinstance(each, int | sympy.Integer) for each in (size, count))
            if end < size if known else before * step < width - 1 - pad:
                inside.append(ops.lt(ops.index_expr(place, torch.int32), ops.index_expr(end, torch.int32)))

        def found() -> Any:
            at = [*index[:-2], *window]
            here = ops.index_expr(places[0] * kernel[1] + places[1], torch.int32)
            is_maximum = ops.eq(ops.to_dtype(load_offset(at), torch.int32), here)
            return ops.where(is_maximum, ops.to_dtype(load(at), dtype), ops.constant(0.0, dtype))

        return ops.masked(functools.reduce(ops.and_, inside), found, 0.0) if inside else found()

    def value(index: Any) -> Any:
        backs = product(*(range(_windows(*each)) for each in zip(kernel, stride)))
        return functools.reduce(ops.add, (of_window(index, back) for back in backs))

    return Pointwise.create(device=gradient.get_device(), dtype=dtype, inner_fn=value, ranges=[*outer, *sizes])


def _computed(
    gradient: Tensor,
    offsets: Tensor,
    dtype: torch.dtype,
    sizes: list[int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
) -> Tensor:
    positions = torch.ops.prims._low_memory_max_pool_offsets_to_indices(offsets, kernel, sizes, stride, padding, [1, 1])
    result = gradient.new_zeros((*gradient.shape[:-2], sizes[0] * sizes[1]), dtype=dtype)
    return result.scatter_add(-1, positions.flatten(-2), gradient.flatten(-2).to(dtype)).unflatten(-1, sizes)


def _shape(gradient: Tensor, offsets: Tensor, dtype: torch.dtype, sizes: list[int], *steps: list[int]) -> Tensor:
    return gradient.new_empty((*gradient.shape[:-2], *sizes), dtype=dtype)


_library.impl("max_pool_gradient", _computed, "CompositeExplicitAutograd")
_library.impl("max_pool_gradient", _shape, "Meta")
