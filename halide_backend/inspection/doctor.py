"""`halide-backend doctor`: checks an installation and says what to do about what is wrong."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict

from halide_backend.inspection import machine
from halide_backend.inspection.checks import FAIL, Check, all_checks


def run(as_json: bool) -> int:
    """Print every check, as text or as JSON; 1 when one of them failed, else 0."""
    checks = []
    for check in all_checks():
        checks.append(check)
        if not as_json:
            print(_report(check), flush=True)
    failed = [check.title for check in checks if check.state == FAIL]
    if as_json:
        found = {"machine": machine.facts(), "checks": [asdict(check) for check in checks]}
        print(json.dumps(found, indent=2))
    elif failed:
        print(f"\nNot ready: {', '.join(failed)}.")
    else:
        print("\nReady.")
    return 1 if failed else 0


def _report(check: Check) -> str:
    text = _line(check.state, check.title, check.finding)
    return f"{text}\n{_line('', '', f'What to do: {check.advice}')}" if check.advice else text


def _line(state: str, title: str, text: str) -> str:
    return textwrap.fill(
        text,
        width=110,
        initial_indent=f"{state:5}{title:29}",
        subsequent_indent=" " * 34,
        break_long_words=False,
        break_on_hyphens=False,
    )
