"""The pipelines that one launch will run: what is collected between two flushes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._inductor import config
from torch._inductor.codegen.common import InplacedBuffer, Kernel, KernelArgs
from torch._inductor.codegen.cpp_utils import cexpr
from torch._inductor.codegen.wrapper import pexpr
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V

from halide_backend.capture.bound_pipeline import BoundPipeline
from halide_backend.capture.fx_wrapper import FxLaunchLine
from halide_backend.capture.launch_line import LaunchLine
from halide_backend.capture.recording import Recordings
from halide_backend.device_type import device_type
from halide_backend.pipeline import Compilation
from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Scan
from halide_backend.program.uses import sinks_of

#: Points of a kernel that takes an H200 no longer than a few launches, of about a microsecond each; and pipelines for
#: which one launch is worth assembling it, 0.16 s of ptxas for three variants of AdamW.
_SHORT, _FEWEST_TOGETHER = 1 << 20, 4


class CaptureKernel(Kernel[Any]):
    """Inductor's bookkeeping for one pipeline: which buffers it stores and which of them nobody else needs."""

    def __init__(self, args: KernelArgs | None = None) -> None:
        # Whether a pipeline will be a kernel is not known yet; Inductor's metric counts those that are.
        super().__init__(args, increase_kernel_count=False)


@dataclass(frozen=True)
class Captured:
    """One pipeline before it is committed: nothing of the graph has been touched yet.

    `memories` and `sizes` are what the graph passes for the program's buffers and sizes, in order: names, and
    expressions over its symbols; `removed` are buffers that live in the pipeline only.
    """

    nodes: tuple[Any, ...]
    program: LoopProgram
    memories: tuple[str, ...]
    sizes: tuple[sympy.Expr, ...]
    removed: frozenset[str]


def capture(nodes: tuple[Any, ...], recordings: Recordings) -> Captured:
    """The pipeline that computes `nodes`; touches nothing of the graph.

    Raises:
        Unsupported: one pipeline cannot compute them.
    """
    kernel = CaptureKernel()
    with V.set_kernel_handler(kernel):
        recording = recordings.of(nodes)
        for memory, name in recording.reads.items():
            if memory not in V.graph.removed_buffers:
                kernel.args.input(name)
        for name in recording.stores.values():
            kernel.store_buffer_names.add(name)
        kernel.remove_kernel_local_buffers()
    removed = frozenset(kernel.removed_buffers)
    draft = recording.finish(removed)
    return Captured(nodes, draft.program, draft.memories, draft.sizes, removed)


