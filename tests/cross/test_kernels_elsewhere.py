"""Kernels for another architecture, made here: against eager under qemu, and what can be seen without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from elsewhere import MACHINES, Elsewhere, Machine
from torch._inductor import config as inductor

import halide_backend
from halide_backend import config
from halide_backend.bench.agreement import disagreement, widened
from halide_backend.bench.case import Case, Selection, cases
from halide_backend.bench.kernels import GROUPS
from halide_backend.build import elf
from halide_backend.build.artifacts import get_or_compile
from halide_backend.build.assembler_text import assembler_text
from halide_backend.build.target import Target
from halide_backend.capture.package_targets import package_targets
from halide_backend.errors import TargetError, UnsupportedVersionError
from halide_backend.pipeline import current_target

#: One of each group of rules; all cases of the suite take a quarter of an hour.
ONLY = (
    "softmax",
    "gelu",
    "layer_norm",
    "row_sum",
    "column_sum",
    "transpose",
    "argmax",
    "max_pool",
    "gather",
    "quantise",
)
TEXT = """
import halide as hl
from halide_backend.kernel_library import memory, operations as ops
from halide_backend.kernel_library.arguments import Input, Output
ARGUMENTS = (
    Input(name="a", dtype="float32", extent=64),
    Output(name="b", dtype="float32", dims=((64, 1),), offset=0, extent=0),
)
def pipeline():
    i = hl.Var("i")
    a = memory.source(ARGUMENTS[0])
    b = hl.Func("b")
    b[i] = ops.stored("float32", ops.exp(a[i]))
    memory.target(b, [i], [(64, 1)])
    b.vectorize(i, 4)
    return [a], [b]
"""


@pytest.fixture(scope="module", params=MACHINES.values(), ids=list(MACHINES))
def elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    machine: Machine = request.param
    if machine.missing:
        pytest.skip(machine.missing)
    process = Elsewhere(machine, tmp_path_factory.mktemp(machine.target))
    yield process
    process.close()


def chosen() -> list[Case]:
    found = cases(GROUPS, "cpu", Selection(ONLY, ("small",), ("float32", "bfloat16")))
    return [case for case in found if case.kernel.compared]


@pytest.mark.long
@pytest.mark.parametrize("case", chosen(), ids=lambda case: case.name)
def test_kernels_agree_with_eager(elsewhere: Elsewhere, case: Case) -> None:
    arguments = case.arguments()
    copies = [argument.clone(memory_format=torch.preserve_format) for argument in arguments]
    torch._dynamo.reset()
    before = elsewhere.launches
    with elsewhere.launched(), inductor.patch(force_disable_caches=True):
        got = torch.compile(case.kernel.function, backend="halide_backend")(*copies)
    assert elsewhere.launches > before
    assert not disagreement(got, case.kernel.function(*widened(arguments)))


def test_objects_are_of_the_architecture() -> None:
    artifact = get_or_compile(TEXT, Target.named("arm64"), name="k", c_interface=True).artifact.result(60)
    assert elf.machine(artifact.object) == elf.AARCH64
    text = assembler_text(artifact.object, artifact.entry)
    assert f".globl hb1_{artifact.entry}" in text and "R_AARCH64_CALL26, halide_backend_run + 0" in text


def test_another_architecture_is_packaged_as_sources_alone() -> None:
    with config.patch(target="arm64"):
        with pytest.raises(UnsupportedVersionError, match="this processor is of the architecture x86-64"):
            current_target("cpu")
        with pytest.raises(TargetError, match="for this machine's architecture") as caught:
            package_targets()
        assert "'aot_inductor.package_cpp_only': True" in caught.value.cure
        settings = halide_backend.aot_configs()
        with inductor.patch(settings):
            assert package_targets() == {"arm64": Target.named("arm64")}
    with config.patch(aot_targets="arm64,avx2"), pytest.raises(TargetError, match="of several architectures"):
        package_targets()
