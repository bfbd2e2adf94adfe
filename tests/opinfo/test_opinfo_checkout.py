"""--pytorch-checkout: a test file of the shape of torch's, run range by range."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halide_backend.errors import HalideBackendError
from halide_backend.opinfo import run as runner
from halide_backend.opinfo.case import Request
from halide_backend.opinfo.torch_test import TEST, read

#: Stands for torch's file: the same environment, names of tests and report.
PRETENDED = """
import os, unittest
import torch
from torch.testing._internal.common_methods_invocations import op_db

first, last = (int(os.environ["PYTORCH_TEST_RANGE_" + end]) for end in ("START", "END"))


class TestInductorOpInfoCPU(unittest.TestCase):
    pass


for info in op_db[first:last]:
    def test(self, info=info):
        if info.name == "cos":
            self.fail("a difference")
        if info.name == "tan":
            os.abort()
        x = torch.rand(37)
        compiled = torch.compile(lambda x: info.op(x))(x)
        torch.testing.assert_close(compiled, info.op(x))

    name = f"test_comprehensive_{info.formatted_name}_cpu_float32"
    test.__name__ = test.__qualname__ = name
    setattr(TestInductorOpInfoCPU, name, test)

unittest.main(verbosity=2)
"""


def test_the_file_runs_with_this_backend(tmp_path: Path) -> None:
    (tmp_path / TEST).parent.mkdir(parents=True)
    (tmp_path / TEST).write_text(PRETENDED)
    output = tmp_path / "results.json"
    request = Request(ops=("sin", "cos", "tan"), checkout=str(tmp_path), output=str(output), jobs=2)
    assert runner.run(request) == 1
    found = {item["op"]: item for item in json.loads(output.read_text())["outcomes"]}
    assert found["sin"]["status"] == "passed" and found["sin"]["native"] == 1
    assert found["cos"]["status"] == "failed"
    assert found["cos"]["failures"][0]["error"] == "AssertionError: a difference"
    assert found["tan"]["status"] == "crashed"


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HalideBackendError, match="test_torchinductor_opinfo"):
        runner.run(Request(checkout=str(tmp_path)))


def test_a_file_that_cannot_be_imported_is_no_success() -> None:
    (found,) = read("Traceback (most recent call last):\nImportError: no name x", "exit code 1", "all")
    assert found.status == "failed" and "no name x" in found.failures[0].error


def test_expected_failures_and_skips_of_the_file_are_understood() -> None:
    report = """\
test_comprehensive_T_cpu_bool (__main__.TestInductorOpInfoCPU.test_comprehensive_T_cpu_bool) ... ok
test_comprehensive_nn_functional_gelu_cpu_float16 (__main__.X) ... /a/b.py:365: Warning: old
  warnings.warn(
expected failure
test_comprehensive_nn_functional_gelu_cpu_float32 (__main__.X) ... skipped 'flaky'
test_comprehensive_nn_functional_gelu_cpu_float64 (__main__.X) ... unexpected success

----------------------------------------------------------------------
Ran 4 tests in 1.0s

FAILED (unexpected successes=1)
"""
    found = [(item.op, item.dtype, item.status) for item in read(report, "exit code 1", "all")]
    assert found == [
        ("T", "bool", "passed"),
        ("nn_functional_gelu", "float16", "passed"),
        ("nn_functional_gelu", "float32", "not run"),
        ("nn_functional_gelu", "float64", "failed"),
    ]
