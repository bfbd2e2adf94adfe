"""Every way to select the backend, and what the other backends notice of it: nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]

#: A function with a row reduction, its eager value and the largest difference from it.
MODEL = """
import torch
from halide_backend import stats, reset_stats
x = torch.randn(37, 65)
def f(x):
    return torch.softmax(x * 2, 1) + 1
def compiled_error(**how):
    torch._dynamo.reset()
    reset_stats()
    error = float((torch.compile(f, **how)(x) - f(x)).abs().max())
    return [error, stats()["native_kernels"], stats()["delegated_kernels"]]
"""


def assert_native(result: list[float]) -> None:
    error, native, delegated = result
    assert error < 1e-6
    assert native >= 1 and delegated == 0


def test_every_way_to_select_it(run: Run) -> None:
    found = run(
        MODEL
        + """
by_option = compiled_error(options={"cpu_backend": "halide_backend"})
by_name = compiled_error(backend="halide_backend")
whole = compiled_error(backend="halide_backend", fullgraph=True, dynamic=False)
modes = {
    mode: compiled_error(backend="halide_backend", mode=mode)
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
}
inductors = compiled_error(backend="halide_backend", options={"max-autotune": True})
ours = compiled_error(
    backend="halide_backend",
    options={"compile_time_limit": 30, "halide_backend.compile_memory_limit_mb": 2048},
)
torch._inductor.config.cpu_backend = "halide_backend"
by_configuration = compiled_error()
report(results=[by_option, by_name, whole, *modes.values(), inductors, ours, by_configuration])
""",
        # A graph that Inductor's cache has already is not compiled, and counts no kernel.
        TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
    )
    assert len(found["results"]) == 10
    for result in found["results"]:
        assert_native(result)


@pytest.mark.parametrize("first", ["import halide_backend, torch", "import torch, halide_backend"])
def test_without_autoload_an_import_is_enough(run: Run, first: str) -> None:
    found = run(
        first + MODEL + 'report(result=compiled_error(options={"cpu_backend": "halide_backend"}))',
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert_native(found["result"])


def test_the_name_needs_no_import_even_without_autoload(run: Run) -> None:
    found = run(
        """
        import torch
        x = torch.randn(100)
        y = torch.compile(lambda x: x + 1, backend="halide_backend")(x)
        import halide_backend
        report(equal=torch.equal(y, x + 1), native=halide_backend.stats()["native_kernels"])
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert found["equal"] and found["native"] == 1


def test_the_builtin_backends_stay_what_they_were(run: Run) -> None:
    """The same classes before registration, after it, and after ours was used in between."""
    found = run(
        MODEL
        + """
from torch._inductor import config
from torch._inductor.codegen import common
def classes():
    found = {}
    for device, names in {"cpu": ("cpp", "halide", "triton"), "cuda": ("triton", "halide")}.items():
        for name in names:
            with config.patch({f"{device}_backend": name}):
                made = common.get_scheduling_for_device(device)(None)
                found[f"{device} {name}"] = f"{type(made).__module__}.{type(made).__name__}"
    for device in ("cpu", "cuda"):
        for kind in ({}, {"cpp_wrapper": True}, {"fx_wrapper": True}):
            wrapper = common.get_wrapper_codegen_for_device(device, **kind)
            # Ours extends the C++ wrapper, and is itself only where this backend is selected.
            known = (base for base in wrapper.__mro__ if base.__module__.startswith("torch."))
            found[f"{device} {kind}"] = next(known).__name__
    return found
common.init_backend_registration()
before = classes()
import torch._inductor.compile_fx
after = classes()
ours = compiled_error(options={"cpu_backend": "halide_backend"})
report(before=before, after=after, afterwards=classes(), ours=ours)
"""
    )
    assert_native(found["ours"])
    assert found["before"]["cpu cpp"] == "torch._inductor.codegen.cpp.CppScheduling"
    assert found["before"]["cpu halide"] == "torch._inductor.codegen.halide.HalideScheduling"
    assert found["before"] == found["after"] == found["afterwards"]


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as Inductor does")
def test_cpp_works_before_and_after_in_one_process(run: Run) -> None:
    found = run(
        MODEL
        + """
before = compiled_error()
ours = compiled_error(backend="halide_backend")
after = compiled_error(options={"cpu_backend": "cpp"})
report(before=before, ours=ours, after=after)
"""
    )
    assert_native(found["ours"])
    for error, native, delegated in (found["before"], found["after"]):
        assert error < 1e-6 and native == delegated == 0


