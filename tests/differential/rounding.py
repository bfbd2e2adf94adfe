"""The exact results of a program, and how far roundings of its intermediate values may move them.

A compiler may keep an intermediate value of a narrow type in a wider one, and Inductor does: in `y = x.square();
y - y.mean(1)` the mean is rounded to float16 and y is not, so rows of one element give the rounding error of y instead
of eager's 0. Which values are rounded is not in the program. So it is run in float64 again and again, each time with
every operation's result moved up or down by half a unit in the last place of the type that it has in the program (Monte
Carlo arithmetic, D. S. Parker, 1997, with the ends of each interval: draws from within found too little in one of 5,000
programs, seed 10378); what the results move by is what no comparison can resolve.

What one line of the program computes may be several operations, as are the formulas of gradients: they are seen where
they are dispatched and not in the program. Which types they have there is known if the program has one floating-point
type (seed 942683: a gradient of std over 65 rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .execution import outputs
from .program import Program

#: Runs with moved results; the second number where those of the first explain too little. Their largest distance from
#: the exact results is doubled, since few draws seldom meet the worst case: a difference of two values does not move
#: where both move the same way, and of 8,976 differences 7 did so in six runs (seed 1021121).
DRAWS = (6, 60)

#: Operations that add up, as functions and as they are dispatched.
_SUMS = frozenset((torch.sum, torch.Tensor.sum, torch.ops.aten.sum, torch.mean, torch.Tensor.mean, torch.ops.aten.mean))

Function = Callable[..., tuple[torch.Tensor, ...]]


def exact(program: Program) -> list[torch.Tensor]:
    """What `program` gives with float64 in place of every other floating-point type."""
    return outputs(program.wide_function(), _wide_arguments(program), program.gradients)


def resolution(program: Program, truth: list[torch.Tensor], draws: int) -> list[torch.Tensor]:
    """Distances from `truth`, element by element, that roundings inside the program explain, found in `draws` runs."""
    types = _Types()
    outputs(_under(types, program.function()), [tensor.make() for tensor in program.inputs], program.gradients)
    generator = torch.Generator().manual_seed(0)
    found = [torch.zeros(result.shape, dtype=torch.float64) for result in truth]
    inputs = {made.dtype for tensor in program.inputs if (made := tensor.make()).is_floating_point()}
    dtypes = inputs.union(filter(None, types.found))
    for _ in range(draws):
        if len(dtypes) == 1:
            with _MovedEverywhere(*dtypes, generator):
                results = outputs(program.wide_function(), _wide_arguments(program), program.gradients)
        else:
            function = _under(_Moved(types.found, generator), program.wide_function())
            results = outputs(function, _wide_arguments(program), program.gradients)
        for largest, result, right in zip(found, results, truth):
            distance = (result.double() - right.double()).abs()
            torch.maximum(largest, torch.nan_to_num(distance, 0.0, 0.0), out=largest)
    return [2 * distance for distance in found]


class _Types(TorchFunctionMode):
    """Notes the type of every operation's result, None where it is nothing to move."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.dtype | None] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.found.append(result.dtype if _is_new(result, args) else None)
        return result


class _Moved(TorchFunctionMode):
    """Moves every operation's result up or down by its largest rounding error."""

    def __init__(self, dtypes: list[torch.dtype | None], generator: torch.Generator) -> None:
        super().__init__()
        self.dtypes = iter(dtypes)
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        dtype = next(self.dtypes, None)
        if dtype is None or not _is_new(result, args):
            return result
        return _moved(result, func, args, kwargs or {}, dtype, self.generator)


class _MovedEverywhere(TorchDispatchMode):
    """The same where operations are dispatched, those of gradients among them, in a program of one floating-point type."""

    def __init__(self, dtype: torch.dtype, generator: torch.Generator) -> None:
        super().__init__()
        self.dtype = dtype
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _is_new(result, args):
            return result
        return _moved(result, func, args, kwargs or {}, self.dtype, self.generator)


def _moved(result: Any, func: Any, args: Any, kwargs: Any, dtype: torch.dtype, generator: torch.Generator) -> Any:
    """The `result` of `func` as far from it, up or down, as roundings of `dtype` may move it."""
    error = torch.finfo(dtype).eps / 2 * result.abs()
    if getattr(func, "overloadpacket", func) in _SUMS:
        # As many roundings as a tree of additions has levels, each relative to what was added (N. J. Higham, Accuracy and
        # Stability of Numerical Algorithms, 2002, section 4.2). Narrow types are added up as float32.
        levels = math.ceil(math.log2(max(2, args[0].numel() / max(1, result.numel()))))
        unit = torch.finfo(torch.promote_types(dtype, torch.float32)).eps / 2
        error += levels * unit * func(args[0].double().abs(), *args[1:], **kwargs)
    up = torch.randint(2, result.shape, generator=generator, dtype=torch.float64)
    return result + (2 * up - 1) * error


def _is_new(result: Any, args: Any) -> bool:
    """Whether an operation has computed `result`, rather than changed or viewed an argument."""
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return False
    memory = result.untyped_storage().data_ptr()
    return all(not isinstance(a, torch.Tensor) or a.untyped_storage().data_ptr() != memory for a in args)


def _under(mode: TorchFunctionMode, function: Function) -> Function:
    def run(*arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with mode:
            return function(*arguments)

    return run


def _wide_arguments(program: Program) -> list[torch.Tensor]:
    arguments = []
    for tensor in program.inputs:
        made = tensor.make()
        if made.is_floating_point():
            wide = torch.empty_strided(made.shape, made.stride(), dtype=torch.float64)
            made = wide.copy_(made) if 0 not in made.stride() else made.to(torch.float64)
        arguments.append(made)
    return arguments
