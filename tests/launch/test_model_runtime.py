"""The runtime of models, compiled alone, and as a library that is loaded and unloaded while threads live."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from halide_backend.launch.model_runtime import model_runtime

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as models do")

STRICT = ("-std=c++20", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=default")

#: What generated code does, by hand: `kernel(what, count, message)`.
KERNELS = """
struct Call { int what, count; std::atomic<int> ran; };
static int row(void* context, int index, uint8_t* closure) {
  Call& call = *reinterpret_cast<Call*>(closure);
  void* scratch = halide_malloc(context, 100 + index % 3000);
  memset(static_cast<char*>(scratch) - 8, 0, 0);
  memset(scratch, index, 100 + index % 3000 + 8);
  call.ran++;
  if (call.what == 1 && index == call.count / 2) return -7;                          // an error of the row's own
  if (call.what == 2 && index % 50 == 49) halide_malloc(context, SIZE_MAX / 4);      // jumps
  if (call.what == 3) halide_do_par_for(context, row, 0, 3, closure + sizeof(Call)); // a loop in a loop
  if (reinterpret_cast<uintptr_t>(scratch) % 64) halide_error(context, "not aligned");
  halide_free(context, scratch);
  return 0;
}
static int32_t body(void* closure) {
  void* scratch = memset(halide_malloc(nullptr, 1 << 20), 1, 1 << 20);
  Call* call = static_cast<Call*>(closure);
  halide_do_par_for(nullptr, row, 0, call->count, reinterpret_cast<uint8_t*>(call));
  halide_free(nullptr, scratch);
  return call->what == 4 ? 3 : 0;
}
extern "C" int32_t kernel(int what, int count, char* message, int* ran) {
  Call calls[2] = {{what, count, {0}}, {0, 0, {0}}};
  int32_t result = halide_backend_run(body, calls, message);
  *ran = calls[0].ran;
  return result;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime and `KERNELS`, linked as models are: with libtorch, whose parallel loops it takes."""
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "model.cpp").write_text(model_runtime() + KERNELS)
    torch_libraries = Path(torch.__file__).parent / "lib"
    link = [f"-L{torch_libraries}", "-ltorch_cpu", f"-Wl,-rpath,{torch_libraries}", "-Wl,--no-as-needed"]
    subprocess.run(["g++", *STRICT, "-shared", "model.cpp", "-o", "model.so", *link], cwd=folder, check=True)
    return folder / "model.so"


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


def called(library: Path, what: int, count: int) -> tuple[int, str, int]:
    """Result, message and how many rows began."""
    message, ran = ctypes.create_string_buffer(b"untouched", 256), ctypes.c_int()
    result = ctypes.CDLL(str(library)).kernel(what, count, message, ctypes.byref(ran))
    return result, message.value.decode(), ran.value


def test_every_row_runs_once(library: Path, threads: int) -> None:
    assert called(library, 0, 1000) == (0, "untouched", 1000)
    assert called(library, 0, 1) == (0, "untouched", 1)
    assert called(library, 0, 0) == (0, "untouched", 0)


def test_a_loop_inside_of_a_loop(library: Path, threads: int) -> None:
    assert called(library, 3, 200) == (0, "untouched", 200)


def test_failures_end_the_run_from_wherever_they_are(library: Path, threads: int) -> None:
    for _ in range(20):
        result, message, ran = called(library, 1, 1000)
        assert (result, message) == (-7, "") and 0 < ran <= 1000
        result, message, ran = called(library, 2, 1000)
        assert (result, message) == (-11, "not enough memory for the kernel's scratch space") and 50 <= ran < 1000
    # What is left of them: nothing.
    assert called(library, 4, 10) == (3, "", 10)


def test_failures_lose_no_memory(library: Path) -> None:
    """A megabyte is allocated in each run that fails: 2,000 of them."""
    model, message, ran = ctypes.CDLL(str(library)), ctypes.create_string_buffer(256), ctypes.c_int()
    for _ in range(10):
        model.kernel(2, 60, message, ctypes.byref(ran))
    before = _resident()
    for _ in range(2000):
        model.kernel(2, 60, message, ctypes.byref(ran))
    assert _resident() - before < 100 << 20


def _resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_it_exports_nothing_and_registers_nothing(library: Path) -> None:
    symbols = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    defined = {line.split()[-1] for line in symbols.splitlines() if line.split()[-2] in "TDBRVW"}
    assert "kernel" in defined
    assert not {name for name in defined if "halide" in name}
    used = {line.split()[-1].partition("@")[0] for line in symbols.splitlines() if line.split()[-2] in "Uw"}
    assert "torch_parallel_for" in used
    assert not used & {"pthread_key_create", "__cxa_thread_atexit", "__cxa_thread_atexit_impl", "pthread_atfork"}
    # A static TLS model would need a relocation to the thread pointer (TPOFF64).
    relocations = subprocess.run(["readelf", "-rdW", str(library)], capture_output=True, text=True, check=True).stdout
    assert "R_X86_64_DTPMOD64" in relocations
    assert "TPOFF" not in relocations and "STATIC_TLS" not in relocations


def test_without_libtorch_loops_are_serial(tmp_path: Path) -> None:
    main = """
    int main() {
      char message[256] = ""; int ran = 0;
      if (kernel(0, 1000, message, &ran) != 0 || ran != 1000) return 1;
      if (kernel(1, 1000, message, &ran) != -7 || ran != 501) return 2;
      return kernel(2, 1000, message, &ran) == -11 && ran == 50 ? 0 : 3;
    }
    """
    (tmp_path / "main.cpp").write_text(model_runtime() + KERNELS + main)
    subprocess.run(["g++", *STRICT, "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "main")], check=False).returncode == 0


def test_200_models_are_loaded_and_unloaded_while_threads_live(library: Path, tmp_path: Path) -> None:
    script = f"""
        import ctypes, os, shutil, threading, torch, _ctypes
        torch.set_num_threads(2)
        barrier = threading.Barrier(5)
        libraries, wrong = [], []
        def work():
            for _ in range(2):
                barrier.wait()
                message, ran = ctypes.create_string_buffer(256), ctypes.c_int()
                for library in list(libraries):
                    for what, wanted in ((0, 0), (2, -11)):
                        if library.kernel(what, 60, message, ctypes.byref(ran)) != wanted: wrong.append(what)
                barrier.wait()
        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads: thread.start()
        for _ in range(2):
            for number in range(200):
                path = os.path.join({str(tmp_path)!r}, f"model{{number}}.so")
                shutil.copy({str(library)!r}, path)
                libraries.append(ctypes.CDLL(path))
            barrier.wait()
            barrier.wait()
            for library in libraries: assert not _ctypes.dlclose(library._handle)
            libraries.clear()
            with open("/proc/self/maps") as maps: assert {str(tmp_path)!r} not in maps.read()
        for thread in threads: thread.join()
        print(wrong)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


#: A program without libtorch: its parallel loops are threads of its own.
PROGRAM = """
#include <algorithm>
#include <vector>
extern "C" int32_t torch_parallel_for(
    int64_t begin, int64_t end, int64_t, void (*function)(int64_t, int64_t, void*), void* context) {
  int64_t middle = begin + (end - begin) / 2;
  std::thread other(function, begin, middle, context);
  function(middle, end, context);
  other.join();
  return 0;
}
static std::atomic<int> wrong;
static void calls() {
  for (int what = 0; what < 5; what++) {
    char message[256];
    int ran = 0, result = kernel(what, what == 3 ? 6 : 120, message, &ran);
    int wanted[] = {0, -7, -11, 0, 3};
    wrong += result != wanted[what];
  }
}
int main() {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; number++) threads.emplace_back([] { for (int k = 0; k < 5; k++) calls(); });
  for (auto& each : threads) each.join();
  return wrong;
}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "tool"),
    [
        (("-fsanitize=thread",), ("setarch", "-R")),
        (("-fsanitize=address,undefined", "-fno-sanitize-recover=all"), ()),
        ((), ("valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=all", "--error-exitcode=99")),
    ],
    ids=["thread", "address", "valgrind"],
)
def test_checkers_of_memory_and_threads_find_nothing(
    flags: tuple[str, ...], tool: tuple[str, ...], tmp_path: Path
) -> None:
    """Rows that end well, with errors, by jumps, and in loops inside of loops, on several threads at a time."""
    if tool and not shutil.which(tool[0]):
        pytest.fail(f"{tool[0]} is not installed")
    (tmp_path / "program.cpp").write_text(model_runtime() + KERNELS + PROGRAM)
    command = ["g++", "-std=c++20", "-g", "-O1", *flags, "program.cpp", "-o", "program", "-pthread"]
    subprocess.run(command, cwd=tmp_path, check=True)
    # What cannot be allocated is asked for on purpose.
    options = dict.fromkeys(("ASAN_OPTIONS", "TSAN_OPTIONS"), "allocator_may_return_null=1")
    done = subprocess.run(
        [*tool, "./program"], cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, **options}
    )
    assert done.returncode == 0, done.stderr
