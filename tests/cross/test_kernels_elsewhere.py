"""Kernels for another architecture, made here: against eager under qemu, and what can be seen without it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

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
from halide_backend.build.compiler import assembly
from halide_backend.build.llvm.riscv import for_riscv
from halide_backend.build.processor import processor_check
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
    "special_to_float16",
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
    if case.kernel.name in elsewhere.machine.aborts:
        pytest.skip("QEMU below 10 aborts at it, in decode_save_opc (see `aborts`)")
    arguments = case.arguments()
    copies = [argument.clone(memory_format=torch.preserve_format) for argument in arguments]
    torch._dynamo.reset()
    before = elsewhere.launches
    with elsewhere.launched(), inductor.patch(force_disable_caches=True):
        got = torch.compile(case.kernel.function, backend="halide_backend")(*copies)
    assert elsewhere.launches > before
    assert not disagreement(got, case.kernel.function(*widened(arguments)))


@pytest.mark.parametrize(
    ("target", "machine", "call"),
    [
        ("arm64", elf.AARCH64, "R_AARCH64_CALL26"),
        ("sve", elf.AARCH64, "R_AARCH64_CALL26"),
        ("riscv64", elf.RISCV, "R_RISCV_CALL_PLT"),
    ],
)
def test_objects_are_of_the_architecture(target: str, machine: int, call: str) -> None:
    artifact = get_or_compile(TEXT, Target.named(target), name="k", c_interface=True).artifact.result(60)
    assert elf.machine(artifact.object) == machine
    text = assembler_text(artifact.object, artifact.entry)
    assert f".globl hb1_{artifact.entry}" in text and f"{call}, halide_backend_run + 0" in text


@pytest.mark.parametrize(("target", "instruction"), [("arm64", r"fmla\s+v\d+\.4s"), ("riscv64", r"vfmacc\.vf")])
def test_kernels_have_the_vectors_of_the_architecture(target: str, instruction: str) -> None:
    assert re.search(instruction, assembly(TEXT, Target.named(target), "k", "k"))


def test_integers_are_passed_as_riscv_wants_them() -> None:
    ir = """declare i32 @halide_do_par_for(ptr, ptr, i32, i32, ptr) local_unnamed_addr #1
declare i32 @llvm.smax.i32(i32, i32) #2
define noundef i32 @k(ptr noalias %a, i32 %n) local_unnamed_addr #0 {
"""
    given, intrinsic, defined = for_riscv(ir).splitlines()
    assert given.partition("(")[2] == "ptr, ptr, i32 signext, i32 signext, ptr) local_unnamed_addr #1"
    assert intrinsic == ir.splitlines()[1]
    assert defined.startswith("define noundef signext i32 @k(ptr noalias %a, i32 %n)")


@pytest.mark.long
@pytest.mark.parametrize("machine", [m for m in MACHINES.values() if m.lesser], ids=lambda machine: machine.target)
def test_a_processor_is_asked_for_the_vectors(machine: Machine, tmp_path: Path) -> None:
    if machine.missing:
        pytest.skip(machine.missing)
    check = processor_check({machine.target: Target.named(machine.target)})
    tell = """int main() {
  const char* unsuitable = halide_backend_unsuitable();
  return !printf("%d %s", halide_backend_target(), unsuitable ? unsuitable : "");
}
"""
    (tmp_path / "check.cpp").write_text(check + tell)
    machine.compile("check.cpp", "-o", "check", cwd=tmp_path)

    def said(cpu: str) -> str:
        command = [machine.emulator[0], "-cpu", cpu, "-L", machine.library_root, "./check"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert said(machine.emulator[2]) == "0 "
    assert machine.lesser is not None
    assert re.fullmatch(r"-1 halide_backend: this processor cannot .* it lacks (sve|v)", said(machine.lesser))


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
    with config.patch(aot_targets="arm64,sve"), inductor.patch(settings):
        assert list(package_targets()) == ["arm64", "sve"]
    with config.patch(aot_targets="arm64,avx2"), pytest.raises(TargetError, match="of several architectures"):
        package_targets()
