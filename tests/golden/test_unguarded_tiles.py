"""Kernels that transpose: most of their tiles are stored without a guard, whatever the sizes are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from captured_kernels import captured_kernels

from halide_backend.build import compiler
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.loop_nests import LoopNests
from halide_backend.schedule.device import device_of

pytest.importorskip("halide")


def permuted(*order: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.permute(order).contiguous()


def loop_bodies(statements: str) -> list[str]:
    """What is printed inside each loop, also one in another: Halide indents it."""
    loops = re.finditer(r"^(?P<indent> *)for \(.*\n(?=(?P<body>(?:(?P=indent) .*\n)*))", statements, re.M)
    return [loop["body"] for loop in loops]


@pytest.mark.parametrize(
    ("order", "shape", "dynamic"),
    [
        ((1, 0), (1024, 1024), True),
        ((1, 0), (1000, 1000), True),
        ((1, 0), (1000, 1000), False),
        ((1, 0), (640, 1000), False),
        ((1, 0), (1000, 640), False),
        ((0, 2, 1), (16, 300, 200), True),
        ((2, 1, 0), (128, 96, 100), False),
        ((2, 0, 1), (128, 96, 100), False),
        ((2, 0, 1), (128, 96, 100), True),
        ((3, 2, 1, 0), (32, 24, 40, 36), False),
        ((2, 1, 3, 0), (32, 64, 64, 64), True),
    ],
)
def test_a_copy_of_the_loops_has_no_guards(order: tuple[int, ...], shape: tuple[int, ...], dynamic: bool) -> None:
    """Halide writes no such copy of the steps of a loop that threads share: then each row of a tile is stored behind a
    branch, and each of its elements is loaded by itself."""
    target = Target.named("avx512")
    (kernel,) = captured_kernels(permuted(*order), (torch.randn(shape),), target, dynamic)
    planned: Any = plan_kernel(kernel.program, device_of(target))
    with LoopNests() as nests:
        statements = nests.of(planned.text, lowered=True)
    assert any(body.count("out_ptr0[") >= 8 and " if (" not in body for body in loop_bodies(statements))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", [(1001, 1003), (1000, 1003), (640, 1003)], ids=str)
def test_what_reaches_beyond_an_end_is_loaded_under_a_mask(shape: tuple[int, int], dynamic: bool) -> None:
    """Elements at clamped places would be loaded one by one."""
    target = Target.named("avx512")
    (kernel,) = captured_kernels(permuted(1, 0), (torch.randn(shape),), target, dynamic)
    planned: Any = plan_kernel(kernel.program, device_of(target))
    with LoopNests() as nests:
        statements = nests.of(planned.text, lowered=True)
    loads = re.findall(r"in_ptr0\[(\w+)\(", statements)
    assert loads and set(loads) == {"ramp"}
    assert re.search(r"in_ptr0\[ramp.* if \(", statements)


@pytest.mark.parametrize("target", ["avx512", "avx2"])
def test_a_single_element_beyond_whole_tiles_is_part_of_a_vector(target: str) -> None:
    """49 are three tiles and one element: if that is stored to memory by itself, the vector loaded next waits."""
    x = torch.randn(4, 384, 49).bfloat16()
    (kernel,) = captured_kernels(permuted(0, 2, 1), (x,), Target.named(target), False)
    planned: Any = plan_kernel(kernel.program, device_of(Target.named(target)))
    assert "movw" not in compiler.assembly(planned.text, Target.named(target), "entry", "name")
