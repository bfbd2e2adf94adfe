"""What kernels take of each class of GPU: registers, spills, shared memory, warps of an SM. It needs no GPU, but ptxas.

    python benchmarks/gpu_resources.py OUT.json [--only TEXT ...] [--sizes S ...] [--dtypes D ...] [--classes sm_80 ...]

The kernels of `halide-backend bench` that are not held back are captured once, lowered as for an H200, then planned,
compiled and assembled for every class; cases with a kernel that is left to Triton are named and left out. Exit code 1
if a kernel is refused or not assembled on some class, or keeps values in local memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

from machine_code import ASSEMBLER, Uninitialised
from torch._inductor import ir
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.exc import InductorError
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.scheduler import BaseSchedulerNode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

from captured_kernels import CapturedKernel, captured_kernels  # noqa: E402

from halide_backend.bench.case import Case, Selection  # noqa: E402
from halide_backend.bench.case import cases as suite  # noqa: E402
from halide_backend.bench.kernels import GROUPS  # noqa: E402
from halide_backend.bench.provenance import provenance  # noqa: E402
from halide_backend.build.pool import WorkerPool  # noqa: E402
from halide_backend.build.ptx import ptxas  # noqa: E402
from halide_backend.build.target import Target  # noqa: E402
from halide_backend.capture.scheduling import HalideScheduling  # noqa: E402
from halide_backend.codegen.planned_kernel import plan_kernel  # noqa: E402
from halide_backend.errors import HalideBackendError  # noqa: E402
from halide_backend.graph_passes import device_pass  # noqa: E402
from halide_backend.graph_passes.reduction_splits import parts  # noqa: E402
from halide_backend.graph_passes.two_step_reductions import reduce_in_two_steps  # noqa: E402
from halide_backend.schedule.device import Gpu, device_of  # noqa: E402

H200 = Target.cuda(9, 0)
CLASSES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")

#: Warps and blocks that an SM runs at most, how many registers a warp gets at a time, what a block takes of shared
#: memory besides its own (CUDA C++ programming guide, compute capabilities).
WARP, BLOCKS, UNIT, RESERVED = 32, {"sm_86": 16, "sm_89": 24}, 256, 1 << 10

#: Kernels with fewer threads on an SM are told of, for whoever looks for memory that is waited for.
_LOW = 0.25

_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_THREADS = re.compile(r"^\.maxntid (\d+), (\d+), (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a class; `occupancy` is the part of an SM's threads that run at a time."""

    kernel: str
    gpu: str
    rule: str = ""
    registers: int = 0
    local_bytes: int = 0
    shared_bytes: int = 0
    threads: int = 0
    occupancy: float = 0.0
    refused: str = ""


def resources(kernel: CapturedKernel, name: str, target: Target, pool: WorkerPool, assembler: str) -> Resources:
    """Plan, compile and assemble a kernel for `target`; workers answer with the PTX that they would have assembled."""
    device = device_of(target)
    assert isinstance(device, Gpu)
    try:
        planned = plan_kernel(kernel.program, device)
        ptx = pool.compile(planned.text, target, "kernel", name).image.decode().rstrip("\0")
    except HalideBackendError as error:
        return Resources(name, target.capability, refused=error.what)
    told = _assembled(ptx, target.capability, assembler)
    used, local, block = _USED.findall(told), _LOCAL.findall(told), _THREADS.search(ptx)
    if len(used) != 1 or block is None:
        return Resources(name, target.capability, refused=f"{len(used)} kernels: {told.strip()[:300]}")
    threads = int(block[1]) * int(block[2]) * int(block[3])
    registers, shared = int(used[0][0]), int(used[0][1] or 0)
    rule, part = planned.plan.mapping.rule, occupancy(device, registers, shared, threads)
    return Resources(name, target.capability, rule, registers, sum(map(int, local[0])), shared, threads, part)


