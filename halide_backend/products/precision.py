"""Whether products of bfloat16 are computed in float32, by the processor and by how often they use each number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from halide_backend.products.processor import Processor

#: Values of the option `bfloat16_products`: what `AUTOMATIC` chooses between.
BFLOAT16, FLOAT32 = "bfloat16", "float32"


class Kind(Enum):
    """Multiplications for each number that is read or stored from which converting is made good.

    Measured on a Xeon with AVX-512 BF16 and without AMX, bfloat16's time over float32's with all conversions:
    products of 32 x 768 x 768, 30 for each number, 1.00; of 64 rows, 55, 1.23; of 512 rows, 219, 1.27 to 1.7; of 16
    rows, 15, 0.74; 12 of 128 x 64 x 128, 32, 1.34. Convolutions: 96 filters of 7 x 7 for a channel each, 24, 1.8; of
    3 x 3, 4.5, 0.4 to 0.9. Backward steps of filters for a channel each are so slow in bfloat16 that nothing else
    matters: 3 x 3 with stride 2 18, 5 x 5 5.
    """

    PRODUCT = 32
    CONVOLUTION = 20
    BACKWARD_STEP = 0


@dataclass(frozen=True)
class Work:
    """What a product, a convolution or its backward step does.

    Attributes:
        kind: which of them. multiplications: how many. numbers: those of the operands and the results.
        strided: whether it is the backward step of filters for a channel each with a stride. oneDNN's
            gradient of their pictures is far slower in bfloat16 than in float32, on that Xeon and on a Zen 5
            (docs/design/products.md). With AMX, which it does not use for them, it was not measured.
    """

    kind: Kind
    multiplications: int
    numbers: int
    strided: bool = False

    @property
    def uses_enough(self) -> bool:
        """Whether each number is used often enough for conversions to be made good."""
        return self.multiplications >= self.kind.value * self.numbers


def float32_is_faster(processor: Processor) -> bool:
    """Whether `processor` multiplies matrices of float32 faster than those of bfloat16.

    Intel's processors have as many multiplications of bfloat16 in a cycle as of float32 with AVX-512 BF16 (one
    `vdpbf16ps` of 32, two `vfmadd` of 16), and none without; only AMX multiplies more. Products of others were not
    measured.
    """
    return processor.vendor == "GenuineIntel" and "avx512f" in processor.features and not processor.has_matrix_unit
