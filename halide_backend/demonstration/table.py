"""Prints what the demo measured: the machine, one table, and what to make of it."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend import terminal
from halide_backend.demonstration.figures import (
    BackendFigures,
    DemoFigures,
    RowFigures,
    Start,
    Times,
)
from halide_backend.demonstration.session import CPP, EAGER, OURS

HEADINGS = (
    "model",
    "equal\nto\neager",
    "\nmax\nerror",
    "kernels\nnative/\ndelegated",
    "cold\ncompile s\nours",
    "C++",
    "\nms per\nkernel",
    "second\nprocess s\nours",
    "C++",
    "\nrun ms\neager",
    "C++",
    "ours",
    "times\nfaster than\neager",
    "C++",
)
NOTHING = "-"
LEGEND = (
    "Cold compilation is from the first step of a fresh process to the end of the second; ms per kernel is the median\n"
    "time that a worker takes for one. Run times are medians of alternating rounds, ± half the distance between the\n"
    "quartiles; ratios are of medians."
)


def render(figures: DemoFigures) -> str:
    """The whole closing text."""
    parts = ["", "\n".join(f"{name}: {value}" for name, value in figures.machine.items()), ""]
    parts += [f"{row.name}: {row.summary}" for row in figures.rows]
    parts += ["", _grid(figures.rows), "", LEGEND, ""]
    parts += [line for row in figures.rows for line in (*_optimizer(row), *_remarks(row))]
    if figures.processes:
        parts.append(_processes(figures.processes))
    return "\n".join(parts)


def _grid(rows: Sequence[RowFigures]) -> str:
    return terminal.table(HEADINGS, map(_cells, rows), "l" + "r" * (len(HEADINGS) - 1))


def _cells(row: RowFigures) -> list[str]:
    ours = row.backends.get(OURS, BackendFigures())
    cpp = row.backends.get(CPP, BackendFigures())
    eager = row.backends.get(EAGER, BackendFigures())
    errors = [check.error for check in ours.checks]
    return [
        row.name,
        "yes" if row.passed(OURS) else "NO",
        f"{max(errors):.1e}" if errors else NOTHING,
        _kernels(ours.cold),
        _seconds(ours.cold),
        _seconds(cpp.cold),
        _compilation(ours.cold),
        _seconds(ours.second),
        _seconds(cpp.second),
        _milliseconds(eager.run),
        _milliseconds(cpp.run),
        _milliseconds(ours.run),
        _ratio(eager.run, ours.run),
        _ratio(cpp.run, ours.run),
    ]


def _kernels(start: Start | None) -> str:
    if start is None or not start.stats:
        return NOTHING
    return f"{start.stats['native_kernels']:.0f}/{start.stats['delegated_kernels']:.0f}"


def _seconds(start: Start | None) -> str:
    return NOTHING if start is None else f"{start.seconds:.1f}"


def _compilation(start: Start | None) -> str:
    seconds = start.stats.get("median_compile_seconds") if start is not None else None
    return f"{1000 * seconds:.0f}" if isinstance(seconds, float) else NOTHING


def _milliseconds(times: Times | None) -> str:
    if times is None:
        return NOTHING
    digits = 1 if times.median >= 10 else 3
    spread = 50 * (times.upper_quartile - times.lower_quartile) / times.median
    return f"{times.median:.{digits}f} ±{spread:.0f}%"


def _ratio(slower: Times | None, faster: Times | None) -> str:
    return NOTHING if slower is None or faster is None else f"{slower.median / faster.median:.2f}"


def _optimizer(row: RowFigures) -> list[str]:
    """How the cold compilation divides between the model and its optimizer, whose graphs are compiled apart."""
    colds = {name: row.backends[name].cold for name in (OURS, CPP) if name in row.backends}
    parts = [
        f"{name} {_seconds(cold)} = {cold.seconds - cold.optimizer_seconds:.1f} + {cold.optimizer_seconds:.1f}"
        for name, cold in colds.items()
        if cold is not None and cold.optimizer_seconds
    ]
    return [f"{row.name}: cold compilation of model + optimizer: {', '.join(parts)}"] if parts else []


def _remarks(row: RowFigures) -> list[str]:
    remarks = []
    for backend, figures in row.backends.items():
        remarks += [
            f"{row.name}: {backend} differs from eager in {check.name}: {check.error:.1e}"
            for check in figures.checks
            if not check.passed
        ]
    ours = row.backends.get(OURS, BackendFigures())
    if ours.cold is not None:
        reasons = ours.cold.stats.get("delegation_reasons")
        if isinstance(reasons, dict):
            remarks += [f"{row.name}: delegated {n}x: {reason}" for reason, n in reasons.items()]
    if ours.second is not None and ours.second.stats.get("kernels_compiled"):
        compiled = ours.second.stats["kernels_compiled"]
        remarks.append(f"{row.name}: the second process compiled {compiled:.0f} kernels again")
    remarks += [f"{row.name}: {failure}" for failure in row.failures]
    remarks += [f"{row.name}: wrote {file}" for file in row.pictures]
    return remarks


def _processes(counted: dict[str, object]) -> str:
    others = _others(counted)
    first = (
        f"processes started: {counted['workers']} compile workers, "
        f"{counted['sessions']} of the demo itself, {sum(others.values())} others"
    )
    return "\n".join([first, *(f"  {number}x {command}" for command, number in others.items())])


def _others(counted: dict[str, object]) -> dict[str, int]:
    others = counted["others"]
    return others if isinstance(others, dict) else {}
