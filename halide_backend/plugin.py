"""Where torch meets this backend: registration with Inductor, and the backend of `torch.compile`.

Registering replaces, per device, the function that makes a scheduling object: it makes ours while
`torch._inductor.config.cpu_backend` (or `cuda_backend`) is "halide_backend", and otherwise calls
the one that was there. Under the same condition a pass of the device (graph_passes/device_pass.py)
rewrites FX graphs before they are lowered, and installs lowerings, choices and a way of rendering
templates that leave other backends as they are. Nothing else in torch is touched, so the built-in
backends keep working in the same process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from halide_backend.cache_key import NAME
from halide_backend.device_type import CPU, DeviceType, device_types
from halide_backend.errors import DeviceError, HalideBackendError, UnknownOptionError
from halide_backend.options import OPTIONS, nearest
from halide_backend.selection import is_selected
from halide_backend.versions import check_versions

_lock = threading.Lock()


def register() -> None:
    """Offer this backend under its name for all device types; the second time does nothing."""
    from torch._inductor.codegen import common

    from halide_backend import config
    from halide_backend.host_interface import tell_inductor

    # Outside of the lock: it imports, and whoever waits for the lock may hold an import lock.
    common.init_backend_registration()
    with _lock:
        for kind in device_types():
            if _is_offered(common.device_codegens.get(kind.name)):
                continue
            if kind.registered:
                tell_inductor(kind)
            # A registered device has the CPU's wrappers.
            present = common.device_codegens.get(kind.name, common.device_codegens[CPU.name])
            common.register_backend_for_device(
                kind.name,
                _scheduling(kind) if kind.registered else SchedulingChoice(kind, present.scheduling),
                _python_wrapper(kind, present.wrapper_codegen),
                _cpp_wrapper(kind, present.cpp_wrapper_codegen),
                _fx_wrapper(kind, present.fx_wrapper_codegen),
                _graph_pass(kind, common.get_custom_backend_pass_for_device(kind.name)),
                common.get_custom_backend_config_for_device(kind.name),
            )
        # Our options enter the cache keys under a device name of their own: "cpu" may have the
        # configuration of another plugin. It also makes "halide_backend.<option>" known to
        # torch.compile(..., options=...) from torch 2.15 on.
        cpu = common.device_codegens[CPU.name]
        common.register_backend_for_device(NAME, cpu.scheduling, cpu.wrapper_codegen, device_custom_config=config)


def _is_offered(present: Any) -> bool:
    scheduling = getattr(present, "scheduling", None)
    ours = isinstance(scheduling, type) and issubclass(scheduling, RegisteredScheduling)
    return ours or isinstance(scheduling, SchedulingChoice)


def _python_wrapper(kind: DeviceType, present: Any) -> Any:
    """What makes Python wrappers of graphs of `kind`: `present`, which asks for huge pages on a CPU."""
    from halide_backend.capture.large_allocations import with_huge_pages

    return present if kind.registered or not kind.on_host else with_huge_pages(present, kind)


def _cpp_wrapper(kind: DeviceType, present: Any) -> Any:
    """What makes C++ wrappers of graphs of `kind`: `present`, with what packages of kernels for a CPU need."""
    from halide_backend.capture.package_wrapper import with_processor_check

    return present if kind.registered or not kind.on_host else with_processor_check(present, kind)


def _fx_wrapper(kind: DeviceType, present: Any) -> Any:
    """What makes FX wrappers of graphs of `kind`: `present`, with what launches of kernels for a CPU need."""
    from halide_backend.capture.fx_wrapper import with_launches

    return present if kind.registered or not kind.on_host else with_launches(present, kind)


def _graph_pass(kind: DeviceType, present: Any) -> Any:
    """What is done to graphs of `kind`, after what the pass does that was `present`."""
    from halide_backend.graph_passes.device_pass import DevicePass

    # Inductor has templates for no device but its own.
    return present if kind.registered else DevicePass(kind, present)


@dataclass(frozen=True)
class SchedulingChoice:
    """Makes the scheduling object of the backend that Inductor's configuration names.

    Attributes:
        kind: the device type that it is registered for.
        others: the function that was registered before, which knows all other names.
    """

    kind: DeviceType
    others: Callable[[Any], Any]

    def __call__(self, scheduler: Any) -> Any:
        """Return a scheduling object; Inductor often passes None, only to ask for features.

        Raises:
            UnsupportedVersionError: torch, halide or llvmlite is not supported.
            HalideBackendError: this backend cannot serve the wrapper.
        """
        if not is_selected(self.kind):
            return self.others(scheduler)
        _check_use(scheduler, self.kind)
        if self.kind.on_host:
            from halide_backend.capture.scheduling import HalideScheduling

            return HalideScheduling(scheduler, self.kind, _tuner())
        from halide_backend.capture.cuda_scheduling import CudaScheduling

        return CudaScheduling(scheduler, self.kind, _tuner())


class RegisteredScheduling:
    """The same for the registered device `kind`, which no other backend has.

    A class, because Inductor wants to know of devices that it does not know whether they have a subclass of Triton's.
    """

    kind: ClassVar[DeviceType]

    def __new__(cls, scheduler: Any) -> Any:
        if scheduler is not None:
            _refuse_cpp_wrapper(cls.kind)
        _check_use(scheduler, cls.kind)
        from halide_backend.capture.host_device_scheduling import HostDeviceScheduling

        return HostDeviceScheduling(scheduler, cls.kind)


def _scheduling(kind: DeviceType) -> type[RegisteredScheduling]:
    return type(RegisteredScheduling.__name__, (RegisteredScheduling,), {"kind": kind})


def _tuner() -> Any:
    """What searches for schedules, where Inductor's mode and our options ask for it."""
    from torch._inductor import config as inductor

    from halide_backend import config

    wanted = inductor.max_autotune or inductor.max_autotune_pointwise
    if not wanted or config.tune == "never" or not config.tune_seconds:
        return None
    from halide_backend.tune.autotuning import tune_graph

    return tune_graph