def _assembled(ptx: str, capability: str, assembler: str) -> str:
    """What the assembler tells of `ptx`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [assembler, "-v", "-O3", f"-arch={capability}", str(source), "-o", str(Path(folder, "kernel.cubin"))]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def occupancy(device: Gpu, registers: int, shared: int, threads: int) -> float:
    """The part of an SM's threads that run at a time, in blocks of `threads` threads."""
    warps = -(-threads // WARP)
    taken = -(-registers * WARP // UNIT) * UNIT
    blocks = min(
        device.registers // (taken * warps),
        device.threads // (warps * WARP),
        BLOCKS.get(device.capability, 32),
        device.shared_bytes // (shared + RESERVED),
    )
    return blocks * warps * WARP / device.threads


@contextlib.contextmanager
def lowered_as_for(device: Gpu) -> Iterator[None]:
    """Let Inductor split reductions as it does for `device`, though the tensors are on a CPU."""
    properties = DeviceProperties("cuda", 0, device.sms, 90, 9, device.registers, device.threads, 1024, WARP)
    features, factor = HalideScheduling.get_backend_features, InductorChoices.reduction_split_factor

    def without_one_step(self: HalideScheduling, of: object) -> object:
        return features(self, of) - {BackendFeature.FOREACH, BackendFeature.REDUCE_TO_SINGLE_ELEMENT}

    def even(of: object, reduction_numel_hint: int, numel_hint: int, inner_reduction: bool) -> int:
        count = factor(of, reduction_numel_hint, numel_hint, inner_reduction)
        return parts(int(reduction_numel_hint), int(numel_hint), int(count), along_memory=inner_reduction)

    # Inductor asks each tensor and node for its device, and runs the passes of a CPU: of a GPU's the one that changes
    # reductions stands in for the one that stores what filters read.
    with (
        mock.patch.object(DeviceProperties, "create", staticmethod(lambda of: properties)),
        mock.patch.object(ir, "is_gpu", lambda of: True),
        mock.patch.object(ir, "is_cpu", lambda of: False),
        mock.patch.object(BaseSchedulerNode, "is_gpu", lambda self: True),
        mock.patch.object(device_pass, "store_what_filters_read", lambda graph: reduce_in_two_steps(graph, "cpu")),
        mock.patch.object(HalideScheduling, "get_backend_features", without_one_step),
        mock.patch.object(InductorChoices, "reduction_split_factor", staticmethod(even)),
    ):
        yield


def measured(cases: list[Case], classes: list[str], jobs: int) -> Iterator[Resources]:
    """The resources of every kernel of the cases on every class."""
    assembler = ptxas.find()
    if assembler is None:
        raise SystemExit("ptxas is not found; set CUDA_HOME")
    targets = [Target.cuda(int(name[3:-1]), int(name[-1])) for name in classes]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:
        echo = Path(folder, "bin", "ptxas")
        echo.parent.mkdir()
        echo.write_text(ASSEMBLER.format(ptxas=""))
        echo.chmod(0o755)
        with mock.patch.dict(os.environ, {"CUDA_HOME": folder}):
            pool = WorkerPool(jobs, time_limit=300, memory_limit=16 << 30)
            for case in cases:
                arguments = case.kernel.operands(Uninitialised.of_case(case))
                try:
                    with lowered_as_for(device_of(H200)):  # type: ignore[arg-type]
                        kernels = captured_kernels(case.kernel.function, arguments, H200)
                except InductorError as error:
                    print(f"{case.name} has a kernel for Triton: {str(error).splitlines()[0]}", flush=True)
                    continue
                found = [
                    threads.submit(resources, kernel, f"{case.name}/{number}", target, pool, assembler)
                    for number, kernel in enumerate(kernels)
                    for target in targets
                ]
                yield from (each.result() for each in found)
            pool.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="groups, or parts of the names of cases")
    parser.add_argument("--sizes", nargs="+", default=["large"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--classes", nargs="+", default=list(CLASSES))
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    selection = Selection(tuple(asked.only), tuple(asked.sizes), tuple(asked.dtypes))
    cases = [case for case in suite(GROUPS, "cuda", selection) if not case.held_back and case.kernel.timed]
    results = []
    for each in measured(cases, asked.classes, asked.jobs):
        results.append(each)
        if each.refused or each.local_bytes or each.occupancy < _LOW:
            print(each, flush=True)
    for name in asked.classes:
        of = [each for each in results if each.gpu == name]
        right = sorted(each.occupancy for each in of if not each.refused)
        bad = [each for each in of if each.refused or each.local_bytes]
        print(f"{name}: {len(of)} kernels, {len(bad)} refused or in local memory, {sum(r < _LOW for r in right)} below "
              f"{_LOW} of an SM's threads, the median {right[len(right) // 2] if right else 0:.2f}")  # fmt: skip
    document = {"machine": provenance("cpu", ""), "ptxas": ptxas.version(), "kernels": [asdict(r) for r in results]}
    asked.out.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(each.refused or each.local_bytes for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
