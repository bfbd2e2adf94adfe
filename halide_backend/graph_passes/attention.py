"""Attention of float32 on a CPU as a kernel of this backend where that is faster (docs/design/products.md).

ATen's operator multiplies by MKL. The kernel is that of the operands' sizes and strides, which are known when it is
called: it is compiled then, unless one of equal operands was, in this process or another.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch.fx import GraphModule, Node

from halide_backend import config
from halide_backend.device_type import CPU
from halide_backend.errors import HalideBackendError
from halide_backend.products.attention import AttentionWork
from halide_backend.products.choice import Choice

log = logging.getLogger("halide_backend")

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

_library = torch.library.Library("halide_backend", "FRAGMENT")
_library.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float scale, str target) -> Tensor"
)

#: The first result of ATen's operator, of equal numbers of heads of float32, with nothing dropped. `target` is the
#: option of that name at the time when the graph is compiled.
ATTENTION = torch.ops.halide_backend.attention.default

#: Sizes and strides of an operand.
_Operand = tuple[tuple[int, ...], tuple[int, ...]]

#: Elements from which an index into an operand is no int32, which is what the kernel computes.
_TOO_FAR = 2**31

#: By operands, whether it is causal, the scale and the target; None where there is no kernel.
_kernels: dict[tuple[tuple[_Operand, ...], bool, float, str], Callable[..., None] | None] = {}


def compute_attention(graph: GraphModule) -> None:
    """Rewrite attention whose kernel is faster than ATen's operator, if no gradient needs that one's second result."""
    choice = Choice.of_this_process()
    # Code of a C++ wrapper may be run by a process without this package.
    if not choice.may_attend() or inductor_config.cpp_wrapper:
        return
    _install_lowering()
    for node in graph.graph.find_nodes(op="call_function", target=_FLASH):
        attention = _attention(node)
        if attention is not None and choice.attends(attention, _lanes()):
            _rewrite(graph, node)


def _attention(node: Node) -> AttentionWork | None:
    """What `node` computes; None if there is no kernel for that."""
    query, key, value, dropout, causal, mask, _ = _arguments(node)
    tensors = [each.meta["val"] for each in (query, key, value, mask) if each is not None]
    sizes = [size for each in tensors for size in (*each.shape, *each.stride())]
    if dropout or not all(isinstance(size, int) for size in sizes):
        return None
    if any(each.dtype != torch.float32 or not each.numel() for each in tensors):
        return None
    (batch, heads, queries, depth), keys = tensors[0].shape, tensors[1].shape[2]
    if not all(each.shape == (batch, heads, keys, depth) for each in tensors[1:3]):
        return None
    if any(user.args[1] != 0 for user in node.users):
        return None
    return AttentionWork(batch * heads, queries, keys, depth, bool(causal))


def _arguments(node: Node) -> tuple[Any, ...]:
    """query, key, value, dropout, causal, mask, scale."""
    names = ("query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale")
    given = {**dict(zip(names, node.args)), **node.kwargs}
    return tuple(given.get(name) for name in names)


def _rewrite(graph: GraphModule, node: Node) -> None:
    query, key, value, _, causal, mask, scale = _arguments(node)
    scale = 1 / math.sqrt(query.meta["val"].shape[3]) if scale is None else scale
    with graph.graph.inserting_before(node):
        given = (query, key, value, mask, bool(causal), float(scale), config.target)
        result = graph.graph.call_function(ATTENTION, given)
    for user in list(node.users):
        result.meta.update(user.meta)
        user.replace_all_uses_with(result)
        graph.graph.erase_node(user)
    graph.graph.erase_node(node)


def _install_lowering() -> None:
    """Tell Inductor how the operator is lowered: a call of it, in code that imports this module, where it is defined.
    Whoever loads an artifact of that code need not have chosen this backend."""
    from torch._inductor.ir import FallbackKernel, IRNode
    from torch._inductor.lowering import add_layout_constraint, constrain_to_fx_strides, lowerings, register_lowering

    class Call(FallbackKernel):
        def codegen(self, wrapper: Any) -> None:
            wrapper.add_import_once(f"import {__name__}")
            super().codegen(wrapper)

    if ATTENTION not in lowerings:
        add_layout_constraint(ATTENTION, constrain_to_fx_strides)

        @register_lowering(ATTENTION, type_promotion_kind=None)  # type: ignore[untyped-decorator]
        def lower(*operands: Any) -> Any:
            result: IRNode = Call.create(ATTENTION, *operands)
            return result.wrap_for_lowering()


def _lanes() -> int:
    from halide_backend.pipeline import current_target

    return current_target(CPU.name).vector_bytes // 4


def _shape(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, target: str
) -> Tensor:
    batch, heads, queries, depth = query.shape
    return query.new_empty(batch, queries, heads, depth).transpose(1, 2)


def _computed(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, target: str
) -> Tensor:
    operands = [each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value)]
    if mask is not None:
        mask = mask.expand(*query.shape[:3], key.shape[2])
        operands.append(mask if mask.stride(3) == 1 else mask.contiguous())
    known = (tuple((each.shape, each.stride()) for each in operands), causal, scale, target)
    if known not in _kernels:
        _kernels[known] = _kernel(*known)
    kernel = _kernels[known]
    if kernel is not None:
        result = _shape(query, key, value, mask, causal, scale, target)
        try:
            kernel(*operands, result)
            return result
        except HalideBackendError as error:
            log.warning("attention is left to ATen: %s", error)
            _kernels[known] = None
    flash: Tensor = _FLASH(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)[0]
    return flash


def _kernel(operands: tuple[_Operand, ...], causal: bool, scale: float, target: str) -> Callable[..., None] | None:
    """The kernel for such operands, which is compiled when it is called first; None if memory is too far apart."""
    from halide_backend.codegen.cpu.attention_text import attention_text
    from halide_backend.kernel_library.attention import Attention, Heads
    from halide_backend.loading import load_kernel

    extents = [1 + sum((size - 1) * stride for size, stride in zip(*operand)) for operand in operands]
    (batch, heads, queries, depth), keys = operands[0][0], operands[1][0][2]
    if max(*extents, batch * heads * queries * depth) >= _TOO_FAR:
        return None
    places = [Heads(*strides[:3]) for _, strides in operands]
    attention = Attention(batch, heads, queries, keys, depth, scale, causal, *places)
    arity = len(operands) + 1
    with config.patch(target=target):
        text = attention_text(attention, extents, _lanes())
        kernel: Callable[..., None] = load_kernel("halide_attention", [(text, tuple(range(arity)))], arity)
    return kernel


_library.impl("attention", _computed, "CPU")
_library.impl("attention", _shape, "Meta")
