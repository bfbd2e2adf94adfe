"""Models of Hugging Face's transformers, packaged here for ARM, built with a cross compiler and run under qemu.

Results are compared with eager's, of this machine.

    pip install transformers
    pip download torch==2.13.0 --no-deps --only-binary=:all: --platform manylinux_2_28_aarch64 -d WHEELS
    pip download nvidia-cuda-cupti nvidia-cuda-runtime --no-deps --only-binary=:all: \\
        --platform manylinux_2_25_aarch64 --platform manylinux2014_aarch64 -d WHEELS
    python benchmarks/packaged_for_arm.py WHEELS --json benchmarks/results/packaged-for-arm.json

The wheel of PyPI is made for CUDA, and its libtorch_cpu.so loads two of CUDA's libraries, which are not called. Needs
the Debian packages qemu-user and g++-aarch64-linux-gnu. Nothing is timed: under qemu times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from packaged_models import First, models, program

import halide_backend
from halide_backend.inspection import machine

CROSS = "aarch64-linux-gnu"
#: What an ARM's kernel shows; torch counts its processors there.
CPUINFO = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""


class Arm:
    """PyTorch's libraries for aarch64 from wheels, and what builds and runs programs with them."""

    def __init__(self, wheels: Path, folder: Path) -> None:
        self.folder = folder
        for wheel in wheels.glob("*aarch64.whl"):
            with zipfile.ZipFile(wheel) as archive:
                wanted = ("torch/lib/", "torch/include/", "nvidia/")
                archive.extractall(folder, [name for name in archive.namelist() if name.startswith(wanted)])
        self.torch = folder / "torch"
        root = folder / "root"
        (root / "proc").mkdir(parents=True)
        (root / "lib").symlink_to(f"/usr/{CROSS}/lib")
        (root / "proc/cpuinfo").write_text(CPUINFO)
        (folder / "program.cpp").write_text(
            program("aoti_runner/model_container_runner_cpu.h", "AOTIModelContainerRunnerCpu")
        )
        self.compile("program.cpp", "-O0", "-o", "program", "-pthread")

    def compile(self, *arguments: str) -> None:
        """Run the cross compiler in the folder."""
        include = [f"-I{self.torch / 'include'}", f"-I{self.torch / 'include/torch/csrc/api/include'}"]
        link = [f"-L{self.torch / 'lib'}", "-ltorch_cpu", "-lc10", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
        command = [f"{CROSS}-g++", "-std=c++20", *include, *arguments, *link]
        subprocess.run(command, cwd=self.folder, check=True)

    def build(self, package: Path) -> None:
        """Make `model.so` of a package of sources."""
        sources = self.folder / "sources"
        with zipfile.ZipFile(package) as archive:
            archive.extractall(sources)
        (wrapper,), weights = sources.rglob("*.wrapper.cpp"), list(sources.rglob("*.weights.o"))
        for file in weights:
            image = bytearray(file.read_bytes())
            image[18:20] = (183).to_bytes(2, "little")  # e_machine EM_AARCH64
            file.write_bytes(image)
        defined = [f"-D{name}" for name in ("TORCH_INDUCTOR_CPP_WRAPPER", "STANDALONE_TORCH_HEADER")]
        flags = ["-O1", "-fPIC", "-shared", "-fopenmp", "-DC10_USING_CUSTOM_GENERATED_MACROS", *defined]
        self.compile(str(wrapper), *map(str, weights), *flags, "-o", "model.so")
        subprocess.run(["rm", "-r", str(sources)], check=True)

    def difference(self) -> float:
        """The largest difference of `model.so` from eager, for the files of inputs and results in the folder."""
        libraries = f"LD_LIBRARY_PATH={self.torch / 'lib'}:{self.folder / 'nvidia/cu13/lib'}"
        command = ["qemu-aarch64", "-cpu", "max", "-L", str(self.folder / "root"), "-E", libraries]
        run = [*command, "./program", "./model.so", "inputs", "wanted"]
        done = subprocess.run(run, cwd=self.folder, check=True, capture_output=True, text=True)
        return float(done.stdout)


def tried(arm: Arm, make: Any, targets: str) -> dict[str, Any]:
    """One model: the difference from eager, and kernels."""
    torch.manual_seed(0)
    model, named = make()
    module, inputs = First(model.eval(), tuple(named)), tuple(named.values())
    with torch.no_grad():
        wanted = module(*inputs)
        exported = torch.export.export(module, inputs, strict=False)
    package = arm.folder / "model.pt2"
    halide_backend.reset_stats()
    with halide_backend.config.patch(aot_targets=targets):
        torch._inductor.aoti_compile_and_package(
            exported, package_path=str(package), inductor_configs=halide_backend.aot_configs()
        )
    counts = halide_backend.stats()
    for file, tensors in (("inputs", list(inputs)), ("wanted", [wanted])):
        (arm.folder / file).write_bytes(torch._C._pickle_save(tensors))
    arm.build(package)
    found = arm.difference()
    assert found < 1e-4, found
    return {"difference": found, "native": counts["native_kernels"], "delegated": counts["delegated_kernels"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, help="a folder with the wheels")
    parser.add_argument("--only", default="", help="kinds that contain this text")
    parser.add_argument("--targets", default="arm64,sve")
    parser.add_argument("--json", type=Path, required=True, help="results are kept and added to")
    asked = parser.parse_args()
    found = json.loads(asked.json.read_text())["models"] if asked.json.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        arm = Arm(asked.wheels, Path(folder))
        for kind, make in models().items():
            if asked.only in kind:
                found[kind] = tried(arm, make, asked.targets)
                print(f"{kind}: {json.dumps(found[kind])}", flush=True)
                facts = {**machine.facts(), "targets": asked.targets, "models": found}
                asked.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
