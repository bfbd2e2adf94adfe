"""`import torch` with the package installed: cheap, harmless, and enough to select the backend."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halide_backend import autoload

Run = Callable[..., dict[str, Any]]

#: Most that `import torch` may become slower, in milliseconds.
LIMIT = 5.0


def test_import_torch_imports_nothing_but_the_hook(run: Run) -> None:
    found = run("""
        import sys, torch
        ours = sorted(name for name in sys.modules if name.startswith(("halide", "kernels_cache")))
        finders = [type(finder).__module__ for finder in sys.meta_path]
        report(ours=ours, inductor="torch._inductor" in sys.modules, finders=finders)
    """)
    assert found["ours"] == ["halide_backend", "halide_backend.autoload"]
    assert not found["inductor"]
    assert found["finders"].count("halide_backend.autoload") == 1
    assert found["log"] == ""


def test_import_torch_gets_hardly_slower(run: Run) -> None:
    script = """
        import time, torch
        from importlib.metadata import entry_points
        entry, = [e for e in entry_points(group="torch.backends") if e.name == "halide_backend"]
        # Time of this thread, not of the clock: other processes shall not fail this test.
        start = time.thread_time()
        entry.load()()
        report(milliseconds=1e3 * (time.thread_time() - start))
    """
    costs = [run(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0")["milliseconds"] for _ in range(3)]
    print(f"\nimport torch gets {min(costs):.2f} ms slower (limit {LIMIT} ms)")
    assert min(costs) < LIMIT


def test_compiling_for_a_cpu_imports_what_is_for_a_gpu_no_more_than_the_cache_key_needs(run: Run) -> None:
    found = run("""
        import sys, torch
        import halide_backend
        compiled = torch.compile(lambda x: x.sin().sum(-1), options={"cpu_backend": "halide_backend"})
        compiled(torch.rand(64, 64))
        parts = ("halide_backend.schedule.cuda", "halide_backend.codegen.cuda", "halide_backend.build.ptx.")
        ours = sorted(name for name in sys.modules if name.startswith(parts))
        rules = "halide_backend.schedule.cpu.rows" in sys.modules
        report(ours=ours, kernels=halide_backend.stats()["native_kernels"], rules=rules)
    """)
    assert found["ours"] == ["halide_backend.build.ptx.ptxas"]
    assert (found["kernels"], found["rules"]) == (1, True)


def test_inductor_registers_the_backend_and_the_hook_is_gone(run: Run) -> None:
    found = run("""
        import importlib.machinery, sys, torch, torch._inductor.compile_fx as module
        from torch._inductor.codegen.common import get_scheduling_for_device
        report(
            loaders=[type(module.__loader__).__name__, type(module.__spec__.loader).__name__],
            finders=[type(finder).__module__ for finder in sys.meta_path],
            devices=[type(get_scheduling_for_device(d)).__name__ for d in ("cpu", "cuda", "mps")],
        )
    """)
    assert found["loaders"] == ["SourceFileLoader"] * 2
    assert "halide_backend.autoload" not in found["finders"]
    assert found["devices"][:2] == ["SchedulingChoice"] * 2
    assert found["devices"][2] != "SchedulingChoice"


def test_a_device_is_registered_without_inductor_which_hears_of_it_when_it_is_imported(run: Run) -> None:
    found = run("""
        import sys, torch, halide_backend
        torch.utils.rename_privateuse1_backend("mine")
        halide_backend.register_device("mine")
        report(before="torch._inductor" in sys.modules)
        import torch._inductor.compile_fx
        from torch._dynamo.device_interface import get_interface_for_device
        from torch._inductor.codegen.common import get_scheduling_for_device
        names = [get_scheduling_for_device("mine").__name__, get_interface_for_device("mine").__name__]
        report(after=names)
    """)
    assert not found["before"]
    assert found["after"] == ["RegisteredScheduling", "HostInterface"]


def test_whatever_module_of_inductor_comes_first(run: Run) -> None:
    """Those that import the trigger are half imported themselves when the backend registers."""
    found = run("""
        import importlib, os, sys, torch
        names = [
            "codegen.cpp", "compile_fx", "compile_fx_ext", "compile_fx_subproc", "cudagraph_trees",
            "freezing", "fx_passes.binary_folding", "fx_passes.freezing_patterns",
            "fx_passes.mkldnn_fusion", "fx_passes.quantization", "standalone_compile",
        ]
        results = {}
        for name in names:
            if os.fork() == 0:
                importlib.import_module(f"torch._inductor.{name}")
                loaded = "torch._inductor.compile_fx" in sys.modules
                common = sys.modules.get("torch._inductor.codegen.common")
                registered = "halide_backend" in getattr(common, "device_codegens", ())
                os._exit(10 + 2 * loaded + registered)
            results[name] = os.waitstatus_to_exitcode(os.wait()[1])
        report(results=results)
    """)
    assert set(found["results"].values()) <= {10, 13}
    assert sum(code == 13 for code in found["results"].values()) >= 9
    assert found["log"] == ""


@pytest.mark.parametrize("first", ["halide_backend", "torch", "torch._inductor.compile_fx"])
def test_without_autoload_one_import_is_enough(run: Run, first: str) -> None:
    found = run(
        f"""
        import {first}, halide_backend, torch._inductor.compile_fx
        from torch._inductor.codegen.common import get_scheduling_for_device
        report(cpu=type(get_scheduling_for_device("cpu")).__name__)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert found["cpu"] == "SchedulingChoice"


