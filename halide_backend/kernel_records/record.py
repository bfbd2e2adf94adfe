"""KernelRecord: all that is known of one kernel of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from halide_backend.build.artifacts import Artifact, entry_symbol, get_or_compile, worker_pool
from halide_backend.build.target import Target
from halide_backend.errors import KernelTextError
from halide_backend.kernel_records.origin import Origin, SourceLine
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.refusals import Refusal
from halide_backend.schedule.plan import Plan

#: Who runs a kernel of this backend.
HALIDE = "halide"


@dataclass(frozen=True)
class Neighbour:
    """A group of scheduler nodes that a kernel was not fused with, and why."""

    nodes: tuple[str, ...]
    reason: Refusal


@dataclass(frozen=True)
class KernelRecord:
    """One kernel: a pipeline of this backend, or a kernel or template that Inductor's own backend runs.

    Attributes:
        name: of the kernel in Inductor's wrapper, where one launch may run several pipelines; "" if unknown.
        position: of the pipeline in its launch.
        device: "cpu", "cuda:0", ...
        process: id of the process that captured or loaded it; a forked child has its parent's records as well.
        backend: who runs it: "halide", or Inductor's "cpp" or "triton".
        captured: whether it was captured in this process. If not, it came with a wrapper from one of Inductor's
            caches, and of what follows only `text`, `target`, `key` and what is said of the artifact is known.
        graph: Inductor's number of the graph in this process; forward and backward graph have the same.
        backward: whether it is the backward graph.
        compile_id: Dynamo's name for the compilation, "0/0", as logs and tlparse show it.
        nodes: Inductor's names of the scheduler nodes it computes.
        origins: the FX nodes behind them.
        not_fused: what it was not fused with, and why; the last 16.
        split_from: the nodes it was fused with at first, if one kernel could not hold them, and why; else None.
        delegation: why it is not this backend's; else None.
        program: what it computes; of a delegated kernel None if it could not be captured.
        plan: how it runs, with the rules' choices and their reasons.
        schedule: where the plan comes from: file, line and origin, or "tuned here", ...; "" if the rules made it.
        text: what it is built from.
        target: the machine it is built for.
        key: digest of its cache key, by which the store's file is named; "" if it has no text.
        cache: "compiled" by a worker, from "disk", in "memory" already when it was asked for; "" while it is built.
        compile_seconds: time that the worker took; 0 unless `cache` is "compiled".
        object_bytes: size of what was built, host and device code together.
        loads: how often it was linked into this process.
        profiled: what a profiler calls it; on a GPU the names of its launches; empty before it is loaded.
    """

    name: str
    device: str
    process: int
    position: int = 0
    backend: str = HALIDE
    captured: bool = True
    graph: int | None = None
    backward: bool = False
    compile_id: str = ""
    nodes: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    not_fused: tuple[Neighbour, ...] = ()
    split_from: Neighbour | None = None
    delegation: Refusal | None = None
    program: LoopProgram | None = None
    plan: Plan | None = None
    schedule: str = ""
    text: str = ""
    target: Target | None = None
    key: str = ""
    cache: str = ""
    compile_seconds: float = 0.0
    object_bytes: int = 0
    loads: int = 0
    profiled: tuple[str, ...] = ()

    @property
    def source_lines(self) -> tuple[SourceLine, ...]:
        """The lines of the user's program that it computes, each once, in the order of `origins`."""
        return tuple(dict.fromkeys(line for origin in self.origins if (line := origin.line) is not None))

    @cached_property
    def program_digest(self) -> str:
        """`serialization.digest` of the program; "" without one."""
        return serialization.digest(self.program) if self.program is not None else ""

    def artifact(self) -> Artifact:
        """The object and its manifest; waits for them if they are still being built.

        Raises:
            KernelTextError: it is a delegated kernel; otherwise what building it raises.
        """
        text, target = self._built_from()
        return get_or_compile(text, target, name=self.name).artifact.result()

    def loop_nest(self) -> str:
        """The loops that Halide makes of algorithm and schedule, printed in a worker.

        Raises:
            KernelTextError: it is a delegated kernel.
        """
        text, _ = self._built_from()
        return worker_pool(0).loop_nest(text, self.name)

    def assembly(self) -> str:
        """The processor's assembly language, on a GPU PTX; made from the text in a worker, as the object was.

        Raises:
            KernelTextError: it is a delegated kernel.
        """
        text, target = self._built_from()
        return worker_pool(0).assembly(text, target, entry_symbol(self.key), self.name)

    def _built_from(self) -> tuple[str, Target]:
        if self.target is None:
            raise KernelTextError(
                f"it has no text of this backend: Inductor's {self.backend} backend runs it",
                where=f"kernel {self.name}",
                cure="look at the wrapper with TORCH_LOGS=output_code",
            )
        return self.text, self.target

    def to_json(self) -> dict[str, Any]:
        """Plain JSON of every field, with `lines`, `program_digest` and the plan's choices with their reasons."""
        plain: dict[str, Any] = {name: _plain(value) for name, value in vars(self).items() if name in _FIELDS}
        return {
            **plain,
            "lines": [str(line) for line in self.source_lines],
            "program_digest": self.program_digest,
            "choices": [
                {"knob": each.key, "setting": each.setting, "rule": each.rule, "why": each.why}
                for each in (self.plan.choices if self.plan is not None else ())
            ],
        }


_FIELDS = frozenset(KernelRecord.__dataclass_fields__)


def _plain(value: Any) -> Any:
    match value:
        case LoopProgram():
            return serialization.to_json(value)
        case Plan() | Target():
            return value.to_json()
        case Origin() | Neighbour() | Refusal():
            return {name: _plain(each) for name, each in asdict(value).items()}
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case tuple():
            return list(map(_plain, value))
    return value
