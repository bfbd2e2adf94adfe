"""Graphs for a GPU that is not there: lowered, scheduled and written by Inductor, with invented times.

What is not real is the device, what Triton's package is asked (nothing it makes is run), and every measurement.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.codegen.common import get_custom_backend_pass_for_device
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from halide_backend.plugin import register

_CUDA = torch.device("cuda", 0)

_PROPERTIES = SimpleNamespace(
    major=9, minor=0, multi_processor_count=132, warp_size=32, regs_per_multiprocessor=65536, total_memory=1 << 37,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, gcnArchName="", name="none",
    shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10, L2_cache_size=50 << 20,
)  # fmt: skip


class _Config:
    """Triton's Config, as far as templates read it."""

    def __init__(self, kwargs: dict[str, Any], num_stages: int = 1, num_warps: int = 4, **rest: Any) -> None:
        self.kwargs, self.num_stages, self.num_warps = kwargs, num_stages, num_warps
        self.__dict__.update(rest)

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_stages": self.num_stages, "num_warps": self.num_warps}


def pretend(patch: pytest.MonkeyPatch) -> None:
    """Let this process have a GPU of compute capability 9.0, and Triton."""
    register()
    _device(patch)
    _triton(patch)
    _measurements(patch)


def code_of(
    function: Callable[..., Any], arguments: Sequence[tuple[Sequence[int], torch.dtype]], backend: str, **options: Any
) -> tuple[str, GraphLowering]:
    """What Inductor writes for `function` of CUDA tensors, given as (size, dtype), and the graph it lowered."""
    (wrapper, _), graph = _written(function, arguments, backend, {}, **options)
    return wrapper, graph


def cpp_of(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Sequence[int], torch.dtype]],
    backend: str,
    in_package: bool,
    **options: Any,
) -> tuple[str, str]:
    """The same as C++: the wrapper, for this process or for a package of AOTInductor, and the kernels' source.

    A tensor without dimensions is on the CPU.
    """
    lowering = {"cpp_wrapper": True, "aot_mode": in_package}
    # As compile_fx sets them for a C++ wrapper.
    options = {"cpp_wrapper": True, "graph_partition": False, "triton.autotune_at_compile_time": False, **options}
    return _written(function, arguments, backend, lowering, **options)[0]


def _written(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Sequence[int], torch.dtype]],
    backend: str,
    lowering: dict[str, bool],
    **options: Any,
) -> tuple[tuple[str, str], GraphLowering]:
    torch._dynamo.reset()
    settings = inductor_config.patch(
        cuda_backend=backend,
        force_disable_caches=True,
        # Invented times are for nobody else.
        autotune_local_cache=False,
        # Else a template that one backend rendered would be another's.
        enable_caching_generated_triton_templates=False,
        **options,
    )
    with settings, FakeTensorMode() as fake, V.set_fake_mode(fake):
        graph_module = _graph(function, arguments)
        devices = [_CUDA if size or not lowering else torch.device("cpu") for size, _ in arguments]
        tensors = [torch.empty(size, dtype=d, device=device) for (size, d), device in zip(arguments, devices)]
        FakeTensorProp(graph_module, mode=fake).propagate_dont_convert_inputs(*tensors)
        graph_pass: Any = get_custom_backend_pass_for_device("cuda")
        if graph_pass is not None:
            graph_pass(graph_module)
        graph = GraphLowering(graph_module, example_inputs=tensors, **lowering)
        with V.set_graph_handler(graph), V.set_debug_handler(DebugContext()), V.set_aot_compilation(graph.aot_mode):
            graph.run(*tensors)
            wrapper, kernels = (str(getattr(part, "value", part)) for part in graph.codegen())
    return (wrapper, kernels), graph


def _graph(function: Callable[..., Any], arguments: Sequence[tuple[Sequence[int], torch.dtype]]) -> GraphModule:
    """The graph of `function`: traced on the CPU, where no device guard is asked for, and moved."""

    def in_tuple(*tensors: Tensor) -> Any:
        result = function(*tensors)
        return result if isinstance(result, tuple) else (result,)

    tensors = [torch.empty(size, dtype=dtype) for size, dtype in arguments]
    graph_module = make_fx(in_tuple, decomposition_table=select_decomp_table())(*tensors)
    for node in graph_module.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": _CUDA}
        node.meta.clear()
    graph_module.recompile()
    return graph_module


def _device(patch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.device_interface import CudaInterface, register_interface_for_device
    from torch._inductor.codegen import cpp_wrapper_gpu
    from torch._subclasses import fake_tensor

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: _PROPERTIES,
        "get_device_capability": lambda device=None: (9, 0),
        "is_tf32_supported": lambda *_, **__: True,
    }
    for name, answer in answers.items():
        patch.setattr(torch.cuda, name, answer)
    for kind in (CudaInterface, CudaInterface.Worker):
        patch.setattr(kind, "get_device_properties", staticmethod(lambda device=None: _PROPERTIES))
    patch.setattr(CudaInterface, "get_compute_capability", staticmethod(lambda device=None: 90))
    patch.setattr(CudaInterface, "is_available", staticmethod(lambda: True))
    for name in ("cuda", "cuda:0"):
        register_interface_for_device(name, CudaInterface)
    patch.setattr(fake_tensor, "init_gpu_context", lambda device: None)
    patch.setattr(cpp_wrapper_gpu, "get_gpu_type", lambda: "cuda")


def _triton(patch: pytest.MonkeyPatch) -> None:
    from torch._inductor import codecache, scheduler
    from torch._inductor.runtime import triton_compat
    from torch.utils import _triton

    names = ("", ".compiler", ".compiler.compiler", ".compiler.errors", ".backends", ".backends.compiler")
    for name in (f"triton{ending}" for ending in names):
        module = ModuleType(name)
        error = type("CompilationError", (Exception,), {})
        contents = {"__version__": "3.6.0", "__path__": [], "__spec__": ModuleSpec(name, None)}
        module.__dict__.update(contents, CompilationError=error)
        patch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    for module_name in ("template_heuristics.triton", "heuristics.template.triton"):
        try:
            heuristics = importlib.import_module(f"torch._inductor.{module_name}")
        except ImportError:
            continue
        patch.setattr(heuristics, "TritonConfig", _Config)
    patch.setattr(scheduler, "has_triton", lambda *_, **__: True)
    patch.setattr(_triton, "triton_hash_with_backend", lambda: "none")
    patch.setattr(triton_compat, "triton_key", lambda: "none", raising=False)
    # What Triton would be given is not run, and need not be a module.
    written = (SimpleNamespace(__file__=f"/nowhere/{number}.py", key=str(number)) for number in itertools.count())
    patch.setattr(codecache.PyCodeCache, "load", lambda *_, **__: next(written))


def _measurements(patch: pytest.MonkeyPatch) -> None:
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

    def times(self: Any, choices: Sequence[Any], *_: Any, **__: Any) -> dict[Any, float]:
        """A template is always faster than the library, and a later one slower than an earlier one."""
        return {c: 9.0 if isinstance(c, ExternKernelCaller) else 1 + number for number, c in enumerate(choices)}

    patch.setattr(AlgorithmSelectorCache, "benchmark", times)
    patch.setattr(AlgorithmSelectorCache, "make_precompile_fn", lambda *_, **__: dict)
    patch.setattr(TritonScheduling, "benchmark_codegened_module", lambda self, module, *_, **__: (0.01, ""))
    patch.setattr(AsyncCompile, "use_process_pool", classmethod(lambda cls: False))
