"""From a kernel's text to machine code in this process: workers, objects, cache, loader.

Nothing in this package imports torch; only `compiler`, which runs in workers, imports halide.
"""

from __future__ import annotations
