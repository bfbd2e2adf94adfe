"""Threads of the tests' PTX machine wait for one another as a GPU's do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kernel_values import check_values
from ptx_machine import run

#: Odd lanes take a way that lies behind the end, and come back to the exchange later, or do not.
_CODE = """
.visible .entry kernel(.param .u64 kernel_param_0)
{
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 1;
	setp.eq.s32 %p1, %r2, 1;
	@%p1 bra $ODD;
	mov.b32 %r3, 100;
$MEET:
	shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
	ld.param.u64 %rd1, [kernel_param_0];
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.b32 [%rd3], %r4;
	ret;
$ODD:
	mov.b32 %r3, 7;
	bra.uni $WHERE;
}
"""


def test_lanes_that_come_later_to_an_exchange_are_waited_for() -> None:
    found = np.zeros(32, np.int32)
    run(_CODE.replace("$WHERE", "$MEET"), 1, (32, 1), [found])
    assert found.tolist() == [7, 100] * 16


def test_lanes_that_do_not_come_are_an_error() -> None:
    with pytest.raises(AssertionError, match="some lanes of a warp do not come"):
        run(_CODE.replace("bra.uni $WHERE", "ret"), 1, (32, 1), [np.zeros(32, np.int32)])


@pytest.mark.parametrize("rows", [33, 100])
def test_threads_without_an_element_of_a_checked_sum(rows: int, needs_intrinsics: None) -> None:
    """The sum of cross-entropies of unknown number: LLVM puts the way of those without any behind the end."""
    operands = torch.randn(rows, 37), torch.randint(0, 37, (rows,))
    check_values(F.cross_entropy, *operands, dynamic=True, tolerance=1e-5)
