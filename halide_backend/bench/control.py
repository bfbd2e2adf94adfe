"""Whether the benchmark can tell backends apart: one against itself, and against itself deliberately slowed.

The two callables have equal code; one has more work in its generated kernels, added by a graph pass that only it
carries. A benchmark whose callables run each other's code finds the two equally fast (issue 20).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halide_backend.bench.timing import SAMPLED_S, alternate, calls, copies, replays
from halide_backend.inspection.compiled import compile_for

#: Sines added to the slowed kernel, which is pointwise and cheap otherwise: it takes ten times as long or more.
_WORK = 24
#: The least ratio that says that the slowed kernel ran.
LEAST = 3.0
#: Operands within a second-level cache of a CPU; on a GPU enough for all its SMs.
_ELEMENTS = {"cpu": 1 << 15, "cuda": 1 << 24}


@dataclass(frozen=True)
class Control:
    """Samples of one backend in microseconds: of two callables compiled alike, and of one that is slowed."""

    backend: str
    samples: dict[str, list[float]]

    @property
    def alike(self) -> float:
        """Ratio of medians of the two that are alike: near 1, unless other programs disturb the machine."""
        return self._median("second") / self._median("first")

    @property
    def slowed(self) -> float:
        """Ratio of medians of the slowed one and the first: far above 1."""
        return self._median("slowed") / self._median("first")

    def to_json(self) -> dict[str, Any]:
        """Ratios and every sample."""
        return {"backend": self.backend, "alike": self.alike, "slowed": self.slowed, "samples_us": self.samples}

    def _median(self, name: str) -> float:
        return statistics.median(self.samples[name])


def control(backend: str, device: str, clock: Callable[[], float] = time.perf_counter) -> Control:
    """Compile and time the three callables for one of the backends of `inspection.compiled`, not eager.

    Raises:
        WrongBackendError: one of them has or runs kernels of another backend.
    """
    compiled = {
        "first": compile_for(backend, _gate),
        "second": compile_for(backend, _gate),
        "slowed": compile_for(backend, _gate, options={"post_grad_custom_post_pass": _with_more_work}),
    }
    x = torch.linspace(-1, 1, _ELEMENTS[device], device=device)
    for each in compiled.values():
        torch.testing.assert_close(each(x), _gate(x))
    for each in compiled.values():
        each.check_run(lambda each=each: each.call(x))  # type: ignore[misc]
    if device == "cuda":
        operands = copies((x,), lambda: (x.clone(),))
        return Control(backend, alternate({name: replays(each.call, operands) for name, each in compiled.items()}))
    samplers = {name: calls(each.call, (x,), clock) for name, each in compiled.items()}
    return Control(backend, alternate(samplers, seconds=SAMPLED_S, clock=clock))


def _gate(x: Tensor) -> Tensor:
    return torch.relu(x * 1.5 + 0.25)


def _with_more_work(graph: Any) -> None:
    """Add zero times the sine of the sine of ... an operand to the first result of a graph."""
    source = next(node for node in graph.nodes if node.op == "placeholder")
    end = graph.output_node()
    (results,) = end.args
    with graph.inserting_before(end):
        value = source
        for _ in range(_WORK):
            value = _added(graph, torch.ops.aten.sin.default, (value,), source)
        nothing = _added(graph, torch.ops.aten.mul.Tensor, (value, 0.0), source)
        result = _added(graph, torch.ops.aten.add.Tensor, (results[0], nothing), source)
    end.args = ((result, *results[1:]),)


def _added(graph: Any, operator: Any, arguments: tuple[Any, ...], like: Any) -> Any:
    node = graph.call_function(operator, arguments)
    node.meta.update(like.meta)
    return node
