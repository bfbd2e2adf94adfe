"""One call of an operator, eager or compiled, with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from halide_backend.opinfo.database import seed
from halide_backend.opinfo.twin import tensors


@dataclass(frozen=True)
class Call:
    """Arguments of one call, which it may change: `args[0]` is the sample's input."""

    args: list[Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Forward:
    """Results, as a list of leaves, and what became of the inputs."""

    results: list[Any]
    kind: type
    inputs: list[torch.Tensor]


@dataclass
class Traits:
    """What operators were seen to do: draw random numbers; results whose shape depends on data."""

    random: bool = False
    data_dependent: bool = False


class Watch(TorchDispatchMode):
    """Records the traits of everything that runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = Traits()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        tags = func.tags
        self.traits.random |= torch.Tag.nondeterministic_seeded in tags
        self.traits.data_dependent |= torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags
        return func(*args, **(kwargs or {}))


def run(function: Callable[..., Any], call: Call) -> tuple[Any, Forward]:
    """Call `function` from the same seed as every other call."""
    seed(0)
    result = function(*call.args, **call.kwargs)
    return result, Forward(tree_leaves(result), type(result), tensors([call.args, call.kwargs]))


def upstream(result: Any) -> list[torch.Tensor]:
    """A gradient of unit norm for every differentiable result: equal ones for equal shapes."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for leaf in _differentiable(result):
        kind = torch.complex128 if leaf.is_complex() else torch.float64
        value = torch.rand(leaf.shape, generator=generator, dtype=kind)
        norm = value.norm()
        found.append(value / norm if norm > 0 else value)
    return found


def gradients(result: Any, call: Call, given: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Gradients of `result` by the inputs of `call` that ask for one."""
    results = _differentiable(result)
    inputs = [t for t in tensors([call.args, call.kwargs]) if t.requires_grad and t.is_leaf]
    grads = [g.to(r.device, r.dtype) for g, r in zip(given, results, strict=True)]
    return list(torch.autograd.grad(results, inputs, grads, allow_unused=True))


def _differentiable(result: Any) -> list[torch.Tensor]:
    return [t for t in tensors(result) if t.requires_grad]
