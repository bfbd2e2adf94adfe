"""What steps must keep for a kernel to be right, and to be compiled and run in bounded time: one module a concern."""

from __future__ import annotations
