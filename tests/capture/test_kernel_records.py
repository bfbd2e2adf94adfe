"""Records of kernels, held against what the wrapper, the store, the profiler and the source of this file say."""

from __future__ import annotations

import gc
import inspect
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda_graphs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.ir import IRNode
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.utils import run_and_get_code
from torch.profiler import profile

import halide_backend
from halide_backend import config
from halide_backend.build.artifacts import COMPILED, DISK, MEMORY
from halide_backend.build.loader import load_object
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import KernelTextError
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.launch import launcher
from halide_backend.program import serialization
from halide_backend.refusals import KERNEL_CODES, Refusal
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan

ROOT = Path(__file__).parents[2]
PATCHES = {"cpu_backend": "halide_backend", "force_disable_caches": True}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty store of kernels, and no kernel that this process has asked for before."""
    from halide_backend.build import artifacts

    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(artifacts, "_memory", artifacts._Memory())
    yield tmp_path
    torch._dynamo.reset()


def records_of(function: Callable[..., Any], *arguments: Any) -> tuple[tuple[KernelRecord, ...], str]:
    """The records of a function that is compiled and called, and its wrapper."""
    torch._dynamo.reset()
    halide_backend.reset_stats()
    with inductor_config.patch(PATCHES), config.patch(delegate=True):
        _, codes = run_and_get_code(lambda: torch.compile(function, dynamic=False)(*arguments))
    return halide_backend.records(), "\n".join(codes)


def two_kernels(x: Tensor) -> tuple[Tensor, Tensor]:
    scaled = torch.softmax(x * 3, -1)
    total = (scaled + 1).sum()
    return scaled, total


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if text in line)


def test_a_record_says_what_the_wrapper_says(store: Path) -> None:
    records, code = records_of(two_kernels, torch.rand(300, 40))
    names = re.findall(r"^(halide_\w+) = load_kernel\('(\w+)'", code, re.MULTILINE)
    assert [(name, name) for name in dict.fromkeys(r.name for r in records)] == names
    # Each pipeline stands in the wrapper as (r'''text''', places).
    texts = re.findall(r"\(r'''\n(.*?)''', \(", code, re.DOTALL)
    assert [r.text for r in records] == texts and len(texts) == 2
    assert [r.position for r in records] == [0, 1]
    for record in records:
        assert (record.captured, record.backend, record.delegation) == (True, "halide", None)
        assert (record.device, record.process) == ("cpu", os.getpid())
        assert record.compile_id == "0/0"
        assert record.program is not None and record.plan is not None and record.target is not None
        planned = plan_kernel(record.program, device_of(record.target))
        assert (planned.text, planned.plan) == (record.text, record.plan)
    assert len({record.graph for record in records}) == 1
    first, second = records
    (neighbour,) = first.not_fused
    assert neighbour.nodes == second.nodes
    assert neighbour.reason.code == "fusion-without-common-outer-axis"


def test_a_record_leads_to_the_lines_of_the_program(store: Path) -> None:
    (first, second), _ = records_of(two_kernels, torch.rand(300, 40))
    softmax, total = line_of(two_kernels, "softmax"), line_of(two_kernels, "sum()")
    assert [line.line for line in first.source_lines] == [softmax]
    assert [line.line for line in second.source_lines] == [total]
    line = second.source_lines[0]
    assert (line.file, line.function, line.text) == (__file__, "two_kernels", "total = (scaled + 1).sum()")
    assert {origin.target for origin in first.origins} >= {"aten.mul.Tensor", "aten.exp.default"}
    assert {origin.node for origin in second.origins} == {"sum_2", "add"}


def test_a_line_of_an_optimizer_is_torchs(store: Path) -> None:
    weight = torch.rand(100, requires_grad=True)
    weight.grad = torch.rand(100)
    step = torch.optim.SGD([weight], lr=0.1).step
    (record,), _ = records_of(lambda: step())
    (line,) = record.source_lines
    assert line.file == inspect.getfile(torch.optim.SGD)
    assert line.text == Path(line.file).read_text().splitlines()[line.line - 1].strip()


def test_the_key_names_the_file_in_the_store(store: Path) -> None:
    records, _ = records_of(two_kernels, torch.rand(300, 40))
    files = {path.name for path in store.rglob("*.v1")}
    assert {f"{record.key}.v1" for record in records} == files
    for record in records:
        artifact = record.artifact()
        assert record.object_bytes == len(artifact.object) > 1000
        assert artifact.entry == f"kernel_{record.key[:16]}"
        load_object(artifact.object, f"{artifact.entry}_argv", launcher.native().symbols())


def test_how_a_kernel_was_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from halide_backend.build import artifacts

    def twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        # Sums of all elements are not fused, and have equal programs.
        return x.sin().sum(), y.sin().sum()

    arguments = torch.rand(64, 64), torch.rand(64, 64)
    records, _ = records_of(twice, *arguments)
    assert [record.cache for record in records] == [COMPILED, MEMORY]
    assert records[0].key == records[1].key
    assert records[0].compile_seconds > 0 == records[1].compile_seconds
    stats = halide_backend.stats()
    assert (stats["kernels_compiled"], stats["cache_misses"], stats["cache_hits"]) == (1, 1, 0)
    assert stats["compile_seconds"] == stats["median_compile_seconds"] == records[0].compile_seconds
    assert [record.cache for record in records_of(twice, *arguments)[0]] == [MEMORY, MEMORY]
    assert halide_backend.stats()["kernels_compiled"] == 0
    monkeypatch.setattr(artifacts, "_memory", artifacts._Memory())
    assert [record.cache for record in records_of(twice, *arguments)[0]] == [DISK, MEMORY]
    stats = halide_backend.stats()
    assert (stats["kernels_compiled"], stats["cache_hits"], stats["native_kernels"]) == (0, 1, 2)


PROGRAM = """
import json, os, sys
import torch, halide_backend
import torch._inductor.config as inductor_config
from halide_backend.kernel_records.record import KernelRecord

