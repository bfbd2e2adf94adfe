"""What a model asks of the processor, compiled alone: against what LLVM finds, and with targets that cannot run."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from llvmlite import binding as llvm

from halide_backend.build import processor
from halide_backend.build.processor import processor_check
from halide_backend.build.target import Target

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as models do")

MAIN = """
#include <cstdio>
int main() {
  const char* unsuitable = halide_backend_unsuitable();
  return !printf("%d %s", halide_backend_target(), unsuitable ? unsuitable : "");
}
"""
#: All that is asked for exists, all that is not does not: the highest target is one that no processor has.
LADDER = {
    "least": Target("x86-64-linux-sse41", "x86-64", "+sse4.1"),
    "more": Target("x86-64-linux-sse41", "x86-64", "+sse4.1,+ssse3,+popcnt"),
    "most": Target("x86-64-linux-sse41", "x86-64", "+sse4.1,+ssse3,+fma4,+tbm,+avxvnniint8"),
}


def built(folder: Path, text: str, *flags: str) -> Path:
    (folder / "check.cpp").write_text(text)
    strict = ("-std=c++20", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")
    subprocess.run(["g++", *strict, "check.cpp", "-o", "check", *flags], cwd=folder, check=True)
    return folder / "check"


def chosen(folder: Path, targets: Mapping[str, Target], **environment: str) -> tuple[int, str]:
    """The number of the target that a program finds, and why there is none."""
    program = folder / "check"
    if not program.exists():
        built(folder, processor_check(targets) + MAIN)
    kept = {**os.environ, "HALIDE_BACKEND_MODEL_TARGET": "", **environment}
    done = subprocess.run([program], env=kept, capture_output=True, text=True, check=True).stdout
    number, _, reason = done.partition(" ")
    return int(number), reason


def test_features_are_there_where_llvm_finds_them(tmp_path: Path) -> None:
    known = llvm.get_host_cpu_features()
    assert set(processor._CPUID) <= set(known)
    everything = Target("x86-64-linux", "x86-64", ",".join(f"+{name}" for name in processor._CPUID))
    asked = """
extern "C" __attribute__((visibility("default"))) int has(int k) {
  using namespace halide_backend_processor;
  return targets[0].features[k].name ? halide_backend_processor::has(targets[0].features[k]) : -1;
}
"""
    without_note = processor_check({"everything": everything}).partition("__asm__(R")[0]
    library = ctypes.CDLL(str(built(tmp_path, without_note + asked, "-shared")))
    found = {name: bool(library.has(k)) for k, name in enumerate(processor._CPUID)}
    assert found == {name: known[name] for name in found}
    assert library.has(len(found)) == -1
    assert found["sse4.1"] and not all(found.values())


def test_the_most_demanding_target_that_runs_is_chosen(tmp_path: Path) -> None:
    assert chosen(tmp_path, LADDER) == (1, "")
    assert chosen(tmp_path, LADDER, HALIDE_BACKEND_MODEL_TARGET="least") == (0, "")
    number, reason = chosen(tmp_path, LADDER, HALIDE_BACKEND_MODEL_TARGET="most")
    lacking = [name for name in ("avxvnniint8", "fma4", "tbm") if not llvm.get_host_cpu_features()[name]]
    assert (number, lacking != []) == (-1, True)
    assert reason.startswith("halide_backend: this processor cannot run the kernels of this model; it lacks ")
    assert sorted(reason.rpartition("lacks ")[2].split(", ")) == lacking
    number, reason = chosen(tmp_path, LADDER, HALIDE_BACKEND_MODEL_TARGET="mots")
    assert number == -1 and "is 'mots', for which this model has no kernels" in reason


def test_a_single_target_that_does_not_run_has_a_sentence(tmp_path: Path) -> None:
    number, reason = chosen(tmp_path, {"": LADDER["most"]}, HALIDE_BACKEND_MODEL_TARGET="least")
    assert number == -1 and "this processor cannot run the kernels of this model; it lacks " in reason


@pytest.mark.parametrize(
    ("name", "shown"), [("sse41", "x86-64-v2"), ("avx2", "x86-64-v3"), ("avx512", "x86-64-v4"), ("least", "")]
)
def test_the_c_library_is_told_the_level(tmp_path: Path, name: str, shown: str) -> None:
    target = LADDER.get(name) or Target.named(name)
    library = built(tmp_path, processor_check({name: target}) + MAIN, "-shared")
    notes = subprocess.run(["readelf", "--notes", "--wide", library], capture_output=True, text=True, check=True).stdout
    assert ([line for line in notes.splitlines() if "x86 ISA needed" in line] != []) == bool(shown)
    assert not shown or f"x86 ISA needed: {shown}" in notes


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-x86_64 (Debian package qemu-user)")
@pytest.mark.parametrize(("model", "expected"), [("Westmere", 0), ("SandyBridge", 0), ("Haswell", 1)])
def test_processors_of_other_models(tmp_path: Path, model: str, expected: int) -> None:
    """Westmere cannot be asked for the registers that the system saves: the question itself would end the process."""
    targets = {name: Target.named(name) for name in ("sse41", "avx2", "avx512")}
    program = built(tmp_path, processor_check(targets) + MAIN)
    command = ["qemu-x86_64", "-cpu", model, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert done == f"{expected} "
