"""Lines: adjacent points that a thread group reduces, or scans, for each outer point of a kernel."""

from __future__ import annotations

import math

from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.mapping.chunks import is_contiguous_over
from halide_backend.schedule.tiling import WARP, Tiling


def points_of(facts: Facts, line: Tiling) -> int:
    """Points of a line; a typical number if its extent is dynamic."""
    return math.prod(facts.hints[name] for name in line.inner)


def is_computed(facts: Facts, line: Tiling) -> bool:
    """Whether the length of a line is known only when the kernel is called."""
    return any(facts.is_dynamic(name) for name in line.inner)


def are_lines(facts: Facts, line: Tiling) -> bool:
    """Whether every output has one value for a line, or stores its line contiguously in the same order."""
    return all(is_contiguous_over(layout, line.inner, facts.extents) for layout in facts.layouts.values())


def are_rows(facts: Facts, line: Tiling) -> bool:
    """Whether the same is true of the rows of a line, along its last axis, which follow each other at one distance."""
    *others, last = line.inner
    parts = (tuple(others), (last,))
    layouts = facts.layouts.values()
    whole = all(not set(line.inner) & {*each.variables} or {*line.inner} <= {*each.variables} for each in layouts)
    return bool(others) and whole and all(is_contiguous_over(e, p, facts.extents) for e in layouts for p in parts)


def may_share_a_warp(facts: Facts, line: Tiling, threads: int) -> bool:
    """Whether groups of `threads` threads, fewer than a warp has, fill every warp: a shuffle needs all its lanes."""
    return bool(line.outer) and all(facts.divides(WARP // threads, name) for name in line.outer)


def warp_of_lines(facts: Facts, line: Tiling, threads: int) -> int:
    """Lines of a warp up to whose multiple the last outer axis is padded so that groups of `threads` threads fill every
    warp; 1 if they do so as it is, 0 if they cannot, since blocks have several lines along another axis."""
    if threads >= WARP or may_share_a_warp(facts, line, threads):
        return 1
    return WARP // threads if line.outer and line.outer[-1] == _cut_axis(facts, line) else 0


def _cut_axis(facts: Facts, line: Tiling) -> str:
    """The outer axis along which blocks have several lines, if it is the only one or all extents are static: that which
    comes first in the memory of the largest output."""
    largest = max(facts.layouts.values(), key=lambda layout: math.prod(facts.hints[n] for n in layout.variables))
    axis = next((name for name in largest.variables if name in line.outer), "")
    known = len(line.outer) == 1 or not any(facts.is_dynamic(name) for name in line.outer)
    return axis if known else ""
