"""Programs and their mappings to kernel text: the readable Python module that a worker executes."""

from __future__ import annotations
