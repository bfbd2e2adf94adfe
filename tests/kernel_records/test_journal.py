"""The journal keeps a bounded number of records, and forgets nothing that statistics count."""

from __future__ import annotations

import importlib.util
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from halide_backend.build.artifacts import COMPILED, DISK, Artifact, Build
from halide_backend.errors import HalideCompileError
from halide_backend.kernel_records.journal import Journal
from halide_backend.kernel_records.origin import Origin
from halide_backend.kernel_records.record import KernelRecord, Neighbour
from halide_backend.kernel_records.statistics import NAMES
from halide_backend.refusals import Refusal


def record(name: str = "k", **fields: Any) -> KernelRecord:
    return KernelRecord(name, "cpu", os.getpid(), **{"text": f"text of {name}", **fields})


def build(key: str = "key", found: str = COMPILED, seconds: float = 0.0, again: bool = False) -> Build:
    artifact: Future[Artifact] = Future()
    artifact.set_result(Artifact(b"12345", {}, "entry", b"678", found, seconds))
    return Build(key, artifact, again)


def nonzero(journal: Journal) -> dict[str, object]:
    return {name: number for name, number in journal.stats().items() if number}


def test_statistics_without_records() -> None:
    stats = Journal().stats()
    assert tuple(stats) == (*NAMES, "median_compile_seconds", "delegation_reasons", "unfusing_reasons")
    assert set(map(str, stats.values())) == {"0", "{}"}


def fill(journal: Journal) -> None:
    parts, reason = ("op0", "op1"), Refusal("grid-too-large", "large")
    split = Neighbour(parts, reason)
    journal.captured(record("a"), build("a", seconds=1.0))
    journal.captured(record("b"), build("b", seconds=2.0))
    journal.captured(record("c"), build("c", seconds=6.0))
    journal.captured(record("d", nodes=parts[:1], split_from=split), build("d", DISK))
    journal.captured(record("e", nodes=parts[1:], split_from=split, backend="cpp", delegation=reason))
    journal.captured(record("f", backend="cpp", delegation=Refusal("template", "")))
    journal.captured(record("a", position=1), build("a", again=True))
    journal.loading(record("a", captured=False), build("a", again=True)).loaded(["a"])
    journal.loading(record("g", captured=False), build("g", DISK)).loaded(["g"])


FILLED = {
    "native_kernels": 5,
    "delegated_kernels": 1,
    "delegated_templates": 1,
    "unfused_groups": 1,
    "kernels_compiled": 3,
    "kernels_loaded": 2,
    "cache_hits": 2,
    "cache_misses": 3,
    "compile_seconds": 9.0,
    "delegation_reasons": {"grid-too-large": 1},
    "unfusing_reasons": {"grid-too-large": 1},
}


def test_statistics_are_sums_of_records() -> None:
    journal = Journal()
    fill(journal)
    assert nonzero(journal) == {**FILLED, "median_compile_seconds": 2.0}
    assert [each.name for each in journal.records()] == ["a", "b", "c", "d", "e", "f", "a", "g"]
    assert [each.cache for each in journal.records()] == [
        "compiled", "compiled", "compiled", "disk", "", "", "memory", "disk"
    ]  # fmt: skip


@pytest.mark.parametrize("kept", range(1, 9))
def test_a_bounded_journal_counts_what_it_has_forgotten(kept: int) -> None:
    journal = Journal(kept)
    fill(journal)
    stats = nonzero(journal)
    stats.pop("median_compile_seconds", None)
    # One load comes after its record has been forgotten if too few are kept: it has a record of its own then.
    assert stats == FILLED
    assert len(journal.records()) == len(journal._notes) == kept
    assert len(journal._awaited) <= kept


def test_reset_forgets_what_was_counted_before() -> None:
    journal = Journal(2)
    fill(journal)
    journal.reset()
    assert nonzero(journal) == {} and journal.records() == () and not journal._awaited


def test_a_wrapper_finds_the_note_of_its_capture_once() -> None:
    journal = Journal()
    journal.captured(record("a"), build())
    journal.loading(record("a", captured=False), build(again=True)).loaded(["a"])
    (captured,) = journal.records()
    assert (captured.captured, captured.loads, captured.profiled, captured.cache) == (True, 1, ("a",), COMPILED)
    # The same wrapper from Inductor's cache, later.
    journal.loading(record("a", captured=False), build(again=True))
    journal.loading(record("a", captured=False, text="another"), build("other", DISK))
    assert [(each.captured, each.cache) for each in journal.records()] == [
        (True, "compiled"), (False, "memory"), (False, "disk")
    ]  # fmt: skip


def test_a_kernel_that_is_being_built_has_a_key() -> None:
    journal = Journal()
    artifact: Future[Artifact] = Future()
    journal.captured(record(), Build("key", artifact))
    (waiting,) = journal.records()
    assert (waiting.key, waiting.cache, waiting.object_bytes) == ("key", "", 0)
    artifact.set_exception(HalideCompileError("refused"))
    assert journal.records() == (waiting,)


def test_a_forked_child_is_not_held_up() -> None:
    """Another thread of the parent's may be in the journal just then."""
    journal = Journal()
    journal.captured(record("parent"), build())
    os.register_at_fork(after_in_child=journal.renew_lock)
    with journal._lock:
        child = os.fork()
        if child == 0:
            thread = threading.Thread(target=lambda: journal.captured(record("child"), build()), daemon=True)
            thread.start()
            thread.join(10)
            processes = [each.process for each in journal.records()] if not thread.is_alive() else []
            os._exit(0 if processes == [os.getppid(), os.getpid()] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_frames_of_a_stack_trace() -> None:
    trace = """  File "/models/model.py", line 12, in forward
    x = self.norm(x)
  File "/models/no text.py", line 3, in norm
  File "/models/other.py", line 4, in <lambda>
    return x * 2"""
    found = [(frame.file, frame.line, frame.function, frame.text) for frame in Origin("mul", "aten.mul", trace).frames]
    assert found == [
        ("/models/model.py", 12, "forward", "x = self.norm(x)"),
        ("/models/no text.py", 3, "norm", ""),
        ("/models/other.py", 4, "<lambda>", "return x * 2"),
    ]
    assert Origin("mul", "aten.mul", "").line is None


def test_a_line_is_the_users_own() -> None:
    torchs = Path(str(importlib.util.find_spec("torch").origin)).parent / "nn" / "functional.py"  # type: ignore[union-attr]
    user = '  File "/models/model.py", line 12, in forward\n    y = F.gelu(x)\n'
    inside = f'  File "{torchs}", line 3, in gelu\n    return x * phi\n'
    lines = [Origin("mul", "aten.mul", trace).line for trace in (user + inside, user, inside)]
    assert [line.line for line in lines if line is not None] == [12, 12, 3]
