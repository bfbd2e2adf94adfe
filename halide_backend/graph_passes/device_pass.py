"""What is done to the FX graphs of one device type, as the one pass that Inductor runs for a device."""

from __future__ import annotations

from typing import Any

from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from halide_backend.cache_key import NAME
from halide_backend.device_type import DeviceType
from halide_backend.graph_passes.accumulations import accumulate_in_float32
from halide_backend.graph_passes.arg_reductions import split_arg_reductions
from halide_backend.graph_passes.attention import compute_attention
from halide_backend.graph_passes.bfloat16_products import compute_bfloat16_products
from halide_backend.graph_passes.control_flow import leave_out_cuda_graphs
from halide_backend.graph_passes.convolution_layouts import choose_convolution_layouts
from halide_backend.graph_passes.depthwise_gradients import compute_depthwise_gradients
from halide_backend.graph_passes.dynamic_upsampling import rewrite_upsampling
from halide_backend.graph_passes.embedding_gradients import add_up_tokens
from halide_backend.graph_passes.equal_slices import write_equal_sizes_alike
from halide_backend.graph_passes.frozen_convolutions import compute_single_points, fold_padding, pack_one_dimensional
from halide_backend.graph_passes.frozen_layers import compile_frozen_layers
from halide_backend.graph_passes.joined_scatters import join_scatters
from halide_backend.graph_passes.max_pool_gradients import read_max_pool_gradients
from halide_backend.graph_passes.product_libraries import choose_product_libraries
from halide_backend.graph_passes.reduction_splits import choose_even_splits
from halide_backend.graph_passes.returned_views import store_before_views
from halide_backend.graph_passes.runs import repeat_runs
from halide_backend.graph_passes.short_rows import keep_short_reductions
from halide_backend.graph_passes.stored_values import store_what_filters_read
from halide_backend.graph_passes.sums_at_one_place import sum_at_one_place
from halide_backend.graph_passes.templates import render_for_own_backend
from halide_backend.graph_passes.transposed_parts import store_transposed_parts_apart
from halide_backend.graph_passes.two_step_reductions import reduce_columns_first, reduce_in_two_steps
from halide_backend.graph_passes.whole_reductions import reduce_rows_first
from halide_backend.graph_passes.winograd import compute_by_winograd
from halide_backend.products.choice import Choice
from halide_backend.selection import is_selected


class DevicePass(CustomGraphModulePass):
    """Rewrites graphs of `kind` while this backend is selected for it, after the pass that was there, `present`.

    Inductor runs it when its own passes are done (a product and a sum are an `addmm`), and before it lowers the graph.
    """

    def __init__(self, kind: DeviceType, present: CustomGraphModulePass | None) -> None:
        self._kind = kind
        self._present = present

    def __call__(self, graph: GraphModule) -> None:
        if self._present is not None:
            self._present(graph)
        if not is_selected(self._kind):
            return
        _start_workers()
        render_for_own_backend(self._kind)
        repeat_runs(graph)
        rewrite_upsampling(graph)
        read_max_pool_gradients(graph)
        if self._kind.on_host:
            compute_bfloat16_products(graph)
            choose_product_libraries(graph)
            compute_attention(graph)
            compute_depthwise_gradients(graph)
            add_up_tokens(graph)
            compute_by_winograd(graph)
            choose_convolution_layouts(graph)
            fold_padding(graph)
            pack_one_dimensional(graph)
            compile_frozen_layers()
            write_equal_sizes_alike()
            compute_single_points()
            store_what_filters_read(graph)
            reduce_columns_first(graph, self._kind.name)
            reduce_rows_first(graph)
            store_before_views(graph)
        else:
            leave_out_cuda_graphs(graph)
            choose_even_splits()
            keep_short_reductions()
            store_transposed_parts_apart(self._kind)
            accumulate_in_float32(graph)
            sum_at_one_place(graph)
            join_scatters(graph)
            split_arg_reductions(graph)
            reduce_in_two_steps(graph, self._kind.name)

    def uuid(self) -> Any:
        """What Inductor's cache keys need to know besides this package's sources, which they contain already."""
        present = None if self._present is None else self._present.uuid()
        if not is_selected(self._kind):
            return present
        return (NAME, Choice.of_this_process().digest() if self._kind.on_host else "", present)


def _start_workers() -> None:
    # Inductor still has to lower the graph: the worker's start, 0.12 s, is over when the first kernel comes.
    from halide_backend.pipeline import start_workers

    start_workers()
