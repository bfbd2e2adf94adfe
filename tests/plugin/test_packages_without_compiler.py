"""Packages that are made with no compiler in reach, and loaded by a process that knows nothing of this package."""

from __future__ import annotations

import os
import shutil
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halide_backend import versions
from halide_backend.errors import PackageError
from halide_backend.packages.bytecode import library

Run = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="builds the library of such packages, once, with g++"),
    pytest.mark.skipif(not versions.loads_packages_of_bytecode(), reason="torch before 2.13: refused, see issue 18"),
]

#: A process from which no compiler can be started.
NO_COMPILER = {"PATH": "", "CXX": "/nowhere/g++"}
#: A process without this package.
STOCK = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

MODELS = """
import copy, torch
from torch import nn
torch.set_grad_enabled(False)
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)
        self.register_buffer("scale", torch.full((10,), 2.0))
    def forward(self, x, absent=None):
        hidden = nn.functional.gelu(self.norm(self.first(x)))
        return torch.softmax(self.second(hidden) * self.scale, -1), hidden.sum(0), self.scale
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(50, 32), nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    def forward(self, index):
        return self.layer(self.table(index))
class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
    def forward(self, x):
        pooled = nn.functional.max_pool2d(torch.relu(self.norm(self.convolution(x))), 2)
        return pooled, torch.topk(pooled.flatten(1), 3)[0], x[:, 1:].transpose(1, 2)
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(8, 8, batch_first=True)
    def forward(self, x):
        return self.cell(x)
class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(4))
    def forward(self, x, index):
        self.sum.add_(x.sum(0))
        x.mul_(2)
        return x[index] + self.sum, x
def made(kind):
    torch.manual_seed(0)
    return kind().eval()
def inputs(kind, n=8):
    torch.manual_seed(n)
    return {
        Layers: lambda: (torch.randn(n, 64), None), Attention: lambda: (torch.arange(14).view(2, 7),),
        Convolution: lambda: (torch.randn(2, 3, 8, 6),), Recurrent: lambda: (torch.randn(2, 3, 8),),
        Changing: lambda: (torch.randn(6, 4)[::2], torch.tensor([2, 0, -1])),
    }[kind]()
KINDS = (Layers, Attention, Convolution, Recurrent, Changing)
DYNAMIC = {"x": {0: torch.export.Dim("batch", min=2, max=100)}, "absent": None}
"""

CHECKS = """
def exact(model, given):
    # What the model computes in float64.
    wide = [g.double() if g is not None and g.is_floating_point() else g for g in given]
    return copy.deepcopy(model).double()(*wide), wide
def error(got, wanted):
    got, wanted = ([each] if isinstance(each, torch.Tensor) else each for each in (got, wanted))
    assert len(got) == len(wanted) and all(g.shape == w.shape for g, w in zip(got, wanted))
    return max(float((g - w).abs().max() / w.abs().max()) for g, w in zip(got, wanted))
"""


def script(*parts: str) -> str:
    return "".join(map(textwrap.dedent, parts))


@pytest.fixture(scope="module", autouse=True)
def built() -> Path:
    """The library, which a wheel would have, of these sources."""
    return library.library() if library.is_current() else library.build()


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_version", {"torch": "2.12.1"}.get)
    with pytest.raises(PackageError, match=r"2\.13 or newer"):
        library.library()


def test_packages_are_made_and_loaded_without_a_compiler(run: Run, tmp_path: Path) -> None:
    """Layers of several kinds; a size that changes, an input that is absent and one that is changed, views of views."""
    made = run(
        script(
            MODELS,
            """
        import halide_backend
        from halide_backend.packages.contents import contents
        found = {}
        for kind in KINDS:
            halide_backend.reset_stats()
            shapes = DYNAMIC if kind is Layers else None
            exported = torch.export.export(made(kind), inputs(kind), dynamic_shapes=shapes)
            halide_backend.package_without_compiler(exported, f"{kind.__name__}.pt2")
            (model,) = contents(f"{kind.__name__}.pt2").models
            stats = halide_backend.stats()
            found[kind.__name__] = [stats["native_kernels"], stats["delegated_kernels"], len(model.native), model.kind]
        report(found=found)
        """,
        ),
        **NO_COMPILER,
    )["found"]
    assert all(native >= noted > 0 == left and kind == "bytecode" for native, left, noted, kind in made.values()), made
    loaded = run(
        script(
            MODELS,
            CHECKS,
            """
        import sys
        errors, changed = {}, {}
        for kind in KINDS:
            loaded, model = torch._inductor.aoti_load_package(f"{kind.__name__}.pt2"), made(kind)
            for n in (2, 8, 99) if kind is Layers else (8, 9):
                given = inputs(kind, n)
                wanted, after = exact(model, given)
                if kind is Changing and n == 9:  # the second call of the model, which has a state
                    first = inputs(kind, 8)[0].double()
                    wanted = (wanted[0] + first.sum(0), wanted[1])
                errors[f"{kind.__name__} {n}"] = error(loaded(*given), wanted)
                if kind is Changing:
                    changed[n] = error(given[0], after[0])
        report(errors=errors, changed=changed, ours=[name for name in sys.modules if name.startswith("halide")])
        """,
        ),
        package=tmp_path,
        **STOCK,
        **NO_COMPILER,
    )
    assert loaded["ours"] == []
    assert len(loaded["errors"]) == 11 and max(loaded["errors"].values()) < 2e-6, loaded["errors"]
    assert len(loaded["changed"]) == 2 and max(loaded["changed"].values()) < 1e-6


