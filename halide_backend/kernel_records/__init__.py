"""What this process knows of each of its kernels, as values; statistics are sums of them. Imports no torch."""

from __future__ import annotations
