"""`python -m halide_backend.tune.measurement.worker`: the server of measuring processes.

It imports torch and starts nothing: neither the threads of OpenMP nor CUDA would survive a fork.
"""

from __future__ import annotations

import warnings

from halide_backend.tune.measurement.measuring import Measuring
from halide_backend.workers.serving import serve


def main() -> None:
    """Serve contests."""
    warnings.simplefilter("ignore")
    serve(Measuring())


if __name__ == "__main__":
    main()
