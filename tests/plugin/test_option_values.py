"""`halide_backend.config`: names, values, environment, and torch's own ways to use it."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import pytest
import torch

import halide_backend
from halide_backend import config
from halide_backend.errors import HalideBackendError, UnknownOptionError
from halide_backend.options import OPTIONS, Option, option

NAMES = [option.name for option in OPTIONS]


@pytest.mark.parametrize("described", OPTIONS, ids=NAMES)
def test_every_option_is_declared_as_described(described: Option) -> None:
    value = getattr(config, described.name)
    assert type(value) is described.type
    assert config.get_type(described.name) is described.type
    assert inspect.get_annotations(config)[described.name].partition("[")[0] == described.type.__name__
    assert described.meaning.endswith(".") and len(described.meaning) > 20
    assert described.check(described.default) == described.default
    assert described.name in dir(config)


def test_the_module_holds_options_and_nothing_else() -> None:
    assert sorted(config.get_config_copy()) == sorted(NAMES)
    assert [name for name in dir(config) if not name.startswith("_")] == sorted(NAMES)
    assert halide_backend.config is config


def test_no_option_has_a_name_of_inductors() -> None:
    """torch.compile(backend="halide_backend", options=...) takes both sets."""
    assert not set(NAMES) & set(torch._inductor.config.get_config_copy())


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownOptionError) as caught:
        config.compile_wrokers = 3  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "halide_backend.config: there is no option 'compile_wrokers'\n  What to do: Did you mean 'compile_workers'?"
    )
    with pytest.raises(UnknownOptionError, match="Did you mean 'target'"):
        _ = config.targt  # type: ignore[attr-defined]
    with pytest.raises(UnknownOptionError, match="'delegate'"), config.patch(delegates=False):
        pass
    with pytest.raises(UnknownOptionError, match="The options of halide_backend are"):
        config.zzzz = 1  # type: ignore[attr-defined]
    assert not hasattr(config, "compile_wrokers")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("compile_workers", "3", "must be of type int"),
        ("compile_workers", True, "must be of type int"),
        ("compile_workers", -1, "must be at least 0"),
        ("compile_time_limit", 0.0, "must be at least 0.1"),
        ("compile_time_limit", float("nan"), "must be at least 0.1"),
        ("compile_time_limit", float("inf"), "must be finite"),
        ("compile_time_limit", None, "must be of type float"),
        ("compile_memory_limit_mb", 4096.0, "must be of type int"),
        ("target", "avx3", "must be one of '', 'sse41', 'avx2', 'avx512'"),
        ("delegate", 1, "must be of type bool"),
        ("schedule_files", "a.toml", "must be of type tuple"),
        ("schedule_files", ("a.toml", 3), "must hold texts alone"),
        ("tune", "always", "must be one of 'use', 'never'"),
        ("tune_seconds", -1.0, "must be at least 0"),
    ],
)
def test_a_wrong_value_is_refused_and_changes_nothing(name: str, value: Any, message: str) -> None:
    before = getattr(config, name)
    with pytest.raises(HalideBackendError, match=message) as caught:
        setattr(config, name, value)
    assert caught.value.where == f"halide_backend.config.{name}"
    assert repr(option(name).default) in caught.value.cure
    with pytest.raises(HalideBackendError, match=message), config.patch({name: value}):
        pass
    assert getattr(config, name) == before


def test_values_can_be_patched_set_and_restored() -> None:
    with config.patch(compile_time_limit=5, delegate=False):
        assert config.compile_time_limit == 5.0 and type(config.compile_time_limit) is float
        assert config.delegate is False
        with config.patch({"compile_time_limit": 7.0}):
            assert config.compile_time_limit == 7.0
        assert config.compile_time_limit == 5.0
    with mock.patch.object(config, "compile_workers", 3):
        assert config.compile_workers == 3
    assert config.get_config_copy() == {option.name: option.initial() for option in OPTIONS}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("compile_workers", "3", 3),
        ("compile_time_limit", "2.5", 2.5),
        ("compile_time_limit", " 10 ", 10.0),
        ("target", "avx2", "avx2"),
        ("delegate", "0", False),
        ("delegate", "TRUE", True),
        ("schedule_files", "a.toml:b.toml", ("a.toml", "b.toml")),
        ("schedule_files", "", ()),
    ],
)
def test_the_environment_sets_the_initial_value(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any
) -> None:
    monkeypatch.setenv(f"HALIDE_BACKEND_{name.upper()}", text)
    initial = option(name).initial()
    assert initial == value and type(initial) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compile_workers", "many"),
        ("compile_workers", "-2"),
        ("compile_time_limit", ""),
        ("target", "host"),
        ("delegate", "perhaps"),
    ],
)
def test_an_unreadable_environment_variable_is_reported_and_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    monkeypatch.setenv(f"HALIDE_BACKEND_{name.upper()}", text)
    assert option(name).initial() == option(name).default
    [record] = caplog.records
    assert f"HALIDE_BACKEND_{name.upper()}={text!r} is ignored" in record.getMessage()


def test_the_environment_reaches_the_configuration(run: Any) -> None:
    found = run(
        "from halide_backend import config; report(**config.get_config_copy())",
        HALIDE_BACKEND_COMPILE_WORKERS="5",
        HALIDE_BACKEND_TARGET="nonsense",
    )
    assert found["compile_workers"] == 5 and found["target"] == ""
    assert "HALIDE_BACKEND_TARGET='nonsense' is ignored" in found["log"]