def test_weights_change_wrong_inputs_are_errors_and_packages_are_unloaded(run: Run, tmp_path: Path) -> None:
    run(
        script(
            MODELS,
            """
        import halide_backend
        halide_backend.package_without_compiler(torch.export.export(made(Layers), inputs(Layers)), "model.pt2")
        """,
        ),
        **NO_COMPILER,
    )
    found = run(
        script(
            MODELS,
            CHECKS,
            """
        import gc, threading
        from torch._inductor.package import load_package
        def mapped():
            gc.collect()
            # The library itself stays as long as a thread that ran it: torch's text of the last error is thread-local.
            return sum("model.kernels" in line or "model.weights" in line for line in open("/proc/self/maps"))
        x, absent = inputs(Layers)
        first, second = (torch._inductor.aoti_load_package("model.pt2") for _ in range(2))
        other = made(Layers)
        for parameter in other.parameters():
            parameter.mul_(0.5)
        first.load_constants(other.state_dict(), check_full_update=True)
        errors = [error(first(x), exact(other, (x, absent))[0]), error(second(x), exact(made(Layers), (x, absent))[0])]
        # A result is the caller's, though it be one of the model's constants.
        first(x)[2].zero_()
        errors.append(error(first(x), exact(other, (x, absent))[0]))
        wrong = [torch.randn(7, 64), torch.randn(8, 63), torch.randn(8), torch.randn(8, 64).double(),
                 torch.randn(64, 8).t(), torch.zeros(8, 64, dtype=torch.int64)]
        refusals = [failure(lambda: second(each))[1] for each in wrong]
        refusals.append(failure(lambda: second())[1])
        errors.append(error(second(x), exact(made(Layers), (x, absent))[0]))
        several, wanted = load_package("model.pt2", num_runners=4), exact(made(Layers), (x, absent))[0]
        def work():
            for _ in range(50):
                errors.append(error(several(x), wanted))
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        del several
        before = mapped()
        waiting = threading.Event()
        thread = threading.Thread(target=lambda: (second(x), waiting.wait()))
        thread.start()
        for _ in range(20):
            errors.append(error(torch._inductor.aoti_load_package("model.pt2")(x), wanted))
        while_two = mapped()
        waiting.set()
        thread.join()
        del first, second, thread
        report(errors=[len(errors), max(errors)], refusals=refusals, maps=[before, while_two, mapped()])
        """,
        ),
        package=tmp_path,
        **STOCK,
    )
    assert found["errors"][0] == 224 and found["errors"][1] < 2e-6
    assert found["refusals"] == ["RuntimeError"] * 7
    assert found["maps"][0] == found["maps"][1] > 0 == found["maps"][2]
    assert "outdated" not in found["log"], found["log"]
    for message in (
        "input 'x' has sizes (7, 64), not (8, 64)",
        "input 'x' has sizes (8), not (8, 64)",
        "input 'x' has another dtype than float32",
        "input 'x' has strides (1, 8), not (64, 1)",
    ):
        assert f"halide_backend: {message}" in found["log"], found["log"]