def test_other_registrations_are_kept(run: Run) -> None:
    """A pass and a configuration that another plugin registered for the CPU before us."""
    found = run("""
        import sys, torch
        from torch._inductor.codegen import common
        from torch._inductor.custom_graph_pass import CustomGraphModulePass
        class Pass(CustomGraphModulePass):
            def __call__(self, graph): graphs.append(graph)
            def uuid(self): return "other"
        graphs = []
        common.init_backend_registration()
        import torch._inductor.test_operators
        from torch._functorch import config as other
        cpu = common.device_codegens["cpu"]
        there = Pass()
        common.register_backend_for_device(
            "cpu", cpu.scheduling, cpu.wrapper_codegen, cpu.cpp_wrapper_codegen,
            cpu.fx_wrapper_codegen, there, other)
        from halide_backend.plugin import register
        register()
        once = common.device_codegens["cpu"]
        register()
        graph = torch.fx.symbolic_trace(lambda x: -x)
        found = common.get_custom_backend_pass_for_device("cpu")
        found(graph)
        report(
            ours=type(once.scheduling).__name__,
            idempotent=common.device_codegens["cpu"] is once,
            kept=[
                graphs == [graph] and "'other'" in repr(found.uuid()),
                common.get_custom_backend_config_for_device("cpu") is other,
                once.scheduling.others is cpu.scheduling,
            ],
        )
    """)
    assert found["ours"] == "SchedulingChoice"
    assert found["idempotent"]
    assert found["kept"] == [True, True, True]


def test_options_hold_for_the_backward_graph_compiled_later_in_another_thread(run: Run) -> None:
    found = run("""
        import threading, torch
        from halide_backend import config
        from halide_backend.capture.scheduling import HalideScheduling
        seen = []
        original = HalideScheduling.codegen_node
        def codegen_node(self, node):
            inductor = torch._inductor.config
            seen.append([config.compile_time_limit, inductor.cpu_backend, inductor.max_autotune])
            return original(self, node)
        HalideScheduling.codegen_node = codegen_node
        weight = torch.randn(64, requires_grad=True)
        x = torch.randn(10, 64)
        def f(x):
            return (torch.tanh(x * weight).sum(1) ** 2).mean()
        g = torch.compile(
            f, backend="halide_backend", options={"compile_time_limit": 17.5, "max_autotune": True}
        )
        loss = g(x)
        forward = len(seen)
        thread = threading.Thread(target=loss.backward)
        thread.start(); thread.join()
        gradient = weight.grad.clone()
        weight.grad = None
        f(x).backward()
        report(
            seen=seen, forward=forward, backward=len(seen) - forward,
            outside=config.compile_time_limit,
            error=float((weight.grad - gradient).abs().max()),
        )
    """)
    assert found["forward"] >= 1 and found["backward"] >= 1
    assert all(seen == [17.5, "halide_backend", True] for seen in found["seen"])
    assert found["outside"] == 60.0
    assert found["error"] < 1e-5


def test_an_unknown_option_or_mode_is_refused(run: Run) -> None:
    found = run("""
        import torch
        def refusal(**how):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: x + 1, backend="halide_backend", **how)
            return failure(lambda: compiled(torch.ones(3)))
        report(
            ours=refusal(options={"compile_wrokers": 3}),
            prefixed=refusal(options={"halide_backend.tarmet": ""}),
            inductors=refusal(options={"max_autotun": True}),
            strange=refusal(options={"zzzzzzzz": True}),
            value=refusal(options={"compile_workers": "three"}),
            inductors_value=refusal(options={"max_autotune": "yes"}),
            mode=refusal(mode="fastest"),
        )
    """)
    for key, near in (
        ("ours", "Did you mean 'compile_workers'?"),
        ("prefixed", "Did you mean 'target'?"),
        ("inductors", "Did you mean 'max_autotune'?"),
        ("strange", "The options of halide_backend are compile_workers, "),
    ):
        outer, kind, message = found[key]
        assert (outer, kind) == ("BackendCompilerFailed", "UnknownOptionError")
        assert near in message
    assert found["value"][1] == "HalideBackendError"
    assert "must be of type int" in found["value"][2]
    assert "Unexpected type of attr max_autotune" in found["inductors_value"][2]
    assert "Unrecognized mode=fastest" in found["mode"][2]


def test_what_it_cannot_serve_is_one_error_with_a_cure(run: Run) -> None:
    found = run("""
        import torch
        from torch._inductor import config
        from torch._inductor.codegen.common import get_scheduling_for_device
        import torch._inductor.compile_fx
        x = torch.ones(3)
        def refusal(**options):
            torch._dynamo.reset()
            options["cpu_backend"] = "halide_backend"
            return failure(lambda: torch.compile(lambda x: x + 1, options=options)(x))
        with config.patch(cuda_backend="halide_backend"):
            cuda = type(get_scheduling_for_device("cuda")(None)).__name__
        report(fx_wrapper=refusal(fx_wrapper=True), cuda=cuda)
    """)
    _, kind, message = found["fx_wrapper"]
    assert kind == "HalideBackendError"
    assert "set cpu_backend='cpp' for this compilation" in message
    assert found["cuda"] == "CudaScheduling"


def test_the_wrappers_of_other_devices_are_written_as_before(run: Run) -> None:
    # Torch 2.11 has its own overrides registered by the first who asks, unless the table has entries by then.
    found = run(
        """
        from torch._inductor.codegen import common
        common.init_backend_registration()
        before = sorted(common.device_op_overrides_dict)
        from halide_backend.plugin import register
        register()
        after = sorted(common.device_op_overrides_dict)
        guard = common.get_device_op_overrides("cuda").device_guard(1)
        report(before=before, after=after, guard=guard)
        """
    )
    assert found["after"] == found["before"]
    assert found["guard"] == "torch.cuda._DeviceGuard(1)"
