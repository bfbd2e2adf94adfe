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
_PACKED_LINEAR = torch.ops.mkldnn._linear_pointwise.default


def choose_product_libraries(graph: GraphModule) -> None:
    """Rewrite products that oneDNN computes faster than ATen."""
    # A search among templates, which somebody asked for, is not cut short.
    if config.max_autotune or config.max_autotune_gemm:
        return
    choice = Choice.of_this_process()
    if not choice.may_be_onednn():
        return
    install_lowering()
    constants = _PackedWeights(graph)
    for target, layer in _LAYERS.items():
        for node in graph.graph.find_nodes(op="call_function", target=target):
            found = layer(node)
            if found is not None and found.is_onednn(choice):
                found.write(graph.graph, constants)


class _PackedWeights:
    """The constants of a frozen graph that have the layout which oneDNN would otherwise give them in each call: a layer
    is 1.01 to 1.08 times as fast for 128 rows and more, up to 1.58 for 8 (benchmarks/packed_weights.py).

    Inductor keeps no graph with such a constant in its cache of graphs. This pass does not run for a graph from there,
    so only layers whose weight had an opaque layout before may have one.
    """

    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph
        self._names: dict[tuple[Any, ...], str] = {}

    def node(self, weight: Node, rows: int) -> Node:
        """`weight`, n x k and a constant, for products with `rows` rows, where the graph inserts nodes now."""
        dense = getattr(self._graph, str(weight.target))
        # Layers that share a weight have constants that share its memory.
        key = (dense.data_ptr(), dense.shape, dense.stride(), rows)
        if key not in self._names:
            self._names[key] = f"_packed_weight{len(self._names)}"
            self._graph.register_buffer(self._names[key], torch.ops.mkldnn._reorder_linear_weight(dense, rows))
        return self._graph.graph.get_attr(self._names[key])


@dataclass(frozen=True)
class _Layer:
    """A product in the graph.

    Attributes:
        node: what computes it. input: m x k. weight: n x k, or k x n where it `is_right`, the right operand as it is.
        bias: n elements, or None. added: what is added besides and has two dimensions, or None. is_constant: whether
            `weight` is a constant of a frozen graph, and m is known.
    """

    node: Node
    input: Node
    weight: Node
    is_right: bool
    bias: Node | None = None
    added: Node | None = None
    is_constant: bool = False

    def is_onednn(self, choice: Choice) -> bool:
        left, right = self.input.meta["val"], self.weight.meta["val"]
        if left.dtype != torch.float32 or left.device.type != "cpu" or left.dim() != 2:
            return False
        right = right if self.is_right else right.t()
        m, k, n = hint(left.shape[0]), hint(left.shape[1]), hint(right.shape[1])
        if not m * k * n:  # nothing to compute, or nothing known
            return False
        return choice.library(Product(m, n, k, form_of(_transposed(left), _transposed(right)))) == ONEDNN

    def write(self, graph: Graph, constants: _PackedWeights) -> None:
        with graph.inserting_before(self.node):
            if self.is_constant:
                weight = constants.node(self.weight, self.input.meta["val"].shape[0])
                product = graph.call_function(_PACKED_LINEAR, (self.input, weight, self.bias, "none", [], ""))
            else:
                product = graph.call_function(ONEDNN_LINEAR, (self.input, self._by_rows(graph), self.bias))
            product.meta.update(self.node.meta)
            if self.added is not None:
                product = graph.call_function(_aten.add.Tensor, (product, self.added))
                product.meta.update(self.node.meta)
        self.node.replace_all_uses_with(product)
        operands = self.node.all_input_nodes
        graph.erase_node(self.node)
        for operand in operands:  # a weight in another layout than the product's
            if operand.op == "get_attr" and not operand.users:
                graph.erase_node(operand)

    def _by_rows(self, graph: Graph) -> Node:
        """The weight as n x k."""
        if not self.is_right:
            return self.weight
        weight = graph.call_function(_aten.permute.default, (self.weight, [1, 0]))
        weight.meta["val"] = self.weight.meta["val"].t()
        return weight


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
    return _Layer(node, left, weight, False, bias, is_constant=True)


_LAYERS = {
    _aten.mm.default: _mm,
    _aten.addmm.default: _addmm,
    **({torch.ops.mkl._mkl_linear: _packed_for_mkl} if torch._C.has_mkl else {}),
}


def _transposed(matrix: Any) -> bool:
    """Whether its columns are contiguous and its rows are not."""
    return hint(matrix.stride(0)) == 1 and hint(matrix.stride(1)) != 1
