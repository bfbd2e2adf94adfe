"""`python -m halide_backend.opinfo.worker`: a line of JSON in for each operator, some lines out.

It lives until its input ends. An operator may abort this process or never return: whoever started
it sees to that.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import warnings
from dataclasses import replace
from typing import Any, TextIO

from halide_backend.opinfo.case import Case


def main() -> None:
    """Answer each case with {"sample": number} before each sample, then {"outcome": ...}."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever an operator prints belongs into the log.
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.simplefilter("ignore")
    os.environ.setdefault("HALIDE_BACKEND_COMPILE_WORKERS", "1")

    import torch

    from halide_backend.opinfo import database
    from halide_backend.opinfo.check import check, tidy

    configure()
    operators = database.operators()
    torch.set_num_threads(1)
    _say(answers, {"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        samples = asked["samples"]
        case = Case(**{**asked, "samples": None if samples is None else tuple(samples)})
        print(f"== {case} {case.backend}", file=sys.stderr, flush=True)
        outcome = check(operators[case.op], case, lambda number: _say(answers, {"sample": number}))
        tidy()
        if not gc.get_freeze_count():
            # What torch has imported stays; walking through it took 0.3 s after each case.
            gc.freeze()
        _say(answers, {"outcome": replace(outcome, reasons=dict(outcome.reasons)).to_json()})


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


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
