"""Along which axis vectors run where two would do: a short one fills no vector, and its lines are no tile."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import compile_for


def test_vectors_of_an_unfolded_picture_run_along_its_pixels() -> None:
    def unfolded(x: Tensor) -> Tensor:
        return F.unfold(x, 3, stride=2)

    x = torch.randn(2, 16, 47, 51)
    compiled = compile_for("halide_backend", unfolded)
    torch.testing.assert_close(compiled(x), unfolded(x), rtol=0, atol=0)
    # The third axis has the three taps of a row of the filter.
    (code,) = compiled.codes
    assert "Vectorize('out_ptr0', 'x4" in code and "Vectorize('out_ptr0', 'x2" not in code


def test_lines_of_two_elements_are_not_turned_in_tiles() -> None:
    def unshuffled(x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, 2) * 2

    x = torch.randn(2, 8, 74, 82)
    compiled = compile_for("halide_backend", unshuffled)
    torch.testing.assert_close(compiled(x), unshuffled(x), rtol=0, atol=0)
    (code,) = compiled.codes
    assert "Vectorize('out_ptr0'" in code and "STAGED_LOAD" not in code


def test_vectors_run_along_results_that_are_interleaved() -> None:
    """Not along the operand that is adjacent, whose elements are stored a whole row apart."""

    def grid(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack(torch.meshgrid(x, y, indexing="ij"), -1)

    x, y = torch.randn(100), torch.randn(75)
    compiled = compile_for("halide_backend", grid)
    torch.testing.assert_close(compiled(x, y), grid(x, y), rtol=0, atol=0)
    (code,) = compiled.codes
    assert code.count("Split('out_ptr0', 'x1', 'x1_b',") == 2 and "Split('out_ptr0', 'x0', 'x0_b'," not in code
