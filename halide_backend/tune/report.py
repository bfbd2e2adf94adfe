"""A page about a session, in one file: table, best-so-far curves, effects of knobs, loop nests before and after."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from halide_backend.build.artifacts import worker_pool
from halide_backend.errors import HalideBackendError
from halide_backend.schedule.device import Device
from halide_backend.tune.progress import duration
from halide_backend.tune.space import RULES, Settings, Space, described
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Effect, Tuned, best_so_far, effects, geometric_mean, overall_gain

_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .15em .8em; text-align: right }
th { border-bottom: 1px solid #888 } td:first-child, th:first-child { text-align: left }
pre { background: #f5f5f2; padding: .8em; overflow: auto; font-size: 12px; flex: 1 }
.nests { display: flex; gap: 1em } svg { background: #fafaf8 } .rules { color: #777 }
"""

#: Width and height of a curve, and the space for its labels, in pixels.
_WIDTH, _HEIGHT, _MARGIN = 560, 150, 44


def page(found: Sequence[Tuned], device: Device) -> str:
    """The page as HTML without scripts; loop nests are printed by a compile worker."""
    rows = (
        [
            each.kernel.name,
            duration(each.seconds),
            f"{100 * each.share:.1f} %",
            str(len(each.trials)),
            _interval(each),
            ", ".join(f"{n} {name}" for name, n in sorted(each.outcomes.items())),
        ]
        for each in found
    )
    headings = ("kernel", "time with the rules", "share", "trials", "gain (95 % interval)", "outcomes")
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>halide-backend tune</title>",
        f"<style>{_STYLE}</style><h1>Tuned kernels</h1>",
        f"<p>On {html.escape(device.name)}: gains are the time with the rules over the time as tuned, geometric mean "
        f"{geometric_mean(found):.3f}, of all time together {overall_gain(found):.3f}.</p>",
        _table(headings, rows),
        *(_kernel(each, device) for each in found),
        "</html>\n",
    ]
    return "\n".join(parts)


def curve(gains: Sequence[float]) -> str:
    """The best gain after each trial, as an SVG."""
    top = max(1.05, *gains) if gains else 1.05
    low = min(1.0, *gains) if gains else 1.0
    steps = max(len(gains) - 1, 1)

    def x(position: float) -> float:
        return _MARGIN + position / steps * (_WIDTH - _MARGIN - 8)

    def y(gain: float) -> float:
        return _HEIGHT - 20 - (gain - low) / (top - low) * (_HEIGHT - 32)

    points = " ".join(f"{x(k):.1f},{y(gain):.1f}" for k, gain in enumerate(gains))
    last = gains[-1] if gains else 1.0
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='best gain after each trial'>"
        f"<line x1='{_MARGIN}' x2='{_WIDTH - 8}' y1='{y(1):.1f}' y2='{y(1):.1f}' stroke='#bbb' stroke-dasharray='4 3'/>"
        f"<polyline points='{points}' fill='none' stroke='#0a6' stroke-width='2'/>"
        f"<text x='4' y='{y(1) + 4:.1f}' font-size='11'>1.000</text>"
        f"<text x='4' y='{y(last) + 4 if last > 1.02 * low else 12:.1f}' font-size='11'>{last:.3f}</text>"
        f"<text x='{_WIDTH - 8}' y='{_HEIGHT - 4}' font-size='11' text-anchor='end'>{len(gains)} trials</text></svg>"
    )


def _kernel(found: Tuned, device: Device) -> str:
    before, after = (_nest(found.kernel, device, settings) for settings in (RULES, found.settings))
    settings = described(found.settings) or "the rules' settings"
    nests = f"<pre>{html.escape(before)}</pre>" + (f"<pre>{html.escape(after)}</pre>" if after != before else "")
    varied = (
        [
            each.knob,
            each.setting + (" *" if _is_best(each, found.settings) else ""),
            f"{each.gain:.3f}",
            str(each.trials),
        ]
        for each in effects(found.trials)
    )
    return "\n".join(
        (
            f"<h2>{html.escape(found.kernel.name)}</h2><p>{html.escape(settings)}: {_interval(found)}"
            f" <span class='rules'>{found.kernel.digest[:16]}</span></p>",
            curve(best_so_far(found.trials)),
            _table(("knob", "setting", "median gain", "trials"), varied),
            "<details><summary>Loop nest with the rules, and as tuned</summary>",
            f"<div class='nests'>{nests}</div></details>",
        )
    )


def _is_best(effect: Effect, settings: Settings) -> bool:
    return any(key == effect.knob and str(setting) == effect.setting for key, setting in settings)


def _interval(found: Tuned) -> str:
    if found.confirmed is None:
        return "the rules stay"
    return f"{found.gain:.3f} ({found.confirmed.low:.3f} to {found.confirmed.high:.3f})"


def _nest(kernel: TunableKernel, device: Device, settings: Settings) -> str:
    try:
        text = Space(kernel.program, device).kernel(settings).text
        return worker_pool(0).loop_nest(text, kernel.name)
    except HalideBackendError as error:
        return str(error)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', headings)}</tr>{body}</table>"