def test_what_such_a_package_cannot_have_is_an_error_that_says_so(run: Run) -> None:
    found = run(
        script(
            MODELS,
            """
        import os
        import halide_backend
        from halide_backend.capture.scheduling import HalideScheduling
        from halide_backend.errors import HalideBackendError, Unsupported
        from halide_backend.packages.bytecode import library
        @torch.library.custom_op("test::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        twice.register_fake(torch.empty_like)
        class Function(nn.Module):
            def __init__(self, function):
                super().__init__()
                self.function = function
            def forward(self, *given):
                return self.function(*given)
        x = torch.randn(4, 4)
        def refusal(function, *given, path="model.pt2"):
            open("model.pt2", "w").write("the old one")
            exported = torch.export.export(Function(function), given or (x,))
            try:
                halide_backend.package_without_compiler(exported, path)
            except HalideBackendError as error:
                assert open("model.pt2").read() == "the old one" and os.listdir(".").count("model.unfinished.pt2") == 0
                return [type(error).__name__, str(error)]
            return ["", ""]
        found = {
            "control flow": refusal(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))),
            "operator test.twice.default": refusal(lambda x: twice(x) + 1),
            "input 'given_1' is no tensor": refusal(lambda x, n: x * n, x, 2.5),
            "None is an argument or result": refusal(lambda x: (x + 1, None)),
            "a view of torch.float32 as torch.int32": refusal(lambda x: x.view(torch.int32)),
            "its name, or the name of a package ends with .pt2": refusal(lambda x: x + 1, path="model.so"),
        }
        with halide_backend.config.patch(aot_targets="avx2,avx512"):
            found["cpp.march"] = refusal(lambda x: x + 1)
        with halide_backend.config.patch(aot_targets="arm64"):
            found["arm64"] = refusal(lambda x: x + 1)
        def unsupported(self, nodes):
            raise Unsupported("not-a-loop-node", "a test")
        codegen, HalideScheduling._codegen = HalideScheduling._codegen, unsupported
        found["a test"] = refusal(lambda x: x + 1)
        HalideScheduling._codegen = codegen
        path, library._path = library._path, lambda: path().with_name("model-torch9.9.so")
        found["Build it once, with g++"] = refusal(lambda x: x + 1)
        report(found=found)
        """,
        ),
        **NO_COMPILER,
    )["found"]
    for said, (kind, message) in found.items():
        assert kind and said.split(", or ")[-1] in message, (said, kind, message)
        assert "What to do: " in message or said == "a test", message
    kinds = {said: kind for said, (kind, _) in found.items()}
    expected = dict.fromkeys(kinds, "PackageError")
    assert kinds == {**expected, "a test": "Unsupported", "cpp.march": "TargetError", "arm64": "TargetError"}


def test_a_damaged_package_or_an_unsuitable_processor_is_an_exception(run: Run, tmp_path: Path) -> None:
    run(
        script(
            MODELS,
            """
        import halide_backend
        from halide_backend.packages.bytecode import make
        exported = torch.export.export(made(Layers), inputs(Layers))
        halide_backend.package_without_compiler(exported, "good.pt2")
        # CPUID never shows this bit.
        make.features = lambda target: (("made-up", (0x80000001, 0, 2, 31, 0)),)
        halide_backend.package_without_compiler(exported, "processor.pt2")
        """,
        ),
        **NO_COMPILER,
    )
    changes: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
        "short": ("model.bytecode", lambda data: data[: len(data) // 2]),
        "empty": ("model.bytecode", lambda data: b""),
        "version": (
            "model.bytecode",
            lambda data: data.replace(b"halide_backend bytecode\1", b"halide_backend bytecode\2"),
        ),
        "function": (
            "model.bytecode",
            lambda data: data.replace(b"aoti_torch_cpu_addmm_out", b"aoti_torch_cpu_addmm_0ut"),
        ),
        "instruction": ("model.bytecode", lambda data: data.replace(b"KERNEL", b"KERNAL")),
        "kernels": ("model.kernels", lambda data: data[:64]),
        "weights": ("model.weights", lambda data: data[:-64]),
    }
    for name, (file, change) in changes.items():
        rewrite(tmp_path / "good.pt2", tmp_path / f"{name}.pt2", file, change)
    names = ["processor", *changes]
    found = run(
        f"""
        import torch
        found = {{name: failure(lambda: torch._inductor.aoti_load_package(f"{{name}}.pt2"))[1] for name in {names!r}}}
        good = torch._inductor.aoti_load_package("good.pt2")(torch.ones(8, 64), None)
        report(found=found, good=len(good))
        """,
        package=tmp_path,
        **STOCK,
    )
    assert found["found"] == dict.fromkeys(names, "RuntimeError") and found["good"] == 3
    for message in (
        "this processor cannot run the kernels of this model; it lacks made-up",
        "the bytecode of this package is damaged",
        "the bytecode of this package is of another version than its library",
        "this library does not know the function aoti_torch_cpu_addmm_0ut of torch",
        "the bytecode of this package has an unknown instruction KERNAL",
        "a file of this package is damaged",
    ):
        assert f"halide_backend: {message}" in found["log"], found["log"]


def rewrite(package: Path, to: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Copy a package with one of its files changed."""
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(to, "w") as new:
        changed = 0
        for info in old.infolist():
            data = old.read(info)
            if os.path.basename(info.filename) == name:
                changed += change(data) != data
                data = change(data)
            new.writestr(info.filename, data)
    assert changed == 1
