"""`python -m halide_backend.opinfo.worker DEVICE`: the server of the workers that check operators."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from halide_backend.opinfo.case import Case
from halide_backend.opinfo.outcome import Outcome
from halide_backend.workers.serving import serve


def main() -> None:
    """Serve; see `crew.outcomes` for what DEVICE decides."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("HALIDE_BACKEND_COMPILE_WORKERS", "1")
    if sys.argv[1] == "cpu":
        _operators()
    serve(_check)


def _check(case: Case, report: Callable[[int], None]) -> Outcome:
    """The outcome; the number of each sample is reported before it runs."""
    operators = _operators()
    from halide_backend.opinfo.check import check, tidy

    report(-1)  # torch may only now have been imported
    outcome = check(operators[case.op], case, report)
    tidy()
    return replace(outcome, reasons=dict(outcome.reasons))


@cache
def _operators() -> dict[str, Any]:
    import torch
    import torch._inductor.compile_fx

    from halide_backend.opinfo import check, database

    del check
    configure()
    torch.set_num_threads(1)
    return database.operators()


def configure() -> None:
    """torch's settings: no cache but ours, no fallback that hides a missing lowering."""
    import torch._dynamo.guards
    import torch._functorch.config
    import torch._inductor.config as inductor

    import halide_backend

    del halide_backend
    inductor.fx_graph_cache = False
    inductor.implicit_fallbacks = False
    inductor.compile_threads = 1
    torch._functorch.config.enable_autograd_cache = False
    # Dynamo empties the processor's caches to time its own guards: 40 ms of each compilation.
    vars(torch._dynamo.guards)["profile_guard_manager"] = lambda *_: 0.0
    torch._dynamo.config.raise_on_unsafe_aot_autograd = True
    torch._dynamo.config.suppress_errors = False


if __name__ == "__main__":
    main()
