"""One matrix product: its sizes, and how its operands lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

#: The libraries, as the option `product_library` calls them.
ATEN, ONEDNN = "aten", "onednn"

#: How operands lie: rows of both are contiguous ("nn", a gradient of an input), the right one is a transpose ("nt", a
#: linear layer), the left one is ("tn", a gradient of a weight).
FORMS = ("nn", "nt", "tn")


@dataclass(frozen=True)
class Product:
    """m x k times k x n.

    Attributes:
        m, n, k: sizes, none below 1. form: one of `FORMS`.
    """

    m: int
    n: int
    k: int
    form: str

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k


def form_of(left_transposed: bool, right_transposed: bool) -> str:
    """The form of operands; that of two transposes is the left one's, which has to be copied for oneDNN."""
    return "tn" if left_transposed else "nt" if right_transposed else "nn"
