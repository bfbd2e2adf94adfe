"""Shows the user what is installed, what was compiled and why."""

from __future__ import annotations
