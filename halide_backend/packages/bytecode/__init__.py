"""Packages that are made without a compiler: a model as bytecode, which a library that is built beforehand executes."""

from __future__ import annotations
