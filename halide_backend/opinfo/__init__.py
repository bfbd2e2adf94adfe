"""Runs torch's operator database through `torch.compile` with this backend, against eager."""

from __future__ import annotations
