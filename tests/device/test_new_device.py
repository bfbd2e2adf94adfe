"""A device that Inductor does not know, compiled for by this backend: the example of docs/, and what it can do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from halide_backend.device_type import CPU, CUDA, device_type, find_device_type
from halide_backend.errors import DeviceError

ROOT = Path(__file__).parents[2]


def started(session: str, caches: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A session of this folder: torch has one device of this kind a process, and for ever."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH", "HALIDE_BACK"))}
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name(session)), *arguments],
        capture_output=True,
        text=True,
        env={
            **kept,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "docs/examples")]),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "HALIDE_BACKEND_CACHE_DIR": str(caches / "kernels"),
        },
        timeout=900,
        check=False,
    )


def run(session: str, caches: Path) -> dict[str, Any]:
    """What a session reports."""
    done = started(session, caches)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run("device_session.py", tmp_path_factory.mktemp("session"))


@pytest.fixture(scope="module")
def enclosed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    caches = tmp_path_factory.mktemp("enclosed")
    return [run("enclosed_session.py", caches) for _ in range(2)]


#: Operators of a case that run in eager mode, as Inductor has them run on every device.
EAGER = {
    "pointwise": set(),
    "softmax": set(),
    "transposed sums": set(),
    "pointwise of another shape": set(),
    "made on the device": set(),
    "scalar of the CPU": set(),
    "layer norm": set(),
    "dynamic sizes": set(),
    "block": {"aten.addmm.out", "aten.bmm.out", "aten.mm.out", "aten.fill_.Scalar"},
    "AdamW": set(),
}


@pytest.mark.parametrize("case", EAGER)
def test_what_is_compiled_has_the_values_of_the_cpu(session: dict[str, Any], case: str) -> None:
    found = session["cases"][case]
    assert found["difference"] == ""
    assert found["native_kernels"] > 0 and found["delegation_reasons"] == {}
    assert set(found["eager"]) == EAGER[case]


def test_the_example_trains_as_the_cpu_does(session: dict[str, Any]) -> None:
    """Adam divides by the root of moments that are as small as rounding at first, so that steps are only close."""
    losses, kernels, operators = session["example"].splitlines()
    assert float(losses.rpartition(" ")[2]) < 1e-4
    native, delegated = map(int, re.findall(r"\d+", kernels))
    assert native > 0 and delegated == 0
    assert {"aten.addmm.out", "aten.mm.out"} <= set(operators.split())


def test_dynamic_sizes_have_one_kernel(session: dict[str, Any]) -> None:
    assert session["cases"]["dynamic sizes"]["native_kernels"] == 1


def test_what_is_left_to_the_cpp_backend_has_the_values_of_the_cpu(session: dict[str, Any]) -> None:
    found = session["delegated"]
    assert found["difference"] == ""
    assert (found["native_kernels"], set(found["delegation_reasons"])) == (0, {"unknown-operation"})


def test_devices_are_listed_and_part_of_the_cache_key(session: dict[str, Any]) -> None:
    assert session["devices"] == ["cpu", "cuda", "demo"]
    assert session["doctor"] == "cpu, cuda, demo (registered, for host)"
    assert session["key"] == "demo host cpp"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("other values", "the name is taken: DeviceType(name='demo', target='host', delegate='cpp'"),
        ("cpu", "the name is taken: it is a device of torch's own"),
        ("xpu", "the name is taken: it is a device of torch's own"),
        ("unknown", "torch knows no device of this name"),
        ("target", "'gpu' is no target of a device"),
        ("delegate", "'triton' is no backend to delegate to"),
        ("not callable", "around_launch is 'guard', which cannot be called"),
        ("unguarded", "kernels of Inductor's cpp backend are launched without around_launch"),
        ("cpp_wrapper", "Inductor's C++ wrapper"),
    ],
)
def test_a_refusal_says_what_where_and_what_to_do(session: dict[str, Any], call: str, what: str) -> None:
    kind, message = session["refusals"][call]
    name = {"cpu": "cpu", "xpu": "xpu", "unknown": "dome"}.get(call, "demo")
    assert kind == "DeviceError"
    assert message.startswith(f"device {name!r}: {what}")
    assert "\n  What to do: " in message


def test_registering_again_with_the_same_values_changes_nothing(session: dict[str, Any]) -> None:
    assert session["refusals"]["same again"] == ["", ""]


def test_nothing_is_registered_before_the_device_has_its_name(session: dict[str, Any]) -> None:
    kind, message = session["before"]
    assert kind == "DeviceError"
    assert "PrivateUse1 has no name of its own yet" in message
    assert "torch.utils.rename_privateuse1_backend('demo')" in message


def test_without_delegation_what_cannot_be_compiled_is_an_error(session: dict[str, Any]) -> None:
    assert session["refusals"]["not delegated"][0] == "Unsupported"


def test_each_launch_is_enclosed_here_and_from_the_cache(enclosed: list[dict[str, Any]]) -> None:
    launch = ["enter Tensor Tensor", "leave"]
    assert [report["hits"] for report in enclosed] == [0, 1]
    for report in enclosed:
        assert report["events"] == launch * 2
        assert report["difference"] < 1e-6


def test_kernels_are_for_the_target_of_the_device(enclosed: list[dict[str, Any]]) -> None:
    for report in enclosed:
        assert set(report["targets"]) == {"x86-64-v2"}
        assert report["key"] == "demo sse41 None"


def test_what_the_vendor_registered_stays_and_what_is_given_is_used(enclosed: list[dict[str, Any]]) -> None:
    assert all(report["kept"] and report["given"] for report in enclosed)


def test_a_device_of_another_backend_is_taken(enclosed: list[dict[str, Any]]) -> None:
    assert all(report["taken"].startswith("the name is taken: Inductor has another backend") for report in enclosed)


@pytest.mark.long
@pytest.mark.skipif(not find_spec("torch_openreg"), reason="torch_openreg, PyTorch's own test device, is not installed")
def test_the_device_of_pytorchs_own_tests(tmp_path: Path) -> None:
    """Its memory is closed to the processor: a launch that is not enclosed ends the process."""
    for case, found in run("openreg_session.py", tmp_path).items():
        assert found["error"] < 2e-6, case
        assert found["native"] > 0 and found["delegated"] == 0, case
    assert started("openreg_session.py", tmp_path, "closed").returncode == -signal.SIGSEGV


def test_a_device_type_is_found_by_name_and_index() -> None:
    assert device_type("cpu") is CPU and device_type("cuda:1") is CUDA
    assert (CPU.memory, CPU.on_host, CUDA.memory, CUDA.on_host) == ("cpu", True, "cuda", False)
    assert find_device_type("nobody") is None
    with pytest.raises(DeviceError, match="nobody registered the device"):
        device_type("nobody:0")
