"""What the machine that runs the tests can do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def has_target() -> Callable[[str], bool]:
    """Whether code for a target, "avx2" or "avx512", runs here."""
    capability = torch.backends.cpu.get_cpu_capability()
    return lambda target: target == "avx2" or capability == "AVX512"
