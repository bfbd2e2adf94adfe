from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from evaluation import RUNTIME, call
from kernel_texts import DOUBLED, ROW_SUMS, elementwise

from halide_backend.build import elf, loader
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.loader import LoadedKernel, load_object
from halide_backend.build.target import Target
from halide_backend.errors import LoadError

HOST = Target.host()


@pytest.fixture(scope="module")
def doubled() -> bytes:
    return compile_kernel(DOUBLED, HOST, "doubled").object


@pytest.fixture(scope="module")
def row_sums() -> bytes:
    return compile_kernel(ROW_SUMS, HOST, "row_sums").object


def check(kernel: LoadedKernel, factor: float = 2) -> None:
    a, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    call(kernel.address, a, out)
    assert (out == factor * a).all()


def test_loads(doubled: bytes) -> None:
    kernel = load_object(doubled, "doubled", RUNTIME)
    check(kernel)
    assert kernel.entry == "doubled"


def test_equal_names_live_side_by_side(doubled: bytes) -> None:
    tripled = compile_kernel(elementwise("a + a + a"), HOST, "doubled").object
    two, three = (load_object(image, "doubled", RUNTIME) for image in (doubled, tripled))
    assert two.address != three.address
    check(two)
    check(three, 3)


def test_imports_are_the_given_addresses(row_sums: bytes) -> None:
    x, rows = np.ones(64 * 32, np.float32), np.zeros(64, np.float32)
    kernel = load_object(row_sums, "row_sums", RUNTIME)
    call(kernel.address, x, rows)
    assert (rows == 32).all()


def test_c_functions_are_found_without_being_given() -> None:
    text = elementwise("hl.sin(a)")  # Halide leaves it to the C library
    image = compile_kernel(text, HOST, "sine").object
    assert elf.symbols(image).undefined == {"sinf"}
    a, out = np.linspace(-3, 3, 16, dtype=np.float32), np.zeros(16, np.float32)
    kernel = load_object(image, "sine", RUNTIME)
    call(kernel.address, a, out)
    assert np.allclose(out, np.sin(a.astype(np.float64)), rtol=1e-6)


def test_nothing_else_of_the_process_is_reachable(row_sums: bytes) -> None:
    for wanted in ("system", "malloc", "halide_do_par_for"):
        image = row_sums.replace(b"halide_do_par_for", wanted.encode().ljust(17, b"\0"))
        with pytest.raises(LoadError, match=f"does not offer: {wanted}") as caught:
            load_object(image, "row_sums", {})
        assert "row_sums" in caught.value.where and caught.value.cure


def test_missing_entry_is_refused(doubled: bytes) -> None:
    with pytest.raises(LoadError, match="does not define 'tripled'"):
        load_object(doubled, "tripled", RUNTIME)


@pytest.mark.parametrize("kept", [0, 10, 64, 500, 2000])
def test_a_cut_object_is_refused(doubled: bytes, kept: int) -> None:
    with pytest.raises(LoadError, match="ELF"):
        load_object(doubled[:kept], "doubled", RUNTIME)


@pytest.mark.parametrize(("at", "value"), [(16, 3), (18, 183)])  # e_type, e_machine
def test_an_object_of_another_kind_is_refused(doubled: bytes, at: int, value: int) -> None:
    image = doubled[:at] + struct.pack("<H", value) + doubled[at + 2 :]
    with pytest.raises(LoadError, match="not a relocatable x86-64 object"):
        load_object(image, "doubled", RUNTIME)


def test_what_only_llvm_notices_is_refused_too(doubled: bytes) -> None:
    # sh_info of the symbol table, the index of its first global symbol, beyond its end.
    (table,) = struct.unpack_from("<Q", doubled, 40)
    changed = bytearray(doubled)
    for section in range(struct.unpack_from("<H", doubled, 60)[0]):
        if struct.unpack_from("<I", doubled, table + 64 * section + 4)[0] == 2:
            struct.pack_into("<I", changed, table + 64 * section + 44, 10_000)
    try:
        check(load_object(bytes(changed), "doubled", RUNTIME))
    except LoadError as error:
        assert "LLVM cannot link it" in str(error)


def test_unloaded_when_dropped(doubled: bytes) -> None:
    kernel = load_object(doubled, "doubled", RUNTIME)
    page = kernel.address & ~4095
    assert _mapped(page)
    library = weakref.ref(kernel._library)
    del kernel
    gc.collect()
    assert library() is None
    assert not _mapped(page)


def _mapped(address: int) -> bool:
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps]
    return any(int(start, 16) <= address < int(end, 16) for start, end in ranges)


def test_many_threads_load_at_once(doubled: bytes) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                check(load_object(doubled, "doubled", RUNTIME))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads: meant here
def test_works_in_a_forked_child_while_others_load(doubled: bytes) -> None:
    kernel = load_object(doubled, "doubled", RUNTIME)
    stop = threading.Event()

    def keep_loading() -> None:
        while not stop.is_set():
            load_object(doubled, "doubled", RUNTIME)

    other = threading.Thread(target=keep_loading)
    other.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    check(kernel)
                    check(load_object(doubled, "doubled", RUNTIME))
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        other.join()


def test_the_interpreter_ends_cleanly_with_kernels_loaded(doubled: bytes) -> None:
    script = (
        "import sys; from halide_backend.build.loader import load_object\n"
        "from halide_backend.launch.launcher import native\n"
        f"kernels = [load_object({doubled!r}, 'doubled', native().symbols()) for _ in range(3)]\n"
        "sys.kept = kernels; print(len(kernels))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_every_c_function_is_a_real_one() -> None:
    # bfloat16 conversions came to libgcc in 13; without them such an object is refused.
    newer = {"__truncsfbf2", "__truncdfbf2"}
    absent = {name for name in loader.C_FUNCTIONS if not loader._c_function(name)}
    assert absent <= newer
