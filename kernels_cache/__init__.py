"""Artifacts of compiled kernels on disk: content-addressed, verified, bounded, shared safely.

A cache entry is machine code: whoever can write it runs code as you. docs/design/kernels-cache.md
says what this package promises about that. It needs neither torch nor halide.
"""

from __future__ import annotations

from kernels_cache.compatibility import Refusal
from kernels_cache.entry import Entry
from kernels_cache.errors import (
    BundleRefused,
    CacheError,
    CacheMisuse,
    CacheTrouble,
    CacheWarning,
    EntryDamaged,
    EntryTooLarge,
    InvalidEntry,
    InvalidKey,
    LockTimeout,
    RootUntrusted,
    StorageTrouble,
)
from kernels_cache.key import Key
from kernels_cache.statistics import Statistics
from kernels_cache.store import Miss, Store

__version__ = "0.1.0"

__all__ = [
    "BundleRefused",
    "CacheError",
    "CacheMisuse",
    "CacheTrouble",
    "CacheWarning",
    "Entry",
    "EntryDamaged",
    "EntryTooLarge",
    "InvalidEntry",
    "InvalidKey",
    "Key",
    "LockTimeout",
    "Miss",
    "Refusal",
    "RootUntrusted",
    "Statistics",
    "StorageTrouble",
    "Store",
    "__version__",
]
