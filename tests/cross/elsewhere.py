"""Kernels for another processor, run by qemu: what is captured and planned here is called there.

Only the launch of a kernel is replaced. A program under qemu loads each object, linked with the runtime of models, and
calls its C function with buffers in a file that both processes map.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from halide_backend import config, loading
from halide_backend.build.artifacts import get_or_compile
from halide_backend.build.assembler_text import assembler_text
from halide_backend.build.c_interface import c_function
from halide_backend.build.target import Target
from halide_backend.launch.model_runtime import model_runtime

#: Each line of the input is: library, function, data file, its bytes, number of buffers, their places, numbers.
SERVER = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string library, name, file;
    size_t size, count;
    words >> library >> name >> file >> size >> count;
    void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    using Function = int32_t (*)(void**, int64_t*, void*, char*);
    auto function = loaded ? reinterpret_cast<Function>(dlsym(loaded, name.c_str())) : nullptr;
    if (!function) { std::cout << "-1 " << dlerror() << std::endl; continue; }
    int descriptor = open(file.c_str(), O_RDWR);
    char* memory = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
    std::vector<void*> buffers;
    for (size_t k = 0, place; k < count && words >> place; k++) buffers.push_back(memory + place);
    std::vector<int64_t> numbers;
    for (int64_t number; words >> number;) numbers.push_back(number);
    char message[256] = "";
    int32_t result = function(buffers.data(), numbers.data(), nullptr, message);
    munmap(memory, size);
    close(descriptor);
    std::cout << result << " " << message << std::endl;
  }
}
"""


VISIBLE = """
extern "C" int {hidden}(void**, long*, void*, char*);
extern "C" int {visible}(void** buffers, long* numbers, void* stream, char* message) {{
  return {hidden}(buffers, numbers, stream, message);
}}
"""


@dataclass(frozen=True)
class Machine:
    """A processor whose programs qemu runs, and Debian's cross compiler makes.

    `lesser` is how the emulator is told to be one that cannot run kernels for `target`; None if all of the architecture
    can. `aborts` are kernels at which the emulator itself gives up.
    """

    target: str
    compiler: str
    emulator: tuple[str, ...]
    library_root: str
    lesser: str | None = None
    aborts: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """What is not installed here, in words; "" if nothing is."""
        tools = [tool for tool in (self.compiler, self.emulator[0]) if not shutil.which(tool)]
        return f"needs {' and '.join(tools)} (Debian packages g++-*-linux-gnu and qemu-user)" if tools else ""

    def compile(self, *arguments: str, cwd: Path) -> None:
        subprocess.run([self.compiler, "-std=c++20", "-O1", *arguments], cwd=cwd, check=True)

    def command(self, *program: str) -> list[str]:
        """What runs `program` here."""
        return [*self.emulator, "-L", self.library_root, *program]


