"""`python -m kernels_cache` is `kernels-cache`."""

from __future__ import annotations

import sys

from kernels_cache.cli import main

sys.exit(main())
