"""The native launcher on a 64-bit ARM: its sources built with a cross compiler, in Debian's Python for ARM, under qemu.

Kernels are captured here, as in `elsewhere`; each launch is a process there, which gets the storages in a file.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from debian import Debian
from elsewhere import MACHINES, launched_by

from halide_backend.build import elf
from halide_backend.build.artifacts import get_or_compile
from halide_backend.build.target import Target

ROOT = Path(__file__).parents[2]
ARM = MACHINES["arm64"]

#: Python there, by its version, and what it is linked with.
PACKAGES = ("python{}-minimal", "libpython{}-minimal", "libpython{}-stdlib", "libpython{}-dev")
LIBRARIES = ("zlib1g", "libexpat1", "libffi8")

#: What objects call goes through an address that the launcher says, as where LLVM loads them.
CALL = """
  .globl {name}
{name}:
  adrp x16, address_of_{name}
  ldr x16, [x16, :lo12:address_of_{name}]
  br x16
  .comm address_of_{name}, 8, 8
"""

PROGRAM = """
import ctypes, json, platform, sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
assert platform.machine() == "aarch64"
# As torch has loaded it.
ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
loader = ExtensionFileLoader("halide_backend.launch._native", "./_native.so")
native = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(native)
class Tensor:
    def __init__(self, address):
        self.address = address
class Parameter(Tensor):
    pass
data_ptr = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(lambda tensor: tensor.address)
def failed(kernel, pipeline, code, check, message):
    raise RuntimeError(message if check < 0 else pipeline[3][check]["message"])
def refused(*arguments):
    raise TypeError(arguments)
runtime = native.configure(
    tensor_type=Tensor, parameter_type=Parameter, data_ptr=ctypes.cast(data_ptr, ctypes.c_void_p).value,
    convert=refused, check_call=lambda *arguments: None, wrong_call=refused, on_failure=failed,
    profiler_flags={"_is_profiler_enabled": False}, profiler_range=refused,
)
assert "libgomp" in runtime["openmp"], runtime
call = json.load(open("call.json"))
pipelines, libraries = [], []
for library, entry, undefined, *described in call["pipelines"]:
    libraries.append(ctypes.CDLL(library))
    for name in undefined:
        ctypes.c_void_p.in_dll(libraries[-1], f"address_of_{name}").value = native.symbols()[name]
    function = ctypes.cast(getattr(libraries[-1], entry + "_argv"), ctypes.c_void_p).value
    pipelines.append((function, *described))
data = open("data", "rb").read()
memory = ctypes.create_string_buffer(len(data) + 64)
begin = -ctypes.addressof(memory) % 64
memory[begin : begin + len(data)] = data
values = [Tensor(ctypes.addressof(memory) + begin + v[0]) if isinstance(v, list) else v for v in call["arguments"]]
result = ""
try:
    native.Launcher(call["name"], pipelines, len(values), True)(*values)
except RuntimeError as error:
    result = str(error)
open("data", "wb").write(memory[begin : begin + len(data)])
print(result)
"""


def debian_python(folder: Path) -> str:
    """Unpack Debian's Python for ARM into `folder`; its version, "3.11" for example."""
    debian = Debian(folder, "arm64")
    version = debian.version("python3-minimal")
    debian.unpack(*(package.format(version) for package in PACKAGES), *LIBRARIES)
    return version


class LauncherOnArm:
    """The extension, in the `debian_python` of `folder`; `launches` has what each launch called."""

    def __init__(self, folder: Path, version: str, sources: Sequence[str]) -> None:
        self.launches: list[set[str]] = []
        self._folder = folder
        self._root = folder / "debian/system/usr"
        self._numbers = itertools.count()
        include = ["-isystem", str(self._root / "include"), "-I", str(self._root / f"include/python{version}")]
        flags = ["-O2", "-std=c11", "-fvisibility=hidden", "-shared", "-fPIC", *include]
        self._compile("gcc", *flags, *(str(ROOT / source) for source in sources), "-ldl", "-o", "_native.so")
        (folder / "program.py").write_text(PROGRAM)
        # The C library, and OpenMP, are the cross compiler's.
        search = f"LD_LIBRARY_PATH={self._root}/lib/aarch64-linux-gnu:{folder}/debian/system/lib/aarch64-linux-gnu"
        variables = ["-E", search, "-E", f"PYTHONHOME={self._root}"]
        self._command = [*ARM.command(*variables, str(self._root / f"bin/python{version}")), "-S", "program.py"]

    @contextmanager
    def launched(self) -> Iterator[None]:
        """Within, kernels that are compiled are launched there."""
        with launched_by(self._load_kernel, ARM):
            yield

    def _load_kernel(
        self, name: str, pipelines: Sequence[tuple[str, Sequence[int]]], arity: int, **_: Any
    ) -> Callable[..., None]:
        target = Target.named(ARM.target)
        builds = [get_or_compile(text.lstrip("\n"), target, name=name) for text, _ in pipelines]

        def launch(*arguments: Any) -> None:
            assert len(arguments) == arity
            described = []
            for build, (_, places) in zip(builds, pipelines, strict=True):
                artifact = build.artifact.result()
                library, undefined = self._library(artifact.object)
                manifest = artifact.manifest
                rest = (manifest["arguments"], list(places), manifest["checks"])
                described.append((library, artifact.entry, undefined, *rest))
            self.launches.append({symbol for _, _, undefined, *_ in described for symbol in undefined})
            self._call(name, described, arguments)

        return launch

    def _library(self, image: bytes) -> tuple[str, list[str]]:
        """An object as a library, and what it calls through addresses."""
        undefined = sorted(name for name in elf.symbols(image).undefined if name.startswith("halide_"))
        name = f"kernel{next(self._numbers)}"
        (self._folder / f"{name}.o").write_bytes(image)
        (self._folder / "calls.s").write_text("".join(CALL.format(name=symbol) for symbol in undefined))
        self._compile("gcc", "-shared", f"{name}.o", "calls.s", "-Wl,-Bsymbolic", "-lm", "-o", f"{name}.so")
        return f"./{name}.so", undefined

    def _call(self, name: str, pipelines: list[Any], arguments: Sequence[Any]) -> None:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        places, data = {}, bytearray()
        for address, size in storages.items():
            places[address] = len(data)
            data += ctypes.string_at(address, size).ljust(-(-size // 64) * 64, b"\0")

        def described(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return int(value)
            begin = value.untyped_storage().data_ptr()
            return [places[begin] + value.data_ptr() - begin]

        call = {"name": name, "pipelines": pipelines, "arguments": [described(value) for value in arguments]}
        (self._folder / "call.json").write_text(json.dumps(call))
        (self._folder / "data").write_bytes(data)
        done = subprocess.run(self._command, cwd=self._folder, capture_output=True, text=True, check=False)
        if done.returncode or done.stdout != "\n":
            raise RuntimeError(done.stdout.strip() or f"{done.returncode}: {done.stderr}")
        data = bytearray((self._folder / "data").read_bytes())
        for address, size in storages.items():
            ctypes.memmove(address, bytes(data[places[address] : places[address] + size]), size)

    def _compile(self, compiler: str, *arguments: str) -> None:
        command = [ARM.compiler.replace("g++", compiler), *arguments]
        subprocess.run(command, cwd=self._folder, check=True)


def missing() -> str:
    """What is not installed here, in words; "" if nothing is."""
    return ARM.missing or Debian.missing()
