"""Which library computes a product, by the family of the processor alone: what holds until somebody calibrates."""

from __future__ import annotations

from halide_backend.products.processor import Processor
from halide_backend.products.product import ATEN, ONEDNN, Product

#: Families of AMD's whose float32 units MKL leaves half idle: it uses AVX2 there, and Zen 5 (1Ah) multiplies twice as
#: many numbers at once with AVX-512. Older families have no wider units than AVX2's.
_WIDER_THAN_MKL = {26}

#: Below this many operations the 10 microseconds that a call of oneDNN takes longer are not made good (Zen 5:
#: 64 x 64 x 64 0.5, 16 x 256 x 256 1.0, 8 x 768 x 768 1.4 of ATen's speed).
_FEWEST_OPERATIONS = 3_000_000

#: A product with a shorter side reads memory rather than multiplies (Zen 5: 1 x 3072 x 768 0.9 of ATen's speed).
_SHORTEST_SIDE = 4


def mkl_is_narrow(processor: Processor) -> bool:
    """Whether MKL leaves half of the processor's float32 units idle."""
    return processor.vendor == "AuthenticAMD" and processor.family in _WIDER_THAN_MKL


def by_rule(product: Product, processor: Processor) -> str:
    """`ONEDNN` or `ATEN`."""
    enough = product.operations >= _FEWEST_OPERATIONS and min(product.m, product.n, product.k) >= _SHORTEST_SIDE
    return ONEDNN if mkl_is_narrow(processor) and enough else ATEN