@dataclass
class KernelGroup:
    """Pipelines in the order in which they run, or that run `together`, and Inductor's record of their arguments."""

    together: bool
    args: KernelArgs = field(default_factory=KernelArgs)
    compilations: list[Compilation] = field(default_factory=list)
    captured: list[Captured] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)

    def commit(self, captured: Captured, compilation: Compilation, waiting: Iterable[Captured] = ()) -> None:
        """Take the pipeline into the group: allocate its outputs, mark its nodes as run.

        An output takes no input's place where pipelines that are `waiting` use that: they may run later; nor where the
        last steps of a loop are computed twice, the second time from what has been overwritten.
        """
        kernel = CaptureKernel(self.args)
        with V.set_kernel_handler(kernel):
            needed = _still_needed(captured)
            needed.update(memory for each in waiting for memory in each.memories)
            for node in captured.nodes:
                reads = {dependency.name for dependency in node.read_writes.reads}
                if len(node.get_outputs()) == 1 and not reads & needed and not compilation.computes_twice:
                    node.decide_inplace_update()
            # By way of what lies in registers an output takes an input's place.
            passed_on = captured.removed & self.args.inplace_buffers.keys()
            V.graph.inplaced_to_remove |= passed_on
            V.graph.removed_buffers |= captured.removed - passed_on
            inputs = len(captured.program.inputs)
            for memory in captured.memories[:inputs]:
                self.args.input(memory)
            for memory in captured.memories[inputs:]:
                self.args.output(memory)
            for node in captured.nodes:
                node.mark_run()
        V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
        self.compilations.append(compilation)
        self.captured.append(captured)
        self.nodes += captured.nodes

    def must_precede(self, captured: Captured) -> bool:
        """Whether `captured` writes what the group uses, or uses what it writes."""
        written, used = _memory([captured])
        others_written, others_used = _memory(self.captured)
        return bool(written & others_used or used & others_written)

    def write(self) -> str:
        """Define the kernel in the wrapper and call it; returns its name."""
        wrapper = V.graph.wrapper_code
        bound = [self._arguments(captured) for captured in self.captured]
        arguments = list(dict.fromkeys(argument for each in bound for argument in each))
        if V.graph.fx_wrapper:
            name = self._new_name()
            wrapper.writeline(FxLaunchLine(name, tuple(arguments), tuple(self._pipelines(bound, arguments))))
            return name
        texts = [compilation.text for compilation in self.compilations]
        pipelines = [(text, tuple(map(arguments.index, each))) for text, each in zip(texts, bound)]
        device = self.nodes[0].get_device()
        in_cpp: list[BoundPipeline] = []
        types: tuple[str, ...] = ()
        if V.graph.cpp_wrapper:
            from halide_backend.capture import cpp_kernel

            in_cpp = self._pipelines(bound, arguments)
            types = cpp_kernel.types(len(arguments), in_cpp)
        body = _call_text(pipelines, len(arguments), device, self.together, self._schedules_text(bound, arguments))
        known: str | None = wrapper.src_to_kernel.get(body)
        name = known or self._new_name()
        if known is None:
            wrapper.src_to_kernel[body] = name
            metadata = "\n".join(get_kernel_metadata(self.nodes, wrapper))
            if in_cpp:
                cpp_kernel.define(wrapper, name, types, in_cpp, metadata, device)
            else:
                wrapper.add_import_once("from halide_backend.loading import load_kernel")
                wrapper.define_kernel(name, f"load_kernel({name!r}, {body}", metadata=metadata, gpu=False)
        if not (in_cpp or device_type(device).on_host):
            wrapper.write_get_raw_stream_header()
        wrapper.writeline(LaunchLine(wrapper, name, tuple(arguments), device, types))
        return name

    def _new_name(self) -> str:
        fused = get_fused_kernel_name(self.nodes, config.cpp.descriptive_names or "original_aten")
        return "_".join(["halide", fused, V.graph.wrapper_code.next_kernel_suffix()])

    def _pipelines(self, bound: Sequence[Sequence[Any]], arguments: Sequence[Any]) -> list[BoundPipeline]:
        pipelines = []
        for captured, compilation, names in zip(self.captured, self.compilations, bound):
            positions = tuple(map(arguments.index, names))
            first = len(captured.program.inputs)
            last = first + len(captured.sizes)
            pipelines.append(BoundPipeline(compilation, positions[:first] + positions[last:], positions[first:last]))
        return pipelines

    def _schedules_text(self, bound: Sequence[Sequence[str]], arguments: Sequence[str]) -> str:
        """The arguments of `load_kernel` about pipelines with schedules of the user's; "" if there are none."""
        asked = {
            number: compilation.scheduled
            for number, compilation in enumerate(self.compilations)
            if compilation.scheduled is not None and compilation.scheduled.asked
        }
        if not asked:
            return ""
        found = ""
        for number, scheduled in asked.items():
            rules = f"r'''\n{scheduled.rules.text}'''" if scheduled.rules is not None else "''"
            found += f"    {number}: ({scheduled.identity!r}, {scheduled.schedule!r}, {rules}),\n"
        outputs = {
            name
            for captured, names in zip(self.captured, bound)
            for name in names[len(names) - len(captured.program.outputs) :]
        }
        written = tuple(position for position, name in enumerate(arguments) if name in outputs)
        return f", schedules={{\n{found}}}, written={written!r}"

    def _arguments(self, captured: Captured) -> list[Any]:
        """What the wrapper passes to one pipeline: its inputs, its sizes, its outputs; an FX wrapper has expressions
        of sizes, others print them.
        """
        names = [self._name(memory) for memory in captured.memories]
        inputs = len(captured.program.inputs)
        names[:inputs] = [self._on_device(*pair) for pair in zip(captured.memories, names[:inputs])]
        for size in captured.sizes:
            V.graph.wrapper_code.ensure_size_computed(size)
        printed = cexpr if V.graph.cpp_wrapper else pexpr
        sizes = captured.sizes if V.graph.fx_wrapper else map(printed, captured.sizes)
        return [*names[:inputs], *sizes, *names[inputs:]]

    def _name(self, memory: str) -> str:
        """The wrapper's name of the memory: its last reuse, since earlier names are gone by the time of the call."""
        reused = self.args.inplace_buffers.get(memory)
        return str(reused.other_names[-1]) if isinstance(reused, InplacedBuffer) else memory

    def _on_device(self, memory: str, name: str) -> str:
        """`name`, or for a scalar tensor on the CPU, which torch lets kernels of a GPU read, text that fills one there.

        Its value is read before the launch, so that a later change does not affect a kernel in flight.
        """
        device = self.nodes[0].get_device()
        if device_type(device).on_host or not V.graph.is_unspec_arg(memory):
            return name
        if V.graph.cpp_wrapper:
            from halide_backend.capture import cpp_kernel

            return cpp_kernel.on_gpu(name, V.graph.get_dtype(memory), device)
        return f"torch.full((), {name}.item(), dtype={name}.dtype, device={str(device)!r})"


