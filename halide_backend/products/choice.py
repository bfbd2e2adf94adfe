"""The choice for each product of a graph, from the option, torch's settings, a calibration or the rule."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from halide_backend.products import calibration_store
from halide_backend.products.attention import HALIDE, AttentionWork, has_kernel, kernel_is_faster
from halide_backend.products.calibration import Calibration
from halide_backend.products.precision import BFLOAT16, FLOAT32, Work, float32_is_faster
from halide_backend.products.processor import Processor
from halide_backend.products.product import ATEN, ONEDNN, Product
from halide_backend.products.rule import by_rule

#: Value of both options that leaves the choice to what was measured, or to a rule.
AUTOMATIC = "auto"

#: oneDNN computes what it computes faster than ATen by more than this factor.
LEAST_GAIN = 1.05


@dataclass(frozen=True)
class Choice:
    """How the library of a product is chosen.

    Attributes:
        asked: the option `product_library`.
        forbidden: which setting of torch's keeps products with ATen; "" for none.
        processor: that of this machine. calibration: what was measured on it, None for nothing.
        precision: the option `bfloat16_products`, or `BFLOAT16` where torch may compute float32 in that.
        attention: the option `attention`.
    """

    asked: str
    forbidden: str
    processor: Processor
    calibration: Calibration | None
    precision: str = AUTOMATIC
    attention: str = AUTOMATIC

    @staticmethod
    def of_this_process() -> Choice:
        """By the settings and the number of threads that hold now."""
        import torch

        from halide_backend import config

        library, precision = config.product_library, _precision(config.bfloat16_products)
        measured = calibration_store.load(torch.get_num_threads()) if library == AUTOMATIC else None
        return Choice(library, _forbidden(), Processor.host(), measured, precision, config.attention)

    def may_be_onednn(self) -> bool:
        """Whether any product may be oneDNN's."""
        return self.asked != ATEN and not self.forbidden

    def library(self, product: Product) -> str:
        """`ONEDNN` or `ATEN`."""
        if not self.may_be_onednn():
            return ATEN
        if self.asked == ONEDNN:
            return ONEDNN
        if self.calibration is not None:
            return ONEDNN if self.calibration.gain(product) > LEAST_GAIN else ATEN
        return by_rule(product, self.processor)

    def may_widen(self) -> bool:
        """Whether any product of bfloat16 may be computed in float32."""
        return self.precision != BFLOAT16

    def widens(self, work: Work) -> bool:
        """Whether a product of bfloat16 is computed in float32."""
        if self.precision != AUTOMATIC:
            return self.precision == FLOAT32
        return work.strided or (float32_is_faster(self.processor) and work.uses_enough)

    def may_attend(self) -> bool:
        """Whether any attention may be a kernel of this backend."""
        return self.attention != ATEN

    def attends(self, work: AttentionWork, lanes: int) -> bool:
        """Whether an attention is a kernel of this backend, with vectors of `lanes` elements."""
        if not self.may_attend() or not has_kernel(work, lanes):
            return False
        return self.attention == HALIDE or kernel_is_faster(work, lanes, self.processor)

    def digest(self) -> str:
        """A text that changes with every choice."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def describe(self) -> str:
        """The way of choosing, in one line."""
        if self.asked == ATEN:
            return "ATen (option product_library)"
        if self.forbidden:
            return f"ATen, because of {self.forbidden}"
        if self.asked == ONEDNN:
            return "oneDNN (option product_library)"
        if self.calibration is not None:
            gains = [gain for each in self.calibration.gains.values() for gain in each]
            faster = sum(gain > LEAST_GAIN for gain in gains)
            return f"measured here: oneDNN is faster than ATen in {faster} of {len(gains)} products"
        family = f"{self.processor.vendor or 'unknown'} family {self.processor.family}"
        large = by_rule(Product(1024, 1024, 1024, "nt"), self.processor)
        return f"rule for {family}: {'oneDNN, but for small products' if large == ONEDNN else 'ATen'}"


def _forbidden() -> str:
    import torch

    backend = torch.backends.mkldnn
    if not backend.is_available():
        return "a torch without oneDNN"
    if not backend.enabled:
        return "torch.backends.mkldnn.enabled = False"
    if torch.are_deterministic_algorithms_enabled() or backend.deterministic:
        return "deterministic algorithms being asked for"
    if _may_be_lower():
        return "a lower precision of float32 products being allowed"
    return ""


def _precision(asked: str) -> str:
    """Not float32 where torch may compute that in bfloat16."""
    return BFLOAT16 if _may_be_lower() else asked


def _may_be_lower() -> bool:
    """Whether torch may compute products of float32 in less."""
    import torch

    allowed = torch.backends.mkldnn.matmul.fp32_precision not in ("none", "ieee")
    return allowed or torch.get_float32_matmul_precision() != "highest"
