from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """The truth is torch's: its thread pool would only wait here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests of this folder run only when a -m expression asks for them."""
    if config.option.markexpr:
        return
    here = Path(__file__).parent
    long = [i for i in items if i.get_closest_marker("long") and here in i.path.parents]
    config.hook.pytest_deselected(items=long)
    items[:] = [i for i in items if i not in long]