def _version(emulator: str) -> int:
    """The emulator's first number; 0 if it is not installed."""
    if not shutil.which(emulator):
        return 0
    said = subprocess.run([emulator, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split("version ")[1].partition(".")[0])


_ARM = ("aarch64-linux-gnu-g++", "/usr/aarch64-linux-gnu")
_RISCV = ("riscv64-linux-gnu-g++", "/usr/riscv64-linux-gnu")
MACHINES = {
    "arm64": Machine("arm64", _ARM[0], ("qemu-aarch64", "-cpu", "cortex-a57"), _ARM[1]),
    # Vectors of 64 bytes: code for them may not know their length.
    "sve": Machine("sve", _ARM[0], ("qemu-aarch64", "-cpu", "max,sve-default-vector-length=64"), _ARM[1], "cortex-a57"),
    # QEMU 7.2 aborts at the second of two conversions with a rounding mode of their own (`decode_save_opc` in
    # target/riscv/translate.c); 10.0 does not.
    "riscv64": Machine(
        "riscv64",
        _RISCV[0],
        ("qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0"),
        _RISCV[1],
        "rv64",
        ("quantise_static", "special_to_float16") if _version("qemu-riscv64") < 10 else (),
    ),
}


@contextmanager
def launched_by(load_kernel: Callable[..., Any], machine: Machine) -> Iterator[None]:
    """Within, kernels are compiled for `machine`, and what `load_kernel` returns launches them."""
    with (
        config.patch(target=machine.target),
        mock.patch.object(Target, "check_runs_here", lambda target: None),
        mock.patch.object(loading, "load_kernel", load_kernel),
    ):
        yield


class Elsewhere:
    """A process on `machine`, and how many launches it has had."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.launches = 0
        self._folder = folder
        self._libraries: dict[str, Path] = {}
        self._numbers = itertools.count()
        (folder / "server.cpp").write_text(SERVER)
        (folder / "runtime.cpp").write_text(model_runtime())
        machine.compile("server.cpp", "-o", "server", "-ldl", cwd=folder)
        machine.compile("-c", "-fPIC", "runtime.cpp", "-o", "runtime.o", cwd=folder)
        self._process = subprocess.Popen(
            machine.command("./server"), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    @contextmanager
    def launched(self) -> Iterator[None]:
        """Within, kernels that are compiled run there."""
        with launched_by(self._load_kernel, self.machine):
            yield

    def _load_kernel(
        self, name: str, pipelines: Sequence[tuple[str, Sequence[int]]], arity: int, **_: Any
    ) -> Callable[..., None]:
        target = Target.named(self.machine.target)
        builds = [get_or_compile(text.lstrip("\n"), target, name=name, c_interface=True) for text, _ in pipelines]

        def launch(*arguments: Any) -> None:
            assert len(arguments) == arity
            for build, (_, places) in zip(builds, pipelines, strict=True):
                artifact = build.artifact.result()
                given = [arguments[place] for place in places]
                kinds = [a["kind"] for a in artifact.manifest["arguments"] if a["kind"] != "status"]
                buffers = [value for value, kind in zip(given, kinds, strict=True) if kind == "buffer"]
                numbers = [int(value) for value, kind in zip(given, kinds, strict=True) if kind != "buffer"]
                self._call(self._library(artifact.entry, artifact.object), c_function(artifact.entry), buffers, numbers)

        return launch

    def _library(self, entry: str, image: bytes) -> Path:
        if entry not in self._libraries:
            # As it is packaged.
            (self._folder / f"{entry}.s").write_text(assembler_text(image, entry))
            # The C function is hidden.
            call = VISIBLE.format(visible=f"call_{entry}", hidden=c_function(entry))
            (self._folder / "call.cpp").write_text(call)
            objects = ("call.cpp", f"{entry}.s", "runtime.o", "-lm")
            self.machine.compile("-shared", "-fPIC", "-o", f"{entry}.so", *objects, cwd=self._folder)
            self._libraries[entry] = self._folder / f"{entry}.so"
        return self._libraries[entry]

    def _call(self, library: Path, function: str, buffers: Sequence[torch.Tensor], numbers: Sequence[int]) -> None:
        # Whole storages: two results may take turns in one.
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in buffers}
        places, end = {}, 64
        for address, size in storages.items():
            places[address] = end
            end += (size + 127) // 64 * 64
        path = self._folder / f"data.{next(self._numbers) % 2}"
        path.write_bytes(bytes(end))
        name = function.replace("hb1_", "call_", 1)
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), end) as memory:
            begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            for address, size in storages.items():
                ctypes.memmove(begin + places[address], address, size)
            words = [
                str(library),
                name,
                str(path),
                end,
                len(buffers),
                *(places[s := t.untyped_storage().data_ptr()] + t.data_ptr() - s for t in buffers),
                *numbers,
            ]
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            result, _, message = answer.strip().partition(" ")
            self.launches += 1
            if result != "0":
                raise RuntimeError(f"kernel {function}: {message or answer or 'the process ended'}")
            for address, size in storages.items():
                ctypes.memmove(address, begin + places[address], size)
