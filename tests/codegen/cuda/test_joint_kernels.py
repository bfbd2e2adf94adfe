"""Several kernels in one launch: the table that the launcher makes for a stub of the driver, run by `ptx_machine`."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda_programs import TARGET, cuda_kernel_text, programs_of
from torch import Tensor

from halide_backend.build.artifacts import Artifact
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.ptx import batching, ptxas
from halide_backend.build.ptx.completion import complete, extract
from halide_backend.build.ptx.instructions import Module
from halide_backend.capture.length import ELEMENTS, share_lengths
from halide_backend.launch.launcher import native

Compile = Callable[..., Any]

#: A driver that writes down what is launched: grid, block, name and, of a joint kernel, the table.
_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 0; return 0; }
int cuModuleLoadDataEx(void **module, void *image, unsigned n, void *a, void *b) { *module = (void *)1; return 0; }
int cuModuleUnload(void *module) { return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)name; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "stub"; return 0; }
int cuModuleGetGlobal_v2(void *address, void *bytes, void *module, const char *name) { return 500; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuLaunchKernelEx(const unsigned *grid, void *f, void **arguments, void **extra) {
    FILE *file = fopen(getenv("LAUNCHES"), "a");
    fprintf(file, "%u %u %s ", grid[0], grid[3], (const char *)f);
    for (int k = 0; strstr(f, "__joint") && k < 4000; k++) fprintf(file, "%02x", ((unsigned char *)arguments[0])[k]);
    fprintf(file, "\\n");
    return fclose(file);
}
"""


def scaled(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2 + y, y - x


def other(x: Tensor) -> Tensor:
    return torch.where(x > 0.5, x, -x)


def completed(function: Callable[..., Any], *arguments: Tensor) -> Module:
    (program,) = programs_of(function, arguments)
    kernel = compile_kernel(cuda_kernel_text(program), TARGET, "variant")
    return complete(extract(kernel.object), "variant", TARGET.capability, kernel.manifest["threads"])


def test_the_layout_of_the_table_is_the_launchers() -> None:
    assert native().TABLE == (batching.TABLE_BYTES, batching.MOST)


def test_what_can_be_joined() -> None:
    assert batching.can_batch(completed(other, torch.rand(1000)))
    # Rows of a block, and what exchanges between its warps.
    assert not batching.can_batch(completed(lambda x: x.softmax(-1), torch.rand(64, 4096)))
    # A grid of two dimensions: transposes.
    assert not batching.can_batch(completed(lambda x, y: x.t() + y, torch.rand(256, 256), torch.rand(256, 256)))


def test_a_joint_kernel_assembles_without_local_memory() -> None:
    variants = [completed(scaled, torch.rand(1001), torch.rand(1001)), completed(other, torch.rand(64))]
    (function,) = batching.batched(variants).functions
    labels = [statement.label for statement in function.statements if statement.label]
    assert len(labels) == len(set(labels))
    text = str(function)
    assert ".local" not in text
    if ptxas.find():
        assert ptxas.assemble(text, TARGET.capability, "joint")[:4] == b"\x7fELF"


def test_lengths_are_shared_to_the_element() -> None:
    programs = [p for n in (77, 1000, 4096) for p in programs_of(other, (torch.rand(n),))]
    shared = share_lengths(programs, ELEMENTS)
    texts = {cuda_kernel_text(shared[program][0]) for program in programs}
    assert len(texts) == 1
    assert [shared[program][1] for program in programs] == [77, 1000, 4096]


@pytest.mark.parametrize("count", [5, 90])
def test_every_block_finds_its_kernel_and_arguments(tmp_path: Path, count: int) -> None:
    """The kernels are of two kinds, and more than one table has room for."""
    driver = tmp_path / "libcuda.so.1"
    source = tmp_path / "driver.c"
    source.write_text(_DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(driver), str(source)], check=True)
    folder = Path(__file__).parent
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "LAUNCHES": str(tmp_path / "launches"),
        "PYTHONPATH": os.pathsep.join([str(folder), str(folder.parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    script = "import test_joint_kernels, sys; test_joint_kernels.launch_and_run(int(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(count)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["wrong"] == [] and told["outputs"] == 3 * count
    assert set(told["launches"]) == {"halide_batch_0__joint"} and len(told["launches"]) == (1 if count == 5 else 3)


def _of_any_length(function: Callable[..., Any]) -> Artifact:
    """The kernel whose one size is the length of its tensors, which are taken to be on the GPU wherever they are."""
    operands = 2 if function is scaled else 1
    programs = [programs_of(function, tuple(torch.rand(n) for _ in range(operands)))[0] for n in (77, 1000)]
    text = cuda_kernel_text(share_lengths(programs, ELEMENTS)[programs[0]][0])
    kernel = compile_kernel(text, TARGET, function.__name__)
    described = [{**argument, "device": "cpu"} for argument in kernel.manifest["arguments"]]
    return Artifact(kernel.object, {**kernel.manifest, "arguments": described}, function.__name__, kernel.image)


def launch_and_run(count: int) -> None:
    """In a process whose driver is the stub: call the launcher, then run what it would have launched."""
    from ptx_machine import run

    from halide_backend import loading
    from halide_backend.launch import launcher

    torch.manual_seed(0)
    kernels = {function: _of_any_length(function) for function in (scaled, other)}
    artifacts, positions, arguments, wanted, found = [], [], [], [], []
    for function, length in itertools.product(kernels, (1 + 37 * k % 700 for k in range(count))):
        tensors = [torch.rand(length) for _ in range(2 if function is scaled else 1)]
        results = function(*tensors)
        results = list(results) if isinstance(results, tuple) else [results]
        outputs = [torch.full_like(result, -1) for result in results]
        wanted, found = wanted + results, found + outputs
        own = [*tensors, length, *outputs]
        positions.append(tuple(range(len(arguments), len(arguments) + len(own))))
        arguments += own
        artifacts.append(kernels[function])
    loaded = [
        loading.loaded(artifact, places, dict.fromkeys(artifact.manifest["entries"], f"halide_batch_0__{number}"))
        for number, (artifact, places) in enumerate(zip(artifacts, positions, strict=True))
    ]
    shown: list[list[str]] = []
    notes: Any = [SimpleNamespace(shown_as=shown.append) for _ in loaded]
    joint = loading._joined(loaded, artifacts, TARGET, "halide_batch_0", notes)
    assert shown == [["halide_batch_0__joint"]] * len(loaded)
    launcher.make_launcher("joint", joint, len(arguments) + 1)(*arguments, 0)

    codes = [complete(extract(a.object), "", TARGET.capability, a.manifest["threads"]) for a in artifacts]
    text = str(batching.batched(list(dict.fromkeys(codes))))
    arrays = [t.numpy() for t in arguments if isinstance(t, Tensor)]
    launches = []
    for line in Path(os.environ["LAUNCHES"]).read_text().splitlines():
        blocks, threads, name, *table = line.split()
        launches.append(name)
        run(text, int(blocks), (int(threads), 1), arrays, bytes.fromhex(table[0]))
    wrong = [k for k, (got, want) in enumerate(zip(found, wanted, strict=True)) if not torch.equal(got, want)]
    print(json.dumps({"wrong": wrong, "outputs": len(found), "launches": launches}))
