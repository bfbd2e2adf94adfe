"""Float32 matrix products of a graph go to the library that is fast for them (docs/design/products.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config
from torch.fx import Graph, GraphModule, Node

from halide_backend.graph_passes.onednn_linear import ONEDNN_LINEAR, install_lowering
from halide_backend.graph_passes.product_sizes import hint
from halide_backend.products.choice import Choice
from halide_backend.products.product import ONEDNN, Product, form_of

_aten = torch.ops.aten


def choose_product_libraries(graph: GraphModule) -> None:
    """Rewrite products that oneDNN computes faster than ATen."""
    # A search among templates, which somebody asked for, is not cut short.
    if config.max_autotune or config.max_autotune_gemm:
        return
    choice = Choice.of_this_process()
    if not choice.may_be_onednn():
        return
    install_lowering()
    for target, layer in _LAYERS.items():
        for node in graph.graph.find_nodes(op="call_function", target=target):
            found = layer(node)
            if found is not None and found.is_onednn(choice):
                found.write(graph.graph)


@dataclass(frozen=True)
class _Layer:
    """A product in the graph.

    Attributes:
        node: what computes it. input: m x k. weight: n x k, or k x n where it `is_right`, the right operand as it is.
        bias: n elements, or None. added: what is added besides and has two dimensions, or None.
    """

    node: Node
    input: Node
    weight: Node
    is_right: bool
    bias: Node | None = None
    added: Node | None = None

    def is_onednn(self, choice: Choice) -> bool:
        left, right = self.input.meta["val"], self.weight.meta["val"]
        if left.dtype != torch.float32 or left.device.type != "cpu" or left.dim() != 2:
            return False
        right = right if self.is_right else right.t()
        m, k, n = hint(left.shape[0]), hint(left.shape[1]), hint(right.shape[1])
        if not m * k * n:  # nothing to compute, or nothing known
            return False
        return choice.library(Product(m, n, k, form_of(_transposed(left), _transposed(right)))) == ONEDNN

    def write(self, graph: Graph) -> None:
        with graph.inserting_before(self.node):
            weight = self.weight
            if self.is_right:
                weight = graph.call_function(_aten.permute.default, (weight, [1, 0]))
                weight.meta["val"] = self.weight.meta["val"].t()
            product = graph.call_function(ONEDNN_LINEAR, (self.input, weight, self.bias))
            product.meta.update(self.node.meta)
            if self.added is not None:
                product = graph.call_function(_aten.add.Tensor, (product, self.added))
                product.meta.update(self.node.meta)
        self.node.replace_all_uses_with(product)
        operands = self.node.all_input_nodes
        graph.erase_node(self.node)
        for operand in operands:  # a weight that was packed for MKL
            if operand.op == "get_attr" and not operand.users:
                graph.erase_node(operand)


def _mm(node: Any) -> _Layer:
    left, right = node.args
    return _Layer(node, left, right, True)


def _addmm(node: Any) -> _Layer | None:
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return None
    added, left, right = node.args
    one_each = added.meta["val"].shape == node.meta["val"].shape[1:]
    terms = (added, None) if one_each else (None, added)
    return _Layer(node, left, right, True, *terms)


def _packed_for_mkl(node: Any) -> _Layer:
    """A layer whose weights `torch._inductor.config.freezing` made constants."""
    left, _, weight, bias, _ = node.args
    return _Layer(node, left, weight, False, bias)


_LAYERS = {
    _aten.mm.default: _mm,
    _aten.addmm.default: _addmm,
    **({torch.ops.mkl._mkl_linear: _packed_for_mkl} if torch._C.has_mkl else {}),
}


def _transposed(matrix: Any) -> bool:
    """Whether its columns are contiguous and its rows are not."""
    return hint(matrix.stride(0)) == 1 and hint(matrix.stride(1)) != 1
