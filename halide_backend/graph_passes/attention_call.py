"""Attention of float32 and its gradients as operators, whose kernels are loaded when they are called.

A kernel is that of the operands' sizes and strides, which are certain only then; it is compiled unless one of equal
operands was, in this process or another. When a graph is lowered, its kernels are built ahead. What has no kernel is
computed by ATen's operators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halide_backend import config
from halide_backend.device_type import CPU
from halide_backend.errors import HalideBackendError

log = logging.getLogger("halide_backend")

#: ATen's operators, which the others replace.
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

_library = torch.library.Library("halide_backend", "FRAGMENT")
_LAST = "Tensor? mask, bool causal, float scale, str target"
_library.define(f"attention(Tensor query, Tensor key, Tensor value, {_LAST}) -> Tensor")
_library.define(f"attention_with_logsumexp(Tensor query, Tensor key, Tensor value, {_LAST}) -> (Tensor, Tensor)")
_library.define(
    "attention_gradients(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor result, Tensor logsumexp, "
    f"{_LAST}) -> (Tensor, Tensor, Tensor)"
)

#: The first result of `FLASH`, of equal numbers of heads of float32, with nothing dropped. `target` is the option of
#: that name at the time when the graph is compiled.
ATTENTION = torch.ops.halide_backend.attention.default

#: Both results of `FLASH`.
WITH_LOGSUMEXP = torch.ops.halide_backend.attention_with_logsumexp.default

#: The results of `FLASH_BACKWARD`.
GRADIENTS = torch.ops.halide_backend.attention_gradients.default

_RESULTS = {ATTENTION: 1, WITH_LOGSUMEXP: 2, GRADIENTS: 3}

_NAME = "halide_attention"

#: Sizes and strides of an operand.
_Operand = tuple[tuple[int, ...], tuple[int, ...]]

#: Which operator, its operands, whether it is causal, the scale and the target.
_Known = tuple[Any, tuple[_Operand, ...], bool, float, str]

#: Elements from which an index into an operand is no int32, which is what the kernel computes.
_TOO_FAR = 2**31

#: None where there is no kernel.
_kernels: dict[_Known, Callable[..., None] | None] = {}


def install_lowerings() -> None:
    """Tell Inductor how the operators are lowered: a call, in code that imports this module, where they are defined.
    Whoever loads an artifact of that code need not have chosen this backend."""
    from torch._inductor.ir import FallbackKernel, TensorBox
    from torch._inductor.lowering import add_layout_constraint, constrain_to_fx_strides, lowerings, register_lowering
    from torch.utils._pytree import tree_map

    class Call(FallbackKernel):
        def codegen(self, wrapper: Any) -> None:
            wrapper.add_import_once(f"import {__name__}")
            super().codegen(wrapper)

    def install(operator: Any) -> None:
        add_layout_constraint(operator, constrain_to_fx_strides)

        @register_lowering(operator, type_promotion_kind=None)  # type: ignore[untyped-decorator]
        def lower(*operands: Any) -> Any:
            _build_ahead(operator)
            return tree_map(TensorBox.create, Call.create(operator, *operands))

    for operator in (ATTENTION, WITH_LOGSUMEXP, GRADIENTS):
        if operator not in lowerings:
            install(operator)


def _build_ahead(operator: Any) -> None:
    """Let the kernel of the call that is being lowered be built: its operands will have these sizes and strides."""
    from torch._inductor.virtualized import V

    from halide_backend.pipeline import build_ahead

    node = V.graph.current_node
    given = (each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in node.args)
    *tensors, mask, causal, scale, target = given
    _, known = _known(operator, _operands(tensors, mask), causal, scale, target)
    with config.patch(target=target):
        if (text := _text(known)) is not None:
            build_ahead(text, _NAME)


def lanes() -> int:
    """Elements of float32 in a vector of the target."""
    from halide_backend.pipeline import current_target

    return current_target(CPU.name).vector_bytes // 4


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, target: str
) -> Tensor:
    result = _matrices(query)
    if _ran(ATTENTION, _operands((query, key, value), mask), (result,), causal, scale, target):
        return result
    flash: Tensor = FLASH(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)[0]
    return flash


def _with_logsumexp(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, target: str
) -> tuple[Tensor, Tensor]:
    results = (_matrices(query), _numbers(query))
    if _ran(WITH_LOGSUMEXP, _operands((query, key, value), mask), results, causal, scale, target):
        return results
    flash: tuple[Tensor, Tensor] = FLASH(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
    return flash


def _gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    target: str,
) -> tuple[Tensor, Tensor, Tensor]:
    operands = _operands((gradient, query, key, value, result, logsumexp), mask)
    results = (_matrices(query), _matrices(key), _matrices(value))
    if _ran(GRADIENTS, operands, results, causal, scale, target):
        return results
    given = (gradient, query, key, value, result, logsumexp, 0.0, causal)
    flash: tuple[Tensor, Tensor, Tensor] = FLASH_BACKWARD(*given, attn_mask=mask, scale=scale)
    return flash


def _operands(tensors: Sequence[Tensor], mask: Tensor | None) -> list[Tensor]:
    """What a kernel reads of those that an operator is given, each of four dimensions."""
    query, key = tensors[1:3] if len(tensors) > 3 else tensors[:2]
    masks = [] if mask is None else [mask.expand(*query.shape[:3], key.shape[2])]
    return [*(each if each.dim() == 4 else each.unsqueeze(3) for each in tensors), *masks]


def _matrices(like: Tensor) -> Tensor:
    """An empty tensor of the sizes of `like`, where the heads of a row lie together."""
    batch, heads, rows, depth = like.shape
    return like.new_empty(batch, rows, heads, depth).transpose(1, 2)


def _numbers(query: Tensor) -> Tensor:
    """An empty tensor of a number for each query, where those of its heads lie together."""
    batch, heads, queries, _ = query.shape
    return query.new_empty(batch, queries, heads).transpose(1, 2)


def _known(
    operator: Any, operands: Sequence[Tensor], causal: bool, scale: float, target: str
) -> tuple[list[Tensor], _Known]:
    """The operands as a kernel takes them, and what it is known by."""
    given = [each if each.stride(3) == 1 else each.contiguous() for each in operands]
    return given, (operator, tuple((each.shape, _strides(each)) for each in given), causal, scale, target)


def _strides(operand: Tensor) -> tuple[int, ...]:
    """Its strides, 0 from one batch or head to the next where there is one: what Inductor knows of those is not what
    operands have."""
    batches, heads, *rest = zip(operand.shape, operand.stride())
    return (*(stride if size > 1 else 0 for size, stride in (batches, heads)), *(stride for _, stride in rest))


def _ran(
    operator: Any, operands: Sequence[Tensor], results: Sequence[Tensor], causal: bool, scale: float, target: str
) -> bool:
    """Whether a kernel has computed `results`."""
    given, known = _known(operator, operands, causal, scale, target)
    if known not in _kernels:
        _kernels[known] = _kernel(known)
    kernel = _kernels[known]
    if kernel is None:
        return False
    try:
        kernel(*given, *results)
    except HalideBackendError as error:
        log.warning("attention is left to ATen: %s", error)
        _kernels[known] = None
    return _kernels[known] is not None


def _kernel(known: _Known) -> Callable[..., None] | None:
    """The kernel for such operands, whose first call waits until it is compiled; None if memory is too far apart."""
    from halide_backend.loading import load_kernel

    operator, operands, *_, target = known
    with config.patch(target=target):
        text = _text(known)
        if text is None:
            return None
        arity = len(operands) + _RESULTS[operator]
        kernel: Callable[..., None] = load_kernel(_NAME, [(text, tuple(range(arity)))], arity)
    return kernel


def _text(known: _Known) -> str | None:
    """The text of the kernel for such operands and this process's target; None if memory is too far apart."""
    from halide_backend.codegen.cpu.attention_text import attention_text, gradients_text
    from halide_backend.kernel_library.attention import Attention, Heads
    from halide_backend.kernel_library.attention_gradients import AttentionGradients

    operator, operands, causal, scale, _ = known
    backward = operator is GRADIENTS
    extents = [1 + sum((size - 1) * stride for size, stride in zip(*operand)) for operand in operands]
    (batch, heads, queries, depth), keys = operands[backward][0], operands[backward + 1][0][2]
    if max(*extents, batch * heads * max(queries, keys) * depth) >= _TOO_FAR:
        return None
    places = [Heads(*strides[:3]) for _, strides in operands]
    query, key, value = places[backward : backward + 3]
    own = 6 if backward else 3
    mask = places[own] if len(places) > own else None
    attention = Attention(batch, heads, queries, keys, depth, scale, causal, query, key, value, mask)
    if backward:
        return gradients_text(AttentionGradients(attention, places[0], *places[4:6]), extents, lanes())
    return attention_text(replace(attention, logsumexp=operator is WITH_LOGSUMEXP), extents, lanes())


for _operator, _compute, _shape in (
    ("attention", _attention, lambda query, *_: _matrices(query)),
    ("attention_with_logsumexp", _with_logsumexp, lambda query, *_: (_matrices(query), _numbers(query))),
    (
        "attention_gradients",
        _gradients,
        lambda gradient, query, key, value, *_: (_matrices(query), _matrices(key), _matrices(value)),
    ),
):
    _library.impl(_operator, _compute, "CPU")
    _library.impl(_operator, _shape, "Meta")
