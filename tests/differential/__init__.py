"""Random torch programs, compiled by this backend and compared with eager.

    python -m tests.differential --programs 20000 --seed 1 --jobs 2 --record results.json
    python -m tests.differential --seed 17 --programs 1 --show        one program, with its source

Program number k of seed s is the program of seed s + k, whatever else runs.
"""

from __future__ import annotations
