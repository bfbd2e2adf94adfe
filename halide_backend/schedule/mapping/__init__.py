"""What is chosen from a program before its text is written: how its axes and values are laid on the machine."""

from __future__ import annotations
