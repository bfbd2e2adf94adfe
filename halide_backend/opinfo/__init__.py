"""Runs torch's own operator database through `torch.compile` with this backend and compares with eager."""

from __future__ import annotations
