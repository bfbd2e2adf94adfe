"""Unsupported versions: one clear error, when the backend is used and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import pytest
from project import described

from halide_backend import versions
from halide_backend.errors import UnsupportedVersionError

Run = Callable[..., dict[str, Any]]

#: Replaces what importlib.metadata says about one distribution; before anything asks.
FAKE = """
import importlib.metadata as metadata
true_version = metadata.version
def version(name):
    if name == {name!r}:
        if {version!r} is None:
            raise metadata.PackageNotFoundError(name)
        return {version!r}
    return true_version(name)
metadata.version = version
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    versions.check_versions.cache_clear()
    yield
    versions.check_versions.cache_clear()


def test_installed_versions_are_supported() -> None:
    versions.check_versions()


def test_the_project_requires_what_the_code_accepts() -> None:
    required = described()["dependencies"]
    for name, (first, beyond) in versions.SUPPORTED.items():
        numbers = [".".join(map(str, n)).removesuffix(".0") for n in (first, beyond)]
        assert f"{name}>={numbers[0]},<{numbers[1]}" in required


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torch", "2.10.1"),
        ("torch", "2.16.0.dev20261101"),
        ("torch", "3.0.0"),
        ("halide", "20.0.0"),
        ("halide", "22.0.0"),
        ("llvmlite", "0.49.1"),
        ("llvmlite", "0.51.0"),
        ("halide", None),
        ("llvmlite", None),
        ("torch", "unknown"),
    ],
)
def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, version: str | None) -> None:
    def fake(distribution: str) -> str:
        if distribution != name:
            return {"torch": "2.13.0+cpu", "halide": "21.0.0", "llvmlite": "0.50.0"}[distribution]
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", fake)
    with pytest.raises(UnsupportedVersionError) as caught:
        versions.check_versions()
    message = str(caught.value)
    assert (f"{name} {version} is not supported" if version else f"{name} is not") in message
    assert f"pip install '{name}>=" in message
    # The refusal is not remembered: a corrected environment works.
    monkeypatch.undo()
    versions.check_versions()


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.15.1", "2.15.0a0+git123"])
def test_supported_torch_versions_are_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    present = {"torch": version, "halide": "21.0.0", "llvmlite": "0.50.0"}
    monkeypatch.setattr(metadata, "version", present.__getitem__)
    versions.check_versions()


@pytest.mark.parametrize(("name", "version"), [("torch", "2.16.0"), ("halide", "22.1.0"), ("llvmlite", None)])
def test_the_error_comes_with_use_and_only_then(run: Run, name: str, version: str | None) -> None:
    found = run(
        FAKE.format(name=name, version=version)
        + """
import torch, halide_backend, torch._inductor.compile_fx
from torch._inductor.codegen.common import get_scheduling_for_device
builtin = type(get_scheduling_for_device("cpu")(None)).__name__
def use(**how):
    torch._dynamo.reset()
    return failure(lambda: torch.compile(lambda x: x + 1, **how)(torch.ones(3)))
by_name = use(backend="halide_backend")
by_option = use(options={"cpu_backend": "halide_backend"})
torch._inductor.config.cpu_backend = "halide_backend"
report(errors=[by_name, by_option, use()], builtin=builtin)
"""
    )
    assert found["builtin"] == "CppScheduling"
    for _, kind, message in found["errors"]:
        assert kind == "UnsupportedVersionError"
        assert f"this backend needs {name}>=" in message and "What to do" in message
