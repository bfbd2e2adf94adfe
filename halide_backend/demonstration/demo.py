"""Runs the demo: one process per figure, one row of the table per workload."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halide_backend.demonstration import session_process, table
from halide_backend.demonstration.catalogue import ROWS
from halide_backend.demonstration.figures import (
    BackendFigures,
    Check,
    DemoFigures,
    RowFigures,
    Start,
    Times,
)
from halide_backend.demonstration.session import CPP, EAGER, OURS, Task
from halide_backend.inspection import machine, process_audit
from halide_backend.terminal import Progress


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    quick: bool = False
    only: str = ""
    output: str = "demo-output"
    json_file: str = ""
    audit: bool = False


def run(request: Request) -> int:
    """Run the demo and print its table; 0 when all is well (see `halide-backend demo --help`)."""
    begin = time.monotonic()
    started = process_audit.watch() if request.audit else None
    compiler = "" if request.audit else machine.cxx_compiler()
    backends = (OURS, CPP) if compiler else (OURS,)
    names = ROWS[request.only] if request.only else tuple(name for row in ROWS.values() for name in row)
    facts = {
        **machine.facts(),
        "Inductor's C++ backend": _cpp_remark(compiler, request.audit),
    }
    for name, value in facts.items():
        print(f"{name}: {value}")
    print(flush=True)

    with Progress(len(names) * (2 * len(backends) + 1), sys.stdout, heartbeat=20.0) as progress:
        rows = tuple(_row(name, backends, request, progress, started) for name in names)
    figures = DemoFigures(facts, rows, time.monotonic() - begin, started.to_json() if started else {})
    print(table.render(figures))
    print(f"The demo took {figures.seconds:.0f} s.")
    if request.json_file:
        Path(request.json_file).write_text(json.dumps(asdict(figures), indent=2) + "\n")
    clean = started is None or not started.others
    return 0 if clean and all(row.passed(OURS) for row in rows) else 1


def _cpp_remark(compiler: str, audit: bool) -> str:
    if audit:
        return "left out, --audit compares with eager only"
    return compiler or "left out, there is no C++ compiler on PATH (set CXX to name one)"


def _row(
    name: str,
    backends: Sequence[str],
    request: Request,
    progress: Progress,
    started: process_audit.StartedProcesses | None,
) -> RowFigures:
    failures: list[str] = []
    starts: dict[tuple[str, str], Start] = {}
    measured: dict[str, Any] = {"checks": {}, "times": {}, "pictures": []}

    def session(kind: str, label: str, caches: dict[str, str]) -> dict[str, Any] | None:
        progress.doing(f"{name}, {label}")
        task = Task(kind, name, caches, request.quick, request.audit, request.output)
        log = Path(request.output, f"{name}, {label}.log".replace(" ", "-").replace(",", ""))
        begin = time.monotonic()
        try:
            result = session_process.run(task, log, lambda doing: progress.doing(f"{name}, {label} {doing}"))
            outcome = f"{result['seconds']:.1f} s" if kind == "start" else "done"
        except session_process.SessionFailed as failure:
            result, outcome = None, f"FAILED, {failure}"
            failures.append(f"{label} failed, {failure}")
        progress.done(f"{name}, {label}: {outcome} ({time.monotonic() - begin:.1f} s)")
        if result is None:
            return None
        if started is not None:
            started.add(result["processes"])
        return result

    # Fresh folders: nothing compiled earlier on this machine is found again.
    with tempfile.TemporaryDirectory(prefix="halide-backend-demo-") as folder:
        caches = {backend: str(Path(folder, backend)) for backend in backends}
        for backend, cache in caches.items():
            for phase, label in (("cold", "cold compile"), ("second", "second process")):
                result = session("start", f"{label} with {backend}", {backend: cache})
                if result is not None:
                    starts[backend, phase] = Start(result["seconds"], result["stats"], result["optimizer_seconds"])
        result = session("measure", "checks and rounds", caches)
        if result is not None:
            measured = result
    return RowFigures(
        name,
        measured.get("summary", ""),
        {
            backend: BackendFigures(
                starts.get((backend, "cold")),
                starts.get((backend, "second")),
                Times(**measured["times"][backend]) if backend in measured["times"] else None,
                tuple(Check(**check) for check in measured["checks"].get(backend, [])),
            )
            for backend in (EAGER, *backends)
        },
        tuple(failures),
        tuple(measured["pictures"]),
    )
