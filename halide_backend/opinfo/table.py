"""The results of a run as text: a row for each data type, failures, what was delegated and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from halide_backend import terminal
from halide_backend.opinfo import outcome
from halide_backend.opinfo.outcome import BAD, SAME_FAILURE, STATUSES, Outcome

#: Operators that are named as examples of one reason.
_EXAMPLES = 4


def write(outcomes: Sequence[Outcome]) -> str:
    """The whole table."""
    dtypes = list(dict.fromkeys(item.dtype for item in outcomes))
    headings = ("dtype", "ops", *STATUSES, "native", "delegated")
    rows = [_row(dtype, [o for o in outcomes if o.dtype == dtype]) for dtype in dtypes]
    if len(dtypes) > 1:
        rows.append(_row("all", outcomes))
    parts = [terminal.table(headings, rows, "l" + "r" * (len(headings) - 1))]
    for title, statuses in (("Failures", BAD), ("Same failure with the backend that was compared", (SAME_FAILURE,))):
        found = [item for item in outcomes if item.status in statuses]
        if found:
            parts.append(f"{title}:\n" + "\n".join(map(_failure, found)))
    reasons = _reasons(outcomes)
    if reasons:
        listed = terminal.table(("kernels", "reason", "operators"), reasons, "rll")
        parts.append(f"Delegated kernels by reason:\n{listed}")
    return "\n\n".join(parts) + "\n"


def _row(title: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    statuses = Counter(item.status for item in outcomes)
    counts = [statuses[status] for status in STATUSES]
    native = sum(item.native for item in outcomes)
    delegated = sum(item.delegated for item in outcomes)
    return (title, *map(str, (len(outcomes), *counts, native, delegated)))


def _failure(item: Outcome) -> str:
    failure = item.failures[0]
    first = " | ".join(failure.error.splitlines()[:3])
    more = f" (and {len(item.failures) - 1} more samples)" if len(item.failures) > 1 else ""
    line = f"  {item.op} {item.dtype}: {item.status}: sample {failure.sample}, {failure.kind}{more}"
    line += f": {first}"
    if item.status != outcome.SAME_FAILURE and item.other_failures:
        other = item.other_failures[0]
        line += f"\n      (there: {other.kind}: {other.error.splitlines()[0] if other.error else ''})"
    return line


def _reasons(outcomes: Iterable[Outcome]) -> list[tuple[str, str, str]]:
    kernels: Counter[str] = Counter()
    examples: dict[str, dict[str, None]] = {}
    for item in outcomes:
        for reason, count in item.reasons.items():
            kernels[reason] += count
            examples.setdefault(reason, {})[item.op] = None
    rows = []
    for reason, count in kernels.most_common():
        names = list(examples[reason])
        more = f" and {len(names) - _EXAMPLES} more" if len(names) > _EXAMPLES else ""
        rows.append((str(count), reason, ", ".join(names[:_EXAMPLES]) + more))
    return rows
