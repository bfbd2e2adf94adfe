"""Whole models as C++ programs for RISC-V: packages of sources, built with a cross compiler and Debian's libtorch."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from debian import Debian
from elsewhere import MACHINES
from torch import nn

import halide_backend
from halide_backend import versions

RISCV = MACHINES["riscv64"]
#: The first Debian with a libtorch that has what torch 2.13 generates; Debian 13's is 2.6.
SUITE = "forky"
#: MODEL INPUTS WANTED: prints the largest difference, relative to the largest value.
PROGRAM = r"""
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <cstdio>
#include <fstream>
#include <iterator>
static std::vector<at::Tensor> loaded(const char* name) {
  std::ifstream file(name, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  return torch::jit::pickle_load(bytes).toTensorVector();
}
int main(int, char** arguments) {
  torch::inductor::AOTIModelContainerRunnerCpu model(arguments[1]);
  auto got = model.run(loaded(arguments[2])), wanted = loaded(arguments[3]);
  double largest = got.size() == wanted.size() ? 0 : 1;
  for (size_t k = 0; k < got.size() && k < wanted.size(); k++) {
    double difference = ((got[k] - wanted[k]).abs().max() / wanted[k].abs().max()).item<double>();
    if (!(difference <= largest)) largest = difference;
  }
  printf("%.3g\n", largest);
}
"""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.last = nn.Linear(32, 10)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.last(self.layer(self.table(index))), -1)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pooled = nn.functional.max_pool2d(torch.relu(self.norm(self.convolution(x))), 2)
        return pooled, nn.functional.interpolate(pooled, scale_factor=2.0, mode="bilinear").mean(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cell(x)  # type: ignore[no-any-return]


MODELS: dict[type[nn.Module], Callable[[], torch.Tensor]] = {
    Attention: lambda: torch.randint(0, 50, (2, 7)),
    Convolution: lambda: torch.randn(2, 3, 8, 6),
    Recurrent: lambda: torch.randn(2, 3, 8),
}


class Libtorch:
    """torch's libraries and headers, and a program that loads models, in a folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self._root = folder, root
        self._libraries = root / "usr/lib/riscv64-linux-gnu"
        # The C library's headers are the cross compiler's, which may be older.
        (folder / "include").mkdir()
        for name in ("ATen", "c10", "caffe2", "torch"):
            (folder / "include" / name).symlink_to(root / "usr/include" / name)
        (folder / "program.cpp").write_text(PROGRAM)
        self.compile("program.cpp", "-o", "program")

    def compile(self, *arguments: str) -> None:
        """Run the cross compiler in the folder."""
        link = [str(self._libraries / name) for name in ("libtorch_cpu.so", "libc10.so")]
        include = ["-Iinclude", "-Iinclude/torch/csrc/api/include"]
        rest = [*include, *link, "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
        RISCV.compile(*arguments, *rest, cwd=self.folder)

    def build(self, package: Path) -> None:
        """Make `model.so` of a package of sources."""
        sources = self.folder / package.stem
        with zipfile.ZipFile(package) as archive:
            archive.extractall(sources)
        (wrapper,), weights = sources.rglob("*.wrapper.cpp"), list(sources.rglob("*.weights.o"))
        for file in weights:
            image = bytearray(file.read_bytes())
            image[18:20] = (243).to_bytes(2, "little")  # e_machine EM_RISCV
            image[48:49] = b"\5"  # e_flags: compressed instructions, doubles in registers
            file.write_bytes(image)
        names = ("TORCH_INDUCTOR_CPP_WRAPPER", "STANDALONE_TORCH_HEADER", "C10_USING_CUSTOM_GENERATED_MACROS")
        flags = ["-fPIC", "-shared", "-fopenmp", *(f"-D{name}" for name in names)]
        self.compile(str(wrapper), *map(str, weights), *flags, "-o", "model.so")

    def difference(self) -> float:
        """The largest difference of `model.so` from what is wanted, for the files in the folder."""
        folders = [self._libraries / name for name in ("", "blas", "lapack", "openmpi/lib")] + [self._root / "usr/lib"]
        search = "LD_LIBRARY_PATH=" + ":".join(map(str, folders))
        command = [*RISCV.emulator, "-L", str(self._root / "usr"), "-E", search]
        run = [*command, "./program", "./model.so", "inputs", "wanted"]
        done = subprocess.run(run, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return float(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def libtorch(tmp_path_factory: pytest.TempPathFactory) -> Libtorch:
    if missing := RISCV.missing or Debian.missing():
        pytest.skip(missing)
    if not versions.takes_march():
        pytest.skip("packages for other processors need torch 2.13")
    folder = tmp_path_factory.mktemp("riscv")
    try:
        debian = Debian(folder / "debian", "riscv64", SUITE)
        debian.unpack("libtorch-dev", dependencies=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"Debian's libtorch for RISC-V cannot be had: {error}")
    return Libtorch(folder, debian.root)


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_a_model_is_a_program_for_riscv(libtorch: Libtorch, kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, given = kind().eval(), MODELS[kind]()
    package = libtorch.folder / f"{kind.__name__}.pt2"
    halide_backend.reset_stats()
    with torch.no_grad(), halide_backend.config.patch(aot_targets=RISCV.target):
        exported = torch.export.export(model, (given,))
        configs = halide_backend.aot_configs()
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=configs)
        exact = model.double()(given.double() if given.is_floating_point() else given)
    stats = halide_backend.stats()
    assert stats["native_kernels"] and not stats["delegated_kernels"], stats
    wanted = [result.float() for result in (exact if isinstance(exact, tuple) else (exact,))]
    for file, tensors in (("inputs", [given]), ("wanted", wanted)):
        (libtorch.folder / file).write_bytes(torch._C._pickle_save(tensors))
    libtorch.build(package)
    assert libtorch.difference() < 2e-6
