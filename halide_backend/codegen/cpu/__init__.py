"""What kernel texts for a CPU have of their own."""

from __future__ import annotations