inductor_config.cpu_backend = "halide_backend"
inductor_config.force_disable_caches = "nocache" in sys.argv

def function(x):
    return torch.softmax(x * 3, -1), (x + 1).sum()

to_json = KernelRecord.to_json
if "untraced" in sys.argv:
    KernelRecord.to_json = None
torch.compile(function, dynamic=False)(torch.rand(300, 40))
KernelRecord.to_json = to_json
records = halide_backend.records()
assert all(record.process == os.getpid() for record in records)
print(json.dumps([[record.to_json() for record in records], halide_backend.stats()]))
"""


def in_a_process(path: Path, *options: str, **environment: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    script = path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), *options],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path])),
            "HALIDE_BACKEND_CACHE_DIR": str(path / "halide"),
            "TORCHINDUCTOR_CACHE_DIR": str(path / "inductor"),
            **environment,
        },
    )
    assert done.returncode == 0, done.stderr
    records, stats = json.loads(done.stdout)
    return records, stats


def test_a_kernel_of_another_process_has_a_record(tmp_path: Path) -> None:
    first, stats = in_a_process(tmp_path)
    assert {record["cache"] for record in first} == {COMPILED}
    assert stats["native_kernels"] == stats["kernels_loaded"] == len(first) == 2
    files = {path.stem for path in (tmp_path / "halide").rglob("*.v1")}
    second, stats = in_a_process(tmp_path)
    assert {record["key"] for record in second} == files
    # The wrapper came from Inductor's cache: nothing was captured, and nothing compiled.
    assert (stats["native_kernels"], stats["cache_hits"], stats["kernels_compiled"]) == (0, 2, 0)
    for before, after in zip(first, second, strict=True):
        assert (before["captured"], after["captured"]) == (True, False)
        same = ("name", "position", "device", "text", "target", "key", "object_bytes", "loads", "profiled")
        assert [before[field] for field in same] == [after[field] for field in same]
        assert (after["cache"], after["compile_seconds"]) == (DISK, 0)
        assert after["program"] is after["plan"] is after["graph"] is None
        assert before["process"] != after["process"]
    third, stats = in_a_process(tmp_path, "nocache")
    assert [(record["captured"], record["cache"]) for record in third] == [(True, DISK)] * 2
    assert (stats["native_kernels"], stats["cache_hits"], stats["kernels_compiled"]) == (2, 2, 0)


def test_json_has_the_program_and_the_plan(store: Path) -> None:
    records, _ = records_of(two_kernels, torch.rand(300, 40))
    for record in records:
        document = json.loads(json.dumps(record.to_json()))
        assert record.program is not None and record.plan is not None
        program = serialization.from_json(document["program"])
        assert program == record.program
        assert document["program_digest"] == serialization.digest(program)
        plan = Plan.from_json(document["plan"])
        assert (plan.mapping, plan.steps) == (record.plan.mapping, record.plan.steps)
        assert [each["knob"] for each in document["choices"]] == list(document["plan"]["knobs"])
        assert all(each["why"] for each in document["choices"])
        assert document["lines"] == [str(line) for line in record.source_lines]


def test_loop_nest_and_assembly_are_made_when_asked_for(store: Path) -> None:
    (record, _), _ = records_of(two_kernels, torch.rand(300, 40))
    assert record.loop_nest().startswith("produce ")
    assert record.loop_nest().count("parallel x0") == 1
    assert re.search(rf"^\s*\.globl\s+kernel_{record.key[:16]}$", record.assembly(), re.MULTILINE)


def test_a_delegated_kernel_says_who_runs_it_and_why(store: Path) -> None:
    # Virtual memory: 2,048 of its bytes are touched.
    memory = torch.empty(2**31 + 10, dtype=torch.int8)

    def large(x: Tensor) -> tuple[Tensor, Tensor]:
        few = x[:: 1 << 20] + 1
        return few, few.float().exp()

    records, code = records_of(large, memory)
    (record,) = (record for record in records if record.delegation is not None)
    assert record.backend == "cpp"
    assert re.search(rf"^{record.name} = async_compile\.cpp_pybinding\(", code, re.MULTILINE)
    detail = "a buffer of 2147483658 elements, more than 2147483647"
    assert record.delegation == Refusal("buffer-too-large", detail, KERNEL_CODES["buffer-too-large"].hint)
    assert [line.line for line in record.source_lines] == [line_of(large, "few = ")]
    assert record.to_json()["delegation"]["detail"] == detail
    assert (record.text, record.key, record.cache, record.loads) == ("", "", "", 0)
    for ask in (record.loop_nest, record.assembly, record.artifact):
        with pytest.raises(KernelTextError, match="Inductor's cpp backend runs it"):
            ask()
    # Both were one group before its memory was known.
    (native,) = (record for record in records if record.delegation is None)
    assert native.split_from is not None and native.split_from == record.split_from
    assert (native.split_from.nodes, native.split_from.reason) == ((*record.nodes, *native.nodes), record.delegation)
    assert halide_backend.stats()["delegation_reasons"] == {"buffer-too-large": 1}


def test_a_group_that_fell_apart_is_told_by_its_parts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from halide_backend.capture import scheduling

    compile_program = scheduling.compile_program

    def refusing(program: Any, *rest: Any) -> Any:
        if len(program.stores) > 1:
            raise halide_backend.errors.Unsupported("grid-too-large", "for the test")
        return compile_program(program, *rest)

    monkeypatch.setattr(scheduling, "compile_program", refusing)
    records, _ = records_of(lambda x: (x.sin() + 1, x.cos() * 2), torch.rand(64, 64))
    assert [len(record.nodes) for record in records] == [1, 1]
    nodes = (*records[0].nodes, *records[1].nodes)
    for record in records:
        assert record.split_from is not None
        assert (record.split_from.nodes, record.split_from.reason.code) == (nodes, "grid-too-large")
    stats = halide_backend.stats()
    assert (stats["unfused_groups"], stats["unfusing_reasons"]) == (1, {"grid-too-large": 1})


def test_a_backward_graph_has_the_lines_of_the_forward_one(store: Path) -> None:
    def loss(x: Tensor) -> Tensor:
        return x.sin().mul(2).sum()

    x = torch.rand(64, 64, requires_grad=True)
    torch._dynamo.reset()
    halide_backend.reset_stats()
    with inductor_config.patch(PATCHES):
        torch.compile(loss, dynamic=False)(x).backward()
    forward, backward = halide_backend.records()
    assert (forward.backward, backward.backward) == (False, True)
    assert {line.line for line in backward.source_lines} == {line_of(loss, "return x")}


def test_a_profiler_shows_the_recorded_name(store: Path) -> None:
    torch._dynamo.reset()
    halide_backend.reset_stats()
    with inductor_config.patch(PATCHES):
        fast = torch.compile(two_kernels, dynamic=False)
        fast(x := torch.rand(300, 40))
    with profile() as profiled:
        fast(x)
    shown = {event.name for event in profiled.events()}
    for record in halide_backend.records():
        assert record.loads == 1
        assert set(record.profiled) <= shown and record.profiled


def test_kernels_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("halide")
    pytest.importorskip("halide_backend.kernel_library.cuda._intrinsics")
    cuda_graphs.pretend(monkeypatch)
    halide_backend.reset_stats()
    arguments = [((512,), torch.float32), ((256, 128), torch.float32), ((128, 512), torch.float32)]

    def function(b: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(torch.tanh(x) @ w + b, (512,))

    code, _ = cuda_graphs.code_of(function, arguments, "halide_backend", max_autotune=True)
    records = halide_backend.records()
    assert {record.device for record in records} == {"cuda:0"}
    (template,) = (record for record in records if record.backend == "triton")
    assert template.delegation is not None and template.delegation.code == "template"
    assert re.search(rf"^{template.name} = async_compile\.triton\(", code, re.MULTILINE)
    native = [record for record in records if record.backend == "halide"]
    assert [record.name for record in native] == re.findall(r"^(halide_\w+) = load_kernel", code, re.MULTILINE)
    for record in native:
        assert ".visible .entry" in record.assembly()
        assert "gpu_block" in record.loop_nest()


def test_records_keep_nothing_of_a_graph_alive(store: Path) -> None:
    records_of(two_kernels, torch.rand(300, 40))
    from halide_backend.kernel_records.journal import journal

    seen: set[int] = set()
    waiting: list[Any] = list(journal._notes)
    assert waiting
    kinds = (Tensor, torch.fx.Node, torch.fx.Graph, BaseSchedulerNode, IRNode)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, types.FunctionType, types.MethodType)):
            continue
        seen.add(id(thing))
        assert not isinstance(thing, kinds), thing
        waiting += gc.get_referents(thing)
    assert len(seen) > 100


def test_a_structured_trace_has_the_records(tmp_path: Path) -> None:
    records, _ = in_a_process(tmp_path, TORCH_TRACE=str(tmp_path / "trace"))
    (log,) = (tmp_path / "trace").iterdir()
    found = re.findall(
        r'"artifact": \{"name": "(halide_backend_\w+)", "encoding": "json"\}.*\n((?:\t.*\n)+)', log.read_text()
    )
    assert [name for name, _ in found] == [f"halide_backend_{r['name']}_{r['position']}" for r in records]
    for (_, payload), record in zip(found, records):
        document = json.loads(payload)
        same = ("name", "text", "program", "plan", "nodes", "lines")
        assert [document[field] for field in same] == [record[field] for field in same]


def test_nothing_is_written_while_the_trace_is_off(tmp_path: Path) -> None:
    records, _ = in_a_process(tmp_path, "untraced")
    assert [record["captured"] for record in records] == [True, True]
