"""What the results of many cases come to: geometric means by group, the lowest ratio, shares of the roofline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from halide_backend import terminal
from halide_backend.bench.measurement import Result
from halide_backend.cache_key import NAME

#: A ratio from which a case counts as no slower, and a share of the roofline below which it could be faster.
ENOUGH, LOW_SHARE = 0.97, 0.7

#: What is compared with where there are several: the fastest of them in each case.
FASTEST = "the fastest of them"

ALL = "all"


@dataclass(frozen=True)
class Figures:
    """Ratios of some cases: another contestant's time over this backend's."""

    cases: int
    geometric_mean: float
    lowest: float
    enough: int

    @staticmethod
    def of(ratios: Sequence[float]) -> Figures:
        """The figures of one ratio or more."""
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        return Figures(len(ratios), mean, min(ratios), sum(ratio >= ENOUGH for ratio in ratios))

    def cells(self) -> tuple[str, ...]:
        """A row of the table, from its column "cases" on."""
        share = f"{100 * self.enough / self.cases:.1f} %"
        return str(self.cases), f"{self.geometric_mean:.3f}", f"{self.lowest:.3f}", share


def fastest(result: Result, against: Sequence[str]) -> float:
    """The ratio to whichever of the others is the fastest in this case."""
    return min(result.ratio(name) for name in against)


def figures(results: Iterable[Result], ratio: Callable[[Result], float]) -> dict[str, Figures]:
    """Group -> figures of its cases, and of all."""
    ratios: dict[str, list[float]] = {}
    for result in results:
        for group in (result.group, ALL):
            ratios.setdefault(group, []).append(ratio(result))
    return {group: Figures.of(found) for group, found in ratios.items()}


def compared(results: Sequence[Result], against: Sequence[str]) -> dict[str, dict[str, Figures]]:
    """Contestant -> group -> figures; with several contestants also against the fastest of them."""
    timed = [result for result in results if result.samples]
    if not timed:
        return {}
    found = {name: figures(timed, lambda result, name=name: result.ratio(name)) for name in against}  # type: ignore[misc]
    if len(against) > 1:
        found[FASTEST] = figures(timed, lambda result: fastest(result, against))
    return found


def to_json(results: Sequence[Result], against: Sequence[str]) -> dict[str, Any]:
    """All figures as plain JSON: contestant -> group -> figures."""
    return {
        name: {group: asdict(each) for group, each in groups.items()}
        for name, groups in compared(results, against).items()
    }


def text(seen: Sequence[Result], held_back: Sequence[Result], against: Sequence[str]) -> str:
    """Lines for people; of the cases that are held back no case by itself, and no group."""
    both = [*seen, *held_back]
    lines = [f"{sum(result.right for result in both)} of {len(both)} right"]
    rows = []
    for name, groups in compared(seen, against).items():
        rows += [(name, group, *groups[group].cells()) for group in sorted(groups, key=ALL.__eq__)]
    for name, groups in compared(held_back, against).items():
        rows += [(name, "held back", *groups[ALL].cells())] if groups else []
    if rows:
        headings = ("time over ours of", "group", "cases", "geometric\nmean", "\nlowest", f"at least\n{ENOUGH}")
        lines.append(terminal.table(headings, rows, "llrrrr"))
    lines += _roofline(seen) + _compile_times(both, against)
    return "\n".join(lines)


def _roofline(results: Sequence[Result]) -> list[str]:
    shares = [
        (result.share(), result.share(with_allocation=False)) for result in results if not math.isnan(result.share())
    ]
    if not shares:
        return []
    whole = statistics.median(share for share, _ in shares)
    # NaN where the memory of results took longer than a call.
    computing = statistics.median([share for _, share in shares if not math.isnan(share)] or [math.nan])
    low = sum(share < LOW_SHARE for share, _ in shares)
    return [
        f"share of the roofline: median {whole:.2f}, {computing:.2f} without the allocation of results; "
        f"{low} of {len(shares)} below {LOW_SHARE}"
    ]


def _compile_times(results: Sequence[Result], against: Sequence[str]) -> list[str]:
    lines = []
    for name in against:
        first = [(r.compile_s[name], r.compile_s[NAME]) for r in results if {name, NAME} <= r.compile_s.keys()]
        if first and any(r.kernels.get(name) for r in results):
            theirs, ours = map(sum, zip(*first, strict=True))
            lines.append(f"first calls took {theirs:.1f} s with {name}, {ours:.1f} s with ours")
    return lines
