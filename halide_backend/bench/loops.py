"""Loops of a processor's own instructions: LLVM IR, vectorised and unrolled by hand, compiled in this process."""

from __future__ import annotations

import ctypes

from llvmlite import binding as llvm

from halide_backend.build.target import Target

#: Vectors in one iteration: more FMAs than two units have in flight for four cycles; as many copies.
UNROLLED = 12


def lanes_of(target: Target) -> int:
    """float32 elements of a vector."""
    required = target.requires()
    return 16 if "avx512f" in required else 8 if "avx" in required else 4


class Loops:
    """A compiled function run(destination, source, iterations, repetitions)."""

    def __init__(self, text: str, target: Target) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(text)
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=3, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._function = kind(self._engine.get_function_address("run"))

    def run(self, destination: int, source: int, iterations: int, repetitions: int) -> None:
        """Call it; other threads run meanwhile."""
        self._function(destination, source, iterations, repetitions)


#: Two loops around a body of `{lines}`; `{start}` and `{end}` belong to the inner one's first and last block.
_FUNCTION = """
define void @run(ptr %destination, ptr %source, i64 %iterations, i64 %repetitions) {{
  br label %outer
outer:
  %r = phi i64 [0, %0], [%r1, %latch]
  br label %inner
inner:
  %i = phi i64 [0, %outer], [%i1, %inner]
{lines}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %iterations
  br i1 %more, label %inner, label %latch
latch:
{end}
  %r1 = add i64 %r, 1
  %again = icmp ult i64 %r1, %repetitions
  br i1 %again, label %outer, label %done
done:
  ret void
}}
!0 = !{{i32 1}}
"""


def copy_text(lanes: int, streaming: bool) -> str:
    vector = f"<{lanes} x float>"
    hint = ", !nontemporal !0" if streaming else ""
    lines = [f"  %first = mul i64 %i, {UNROLLED}"]
    for k in range(UNROLLED):
        lines += [
            f"  %k{k} = add i64 %first, {k}",
            f"  %s{k} = getelementptr {vector}, ptr %source, i64 %k{k}",
            f"  %d{k} = getelementptr {vector}, ptr %destination, i64 %k{k}",
            f"  %v{k} = load {vector}, ptr %s{k}, align {4 * lanes}",
        ]
    lines += [f"  store {vector} %v{k}, ptr %d{k}, align {4 * lanes}{hint}" for k in range(UNROLLED)]
    return _FUNCTION.format(lines="\n".join(lines), end="")


def fma_text(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    splat = [f"<{', '.join([f'float {value}'] * lanes)}>" for value in ("0.5", "0.25")]
    lines = [f"  %a{k} = phi {vector} [zeroinitializer, %outer], [%b{k}, %inner]" for k in range(UNROLLED)]
    for k in range(UNROLLED):
        lines += [
            f"  %p{k} = fmul contract {vector} %a{k}, {splat[0]}",
            f"  %b{k} = fadd contract {vector} %p{k}, {splat[1]}",
        ]
    end = [f"  %t0 = fadd {vector} %b0, %b1"]
    end += [f"  %t{k - 1} = fadd {vector} %t{k - 2}, %b{k}" for k in range(2, UNROLLED)]
    end += [f"  store {vector} %t{UNROLLED - 2}, ptr %destination, align {4 * lanes}"]
    return _FUNCTION.format(lines="\n".join(lines), end="\n".join(end))