def _check_use(scheduler: Any, kind: DeviceType) -> None:
    check_versions()
    if scheduler is not None:
        _require_known_wrapper(kind)


def _refuse_cpp_wrapper(kind: DeviceType) -> None:
    from torch._inductor.virtualized import V

    if getattr(V.graph, "cpp_wrapper", False):
        raise DeviceError(
            "Inductor's C++ wrapper, which cpp_wrapper=True and AOTInductor ask for, can allocate memory and call "
            "eager operators on torch's own devices alone",
            where=f"device {kind.name!r}",
            cure="leave cpp_wrapper off.",
        )


def _require_known_wrapper(kind: DeviceType) -> None:
    from torch._inductor.virtualized import V

    if getattr(V.graph, "fx_wrapper", False) and not (kind.on_host and V.graph.aot_mode):
        cure = "Leave fx_wrapper off"
        if kind.setting:
            cure += f", or set {kind.setting}='{kind.delegate}' for this compilation"
        raise HalideBackendError(
            "no kernel of this backend can be called from an FX graph, which fx_wrapper=True asks for",
            where="fx_wrapper",
            cure=f"{cure}.",
        )


def compile_graph(
    model: Any,
    example_inputs: Any,
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """Compile an FX graph: what `torch.compile(model, backend="halide_backend")` calls.

    `mode` is one of torch's ("default", "reduce-overhead", "max-autotune", ...). `options` may hold
    Inductor's options and those of `halide_backend.config`, the latter with or without
    "halide_backend." in front; they hold for the backward graph, too. `name` is the name of the
    compiled region, which torch passes from 2.15 on.

    Raises:
        UnsupportedVersionError: torch, halide or llvmlite is not supported.
        UnknownOptionError: neither Inductor nor this backend has an option of that name.
        HalideBackendError: the value of one of our options is not allowed.
    """
    check_versions()
    register()
    from torch import _TorchCompileInductorWrapper
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    from halide_backend import config

    own, inductor = _split(options or {})
    backends = {kind.setting: NAME for kind in device_types() if kind.setting}
    # torch's own reading of modes and options, with its checks.
    patches = _TorchCompileInductorWrapper(mode, {**backends, **inductor}, None).config
    region = {"compile_region_name": name} if name else {}
    with config.patch(own):
        return compile_fx(
            model,
            example_inputs,
            # The backward graph is compiled when the patch around this call has long ended.
            inner_compile=config.patch(own)(compile_fx_inner) if own else compile_fx_inner,
            config_patches=patches,
            **region,
        )


def _reset() -> None:
    """Forget recorded CUDA graphs: `torch._dynamo.reset()` calls it."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None:
        trees.reset_cudagraph_trees()


compile_graph.reset = _reset  # type: ignore[attr-defined]


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of this backend and options of Inductor, by their plain names."""
    from torch._inductor import config

    own_names = {option.name for option in OPTIONS}
    inductor_names = set(config.get_config_copy())
    own: dict[str, Any] = {}
    inductor: dict[str, Any] = {}
    for key, value in options.items():
        name = key.replace("-", "_")
        plain = name.removeprefix(f"{NAME}.")
        if plain in own_names:
            own[plain] = value
        elif name in inductor_names:
            inductor[name] = value
        else:
            raise UnknownOptionError(
                f"neither Inductor nor this backend has an option {key!r}",
                where=f"torch.compile(backend={NAME!r})",
                cure=nearest(plain, own_names | inductor_names),
            )
    return own, inductor