def test_importing_the_package_imports_neither_torch_nor_halide(run: Run) -> None:
    found = run("""
        import sys, halide_backend
        halide_backend.stats(), halide_backend.reset_stats()
        report(heavy=[n for n in ("torch", "halide", "numpy", "llvmlite") if n in sys.modules])
    """)
    assert found["heavy"] == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"plugin": "raise RuntimeError('broken plugin')"}, id="plugin raises"),
        pytest.param({"plugin": "def register(: pass"}, id="plugin is no Python"),
        pytest.param({"errors": "import does_not_exist"}, id="import is missing"),
    ],
)
def test_a_broken_package_leaves_torch_as_it_is(run: Run, copied: Callable[..., Path], broken: dict[str, str]) -> None:
    found = run(
        """
        import torch
        import torch._inductor.compile_fx
        from torch._inductor.codegen.common import get_scheduling_for_device
        from torch._inductor.codegen.common import init_backend_registration
        init_backend_registration()
        report(cpu=type(get_scheduling_for_device("cpu")(None)).__name__)
        """,
        package=copied(**broken),
        flags=("-W", "error::UserWarning"),
    )
    assert found["cpu"] == "CppScheduling"
    assert found["log"].count("halide_backend is not available to torch.compile") == 1
    assert "What to do" in found["log"]


def test_an_error_while_installing_leaves_import_torch_working(run: Run, copied: Callable[..., Path]) -> None:
    source = Path(autoload.__file__).read_text()
    broken = source.replace("sys.meta_path.insert(0, _Finder())", "raise OSError('no finder')")
    assert broken != source
    found = run("import torch; report(one=float(torch.ones(1)))", package=copied(autoload=broken))
    assert found["one"] == 1
    assert "OSError: no finder" in found["log"]


# The hook itself, on a small module in the place of Inductor's.


class Hook:
    """A stand-in for the trigger, and how often registering was asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.registered = 0

    def register(self) -> None:
        self.registered += 1


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    hook = Hook("halide_backend_test_trigger")
    monkeypatch.setattr(autoload, "TRIGGER", hook.name)
    monkeypatch.setattr(autoload, "_register", hook.register)
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, autoload._Finder)])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{hook.name}.py").write_text("import time; time.sleep(0.05); loader = __loader__")
    yield hook
    sys.modules.pop(hook.name, None)


def armed() -> bool:
    return any(isinstance(finder, autoload._Finder) for finder in sys.meta_path)


def test_registers_after_the_import_and_leaves_no_trace(hook: Hook) -> None:
    autoload.install()
    autoload.install()
    before = sys.meta_path
    module = importlib.import_module(hook.name)
    assert hook.registered == 1
    assert not armed()
    assert sys.meta_path == before[1:]
    assert type(module.loader).__name__ == "SourceFileLoader"
    assert module.__loader__ is module.__spec__.loader is module.loader  # type: ignore[union-attr]


def test_looking_for_the_module_does_not_import_it(hook: Hook, tmp_path: Path) -> None:
    autoload.install()
    spec = importlib.util.find_spec(hook.name)
    assert spec is not None and spec.origin == str(tmp_path / f"{hook.name}.py")
    assert "time.sleep" in spec.loader.get_source(hook.name)  # type: ignore[union-attr]
    assert hook.registered == 0 and armed()
    importlib.import_module(hook.name)
    assert hook.registered == 1


def test_a_private_copy_of_the_module_does_not_count(hook: Hook) -> None:
    autoload.install()
    spec = importlib.util.find_spec(hook.name)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert hook.registered == 0 and armed()


def test_a_failed_import_is_waited_out(hook: Hook, tmp_path: Path) -> None:
    source = tmp_path / f"{hook.name}.py"
    source.write_text("raise ValueError('not yet')")
    autoload.install()
    with pytest.raises(ValueError, match="not yet"):
        importlib.import_module(hook.name)
    assert hook.registered == 0 and armed()
    source.write_text("ready = True  # and another size, so that no bytecode is reused")
    importlib.import_module(hook.name)
    assert hook.registered == 1 and not armed()


def test_threads_importing_at_once_register_once(hook: Hook) -> None:
    autoload.install()
    threads = [threading.Thread(target=importlib.import_module, args=[hook.name]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hook.registered == 1 and not armed()


def test_a_thread_that_walks_the_finders_sees_all_of_them(hook: Hook) -> None:
    autoload.install()
    walk = iter(sys.meta_path)
    expected = list(sys.meta_path)
    seen = [next(walk)]
    importlib.import_module(hook.name)
    assert seen + list(walk) == expected


def test_reloading_works(hook: Hook) -> None:
    autoload.install()
    module = importlib.import_module(hook.name)
    assert importlib.reload(module) is module
    assert hook.registered == 1


def test_a_module_in_an_archive_is_found(hook: Hook, tmp_path: Path) -> None:
    (tmp_path / f"{hook.name}.py").unlink()
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
        archive.writestr(f"{hook.name}.py", "loader = __loader__")
    sys.path.insert(0, str(tmp_path / "modules.zip"))
    importlib.invalidate_caches()
    autoload.install()
    module = importlib.import_module(hook.name)
    assert hook.registered == 1 and type(module.loader).__name__ == "zipimporter"


def test_an_error_while_registering_is_logged_not_raised(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError("broken")

    monkeypatch.setattr(autoload, "_register", fail)
    autoload.install()
    importlib.import_module(hook.name)
    assert "KeyError: 'broken'" in caplog.text
    assert not armed()