def is_short(program: LoopProgram) -> bool:
    """Whether `program` belongs into a launch group: elementwise, and hardly longer than a launch."""
    elementwise = not any(isinstance(value.attribute, (Reduction, Scan)) for value in program.values)
    points = max(math.prod(axis.hint for axis in store.nest.axes) for store in program.stores)
    return elementwise and points <= _SHORT and not any(store.mode for store in program.stores)


def _memory(captured: Iterable[Captured]) -> tuple[set[str], set[str]]:
    """The memory that pipelines write, and all that they use."""
    real = V.graph.scheduler.mutation_real_name
    written: set[str] = set()
    used: set[str] = set()
    for each in captured:
        names = [real.get(memory, memory) for memory in each.memories]
        used.update(names)
        written.update(names[len(each.program.inputs) :])
    return written, used


def _call_text(
    pipelines: Sequence[tuple[str, tuple[int, ...]]],
    tensors: int,
    device: torch.device,
    together: bool,
    schedules: str,
) -> str:
    parts = "".join(f"    (r'''\n{text}''', {places!r}),\n" for text, places in pipelines)
    # On a GPU the stream is one more argument.
    where = f"arity={tensors + (not device_type(device).on_host)}, device={str(device)!r}"
    if together and len(pipelines) >= _FEWEST_TOGETHER:
        where += ", together=True"
    return f"{where}, pipelines=[\n{parts}]{schedules})"


def _still_needed(captured: Captured) -> set[str]:
    """The inputs whose memory no output may reuse, because something else in the pipeline needs the old value.

    Inductor knows that no other node needs an input; but in one pipeline other outputs may compute a value again from
    it. So all loads of the input have to end in one store.
    """
    program = captured.program
    sinks = sinks_of(program)
    stores = {f"store {number}" for number in range(len(program.stores))}
    ends: dict[str, set[str]] = {buffer.name: set() for buffer in (*program.inputs, *program.outputs)}
    for position, value in enumerate(program.values):
        if isinstance(value.attribute, Load):
            ends[value.attribute.buffer] |= sinks[position]
    found = zip(captured.memories, ends.values(), strict=True)
    return {memory for memory, end in found if len(end) > 1 or not end <= stores}
