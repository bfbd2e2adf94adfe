"""Why a program has no kernel, and why nodes are not fused: every reason has a code, and all codes are here.

A code is stable: statistics count by it, and what is written about a refusal can be found by it. What differs from case
to case, the numbers and limits, is in the detail of a `Refusal`. docs/reference/refusals.md is made from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

_ELSEWHERE = "Nothing has to be done: the kernel runs on Inductor's own backend."
_REPORT = "Report it with the kernel's text; meanwhile the kernel runs on Inductor's own backend."
_APART = "Nothing has to be done: each node gets a kernel of its own."


@dataclass(frozen=True)
class Code:
    """What a code means, in one sentence, and what the user can do."""

    meaning: str
    hint: str = _ELSEWHERE


@dataclass(frozen=True)
class Refusal:
    """A reason: its `code`, in `detail` what exactly was refused, with its numbers and limits, and a `hint` what to do.

    Without a hint it has that of its code.
    """

    code: str
    detail: str
    hint: str = ""

    def __post_init__(self) -> None:
        if not self.hint:
            object.__setattr__(self, "hint", CODES[self.code].hint)

    def __str__(self) -> str:
        return f"{self.detail} ({self.code})"


#: A node, or several in one kernel, for which there is no kernel (`errors.Unsupported`).
KERNEL_CODES: dict[str, Code] = {
    # What is captured.
    "not-a-loop-node": Code("The scheduler node is neither pointwise nor a reduction, scan or scatter."),
    "empty-loop": Code("A loop has no iterations, so that there is nothing to compute."),
    "loop-too-long": Code("A loop has more iterations than 32 bits can count."),
    "unknown-operation": Code(
        "An operation of Inductor's that this backend does not have (docs/reference/operations.md)."
    ),
    "unknown-reduction": Code("A kind of reduction that this backend does not have (docs/reference/operations.md)."),
    "unknown-store-mode": Code("A store that neither writes nor adds."),
    "unsupported-dtype": Code(
        "A data type that kernels have no arithmetic for.", "Convert the tensor to float32, if its values allow it."
    ),
    "operation-on-integers": Code(
        "An operation that is defined for floating-point numbers was asked for of integers.",
        "Convert the operand to float32 or float64 first.",
    ),
    "float8-needs-newer-torch": Code(
        "Before torch 2.13 numbers that are too large for float8_e4m3fn are converted otherwise.",
        "Install torch 2.13 or newer.",
    ),
    "bitcast-of-another-size": Code("A kernel views a tensor as a data type of another size."),
    "argmax-of-pairs": Code("An argmax or argmin over pairs of values and indices."),
    "polygamma-order-is-data": Code(
        "The order of polygamma is computed by the kernel itself.", "Pass the order as a Python number."
    ),
    "index-function": Code("An index expression contains a function that this backend does not have."),
    "index-divisor-may-be-negative": Code(
        "An index is divided by a size that may be negative, which Halide rounds differently from Python.",
        "Let torch know that the size is not negative: torch._check(size >= 0).",
    ),
    "size-not-integer": Code("A size of the graph is a floating-point number.", "Pass it as a tensor of one element."),
    "index-beyond-int32": Code(
        "An index is a quotient or a remainder of a number that 32 bits may not hold, as the square of a position is."
    ),
    "buffer-too-large": Code(
        "A tensor has more elements than Halide's 32-bit indices can address.",
        "Compute it in parts; each may have 2**31 - 1 elements.",
    ),
    "read-at-other-index-than-written": Code(
        "A node reads what another node of the same kernel writes at another index.", _APART
    ),
    "buffer-written-twice": Code("Two nodes of one kernel write the same memory.", _APART),
    "bucketize-of-small-integers": Code(
        "A search (bucketize, searchsorted) among integers of 8 or 16 bits.", "Convert the boundaries to int32."
    ),
    "bucketize-boundaries-by-data": Code("A search whose boundaries begin at an index that the kernel computes."),
    # Scans.
    "split-scan": Code(
        "A scan of few long rows, which Inductor splits over the blocks of a GPU.",
        "Scan more rows at a time: Inductor splits fewer than 264 rows of more than 8,192 elements.",
    ),
    "masked-scan": Code("A scan of a masked value, which is not computed for all elements."),
    "scan-combine-function": Code("The function that a scan combines elements with reads memory, or can fail."),
    "scan-mixed-with-loops": Code("A scan in one CUDA kernel with loops that it does not run over.", _APART),
    "scan-mixed-with-reduction": Code(
        "A scan in one CUDA kernel with a reduction or with a data-dependent loop.", _APART
    ),
    "scan-of-dynamic-length": Code(
        "A scan on CUDA along an axis whose length is known only at run time.",
        "Compile with dynamic=False, or mark the dimension static: torch._dynamo.mark_static(x, dimension).",
    ),
    "scan-result-not-contiguous": Code(
        "The results of a scan on CUDA are not contiguous along the scanned axis.",
        "Make the scanned dimension the last one of a contiguous tensor.",
    ),
    "scan-across-memory": Code(
        "A scan on CUDA along an axis that is not the contiguous one, for each point of several or of dynamic axes.",
        "Make the scanned dimension the last one of a contiguous tensor.",
    ),
    "scan-too-long": Code("A scan on CUDA of more elements than the threads of a block hold in registers."),
    # What is overwritten.
    "overwritten-memory-read-elsewhere": Code(
        "Memory that a kernel of several stores overwrites is read at another index than it is written, or by a check.",
        _APART,
    ),
    "overwritten-memory-read-by-scatter": Code(
        "Memory that the kernel overwrites is read by a scatter, which runs after the other stores.", _APART
    ),
    "overwritten-memory-read-apart": Code(
        "Old values of overwritten memory would be read outside the loops that write it.", _APART
    ),
    "no-legal-schedule": Code(
        "The schedule that the rules chose would give another result, or none; the detail names the step."
    ),
    "overwritten-memory-read-by-outputs": Code(
        "Old values of overwritten memory are needed by several stores of one CUDA kernel.", _APART
    ),
    # Shapes of kernels.
    "applied-along-reduced-axis": Code(
        "A reduction or scan is applied at coordinates that move along its own axis.", "Give it a kernel of its own."
    ),
    "dynamic-store-not-contiguous": Code(
        "One of several outputs over outer axes of dynamic length is not contiguous along them.", _APART
    ),
    "dynamic-output-stride": Code(
        "An output on CUDA has a stride that is neither static nor a size, but computed from sizes."
    ),
    "stores-over-different-loops": Code("The stores of one CUDA kernel run over different loops.", _APART),
    "scatter-mixed-with-stores": Code("A scatter and other stores in one CUDA kernel.", _APART),
    "scatter-of-reduction": Code("A CUDA kernel scatters what it reduces.", _APART),
    "data-dependent-loop-in-reduction": Code(
        "A value with a data-dependent loop (an orthogonal polynomial) in a CUDA kernel that reduces.", _APART
    ),
    "check-over-other-loops": Code(
        "A check (of an index, a divisor, an assertion) in a CUDA kernel runs over loops that nothing else runs over."
    ),
    "reductions-over-different-axes": Code("Reductions of one CUDA kernel run over different axes.", _APART),
    "reduction-stored-along-part": Code(
        "A CUDA kernel would store for each channel of a group, say, what it reduces over the group's channels and "
        "pixels: each thread would reduce a group on its own.",
        _APART,
    ),
    "reduction-stored-across-memory": Code(
        "A CUDA kernel would reduce along an axis that is not contiguous in the operand, but in the output.", _APART
    ),
    "reduction-too-long-for-thread": Code(
        "A reduction on CUDA that no group of threads can share is too long for one thread.",
        "Reduce along the contiguous dimension, or make the tensor contiguous first.",
    ),
    "grid-too-large": Code("A CUDA kernel needs a grid of too many dimensions, or one of too many blocks."),
    "float8-on-gpu": Code(
        "A float8 tensor in a CUDA kernel.", "Convert it to bfloat16 outside of the compiled function."
    ),
    "atomic-add-dtype": Code(
        "A scatter on CUDA that adds to memory of a data type without atomic addition.",
        "Accumulate in int32 or float32.",
    ),
    "gpu-too-old": Code(
        "The GPU is older than compute capability 8.0 (Ampere).", "Set torch._inductor.config.cuda_backend = 'triton'."
    ),
}

#: A kernel that could not be built: the codes of the errors of those names (docs/reference/errors.md).
ERROR_CODES: dict[str, Code] = {
    "illegal-plan": Code("The plan that the rules chose would give another result, or none.", _REPORT),
    "program-error": Code("What was captured is not a valid program.", _REPORT),
    "kernel-text-error": Code("The kernel's text does not run.", _REPORT),
    "halide-compile-error": Code("Halide refuses the pipeline or its schedule.", _REPORT),
    "llvm-compile-error": Code("LLVM refuses the code that Halide wrote.", _REPORT),
    "worker-crashed": Code("The process that compiled the kernel died.", _REPORT),
    "worker-out-of-memory": Code(
        "Compiling needed more memory than allowed.", "Raise the option compile_memory_limit_mb."
    ),
    "worker-timeout": Code("Compiling took too long.", "Raise the option compile_time_limit."),
    "worker-not-started": Code("No process that compiles can be started.", "Run `halide-backend doctor`."),
    "unsupported-version-error": Code(
        "A package or the processor is not supported for the kernel's target.", "Run `halide-backend doctor`."
    ),
    "missing-native-extension-error": Code(
        "The compiled part of the package is absent or does not fit.", "Run `halide-backend doctor`."
    ),
}

#: What Inductor gives to its own backend before this one is asked.
TEMPLATE = "template"
TEMPLATE_CODES = {
    TEMPLATE: Code(
        "A matrix product, a convolution or flex attention, for which Inductor chose one of its own templates.",
        "Nothing has to be done: templates are always Inductor's own.",
    )
}

#: Two groups of nodes that do not become one kernel, although each may be one.
FUSION_CODES: dict[str, Code] = {
    "fusion-not-loops": Code(
        "One of the two is not a loop: an extern call, a template or a group of foreach nodes.", _APART
    ),
    "fusion-with-template": Code("Inductor's own backend, which writes templates, does not fuse these nodes into it."),
    "fusion-of-several-sizes-with-template": Code(
        "Nodes that were fused over loops of several sizes are not fused into a template.", _APART
    ),
    "fusion-with-scan": Code("One of the two is a scan, which has a kernel of its own on a CPU.", _APART),
    "fusion-of-too-many-nodes": Code("The kernel would have so many nodes that compiling it takes too long.", _APART),
    "fusion-side-by-side-limit": Code(
        "Too many nodes that share nothing but inputs.",
        "Raise torch._inductor.config.cpp.max_horizontal_fusion_size.",
    ),
    "fusion-stored-by-few-threads": Code(
        "A CUDA kernel would store along an axis over which each of a few threads reduces on its own.", _APART
    ),
    "fusion-stored-crosswise": Code(
        "A kernel would store two tensors of which one is the other's transpose in memory.", _APART
    ),
    "fusion-breaks-lines": Code(
        "A node would read its operands in shorter lines than it does alone, as pixels in windows.", _APART
    ),
    "fusion-without-common-outer-axis": Code(
        "The two have no outermost loop in common over which one kernel could compute both.", _APART
    ),
    "fusion-of-reduction-and-scatter": Code(
        "On a CPU a scatter runs on one core, and so would a reduction in the same kernel.", _APART
    ),
    "fusion-over-snapshot": Code(
        "The kernel would have to copy overwritten memory before its first store, for all other nodes as well.", _APART
    ),
    "fusion-over-old-value": Code(
        "On CUDA the kernel would need old values of memory that it overwrites for several stores.", _APART
    ),
}

#: Every code.
CODES: dict[str, Code] = {**KERNEL_CODES, **ERROR_CODES, **TEMPLATE_CODES, **FUSION_CODES}
