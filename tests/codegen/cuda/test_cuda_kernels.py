"""Each class of kernel becomes one CUDA kernel with the memory accesses that its schedule promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, cuda_kernel_text, programs_of
from torch import Tensor
from torch._inductor.codegen.common import BackendFeature
from torch.utils._ordered_set import OrderedSet

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.completion import with_eviction_priority
from halide_backend.build.ptx.instructions import parse
from halide_backend.capture.scheduling import HalideScheduling
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import Unsupported
from halide_backend.schedule.device import device_of
from halide_backend.schedule.tiling import Tiling

Compile = Callable[..., Any]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape, dtype=dtype)


def loads_of(text: str) -> str:
    """The cache priority of loads that a kernel's text names."""
    (found,) = re.findall(r"^LOADS = '(.*)'$", text, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_pointwise_kernel_moves_128_bits_at_a_time(compiled_ptx: Compile, dtype: torch.dtype) -> None:
    code = compiled_ptx(lambda x, y: torch.relu((x + y) * y), rand(64, 64, dtype=dtype), rand(64, 64, dtype=dtype))
    assert (code.loads, code.wide_loads) == (2, 2)
    assert (code.stores, code.wide_stores) == (1, 1)
    assert code.count("max.NaN.f32") == 16 // dtype.itemsize
    assert code.count(r"\.f64") == 0


@pytest.mark.parametrize(("dtype", "elements"), [(torch.float32, 4), (torch.bfloat16, 8)], ids=str)
def test_the_last_vector_of_an_odd_length_is_stored_element_by_element(
    compiled_ptx: Compile, dtype: torch.dtype, elements: int
) -> None:
    code = compiled_ptx(lambda x: x * 2, rand(1001, dtype=dtype))
    assert code.wide_loads == code.loads == 1
    assert code.count(r"@whole st\.global\S*\.v[24]") == code.wide_stores > 0
    # Each has a condition of its own, and the last element of a vector is stored with the whole vector only.
    assert code.count(r"@some st\.global") == (elements - 1) * code.wide_stores
    assert code.count(rf"setp\.ge\.u32 whole, said_\w+, {elements};") == code.wide_stores


def test_a_short_chunk_is_one_vector_of_the_widest_numbers(compiled_ptx: Compile) -> None:
    """Of two vectors the second could lie beyond the end as a whole."""
    code = compiled_ptx(lambda x, y: ((x + y).bfloat16(), x * y), rand(1001), rand(1001))
    assert "x0 = x0_c*4 + x0_e" in code.text
    assert code.count(r"setp\.ge\.u32 whole, said_\w+, 4;") == 1
    whole = compiled_ptx(lambda x, y: ((x + y).bfloat16(), x * y), rand(1008), rand(1008))
    assert (whole.stores, whole.wide_stores, whole.count(r"st\.global\S*\.b64")) == (2, 1, 1)


def test_each_word_of_bytes_begins_after_those_before_it(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: x + 3, torch.zeros(1001, dtype=torch.uint8))
    # 125 chunks of two words, and one element: of the last chunk's second word nothing is stored.
    assert code.count(r"setp\.ge\.u32 whole, said_\w+, 4;") == 2
    assert "hl.max(hl.select(x0_c < 125, 8, 1) - k*4, 0)" in code.text


def test_a_constant_is_rounded_without_instructions_of_the_gpu(compiled_ptx: Compile) -> None:
    compiled_ptx(lambda x: F.avg_pool2d(x, 2), rand(2, 3, 10, 12, dtype=torch.bfloat16))


def test_threads_that_move_single_elements_have_several_under_way(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x, b: x + b, rand(4001, 1101), rand(1101))
    # Eight of both operands; the last block has code of its own.
    assert code.loads >= 2 * 8
    few = compiled_ptx(lambda x, b: x + b, rand(101, 101), rand(101))
    assert few.loads == 2


def test_elements_at_unaligned_places_are_moved_one_by_one(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: x[1:] * 2, rand(1002))
    assert code.wide_loads == 0


def test_a_window_of_pooling_is_read_in_vectors(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: F.max_pool2d(x, 2), rand(1, 8, 64, 64, dtype=torch.bfloat16))
    # Two lines of eight numbers for four results, so that adjacent threads read adjacent vectors.
    assert (code.loads, code.wide_loads) == (2, 2)


def test_bfloat16_is_rounded_by_the_processor(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: (x * 3).bfloat16(), rand(1024))
    assert code.count(r"cvt\.rn\.bf16x2\.f32") == 2
    assert code.count("call") == 0


@pytest.mark.parametrize(("dtype", "vectors"), [(torch.float32, 8), (torch.bfloat16, 4)], ids=str)
def test_a_row_of_a_warp_is_read_once(compiled_ptx: Compile, dtype: torch.dtype, vectors: int) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(8192, 1024, dtype=dtype))
    assert (code.loads, code.wide_loads) == (vectors, vectors)
    assert code.count(r"shfl\.sync\.bfly") == 2 * 5
    assert code.count(r"bar\.sync") == 0
    assert code.count(r"ex2\.approx") > 0


def test_a_row_among_few_has_several_warps(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(512, 512))
    assert (code.loads, code.wide_loads) == (1, 1)
    assert (code.count(r"bar\.sync"), code.count(r"ld\.shared")) == (2, 2 * 4)


@pytest.mark.parametrize(("columns", "vectors", "warps"), [(4096, 2, 16), (8192, 4, 16), (6272, 4, 13)])
def test_a_long_row_lies_in_the_registers_of_a_block(
    compiled_ptx: Compile, columns: int, vectors: int, warps: int
) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(4, columns))
    assert (code.loads, code.wide_loads) == (vectors, vectors)
    # One exchange for each of the two reductions: every warp writes a word, and reads those of all.
    assert (code.count(r"bar\.sync"), code.count(r"st\.shared")) == (2, 2)
    assert code.count(r"ld\.shared") == 2 * warps


def test_threads_beyond_the_row_store_nothing(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(8192, 1000))
    # 250 vectors are seven for each of 32 lanes, and one more for 26 of them.
    assert (code.wide_loads, code.wide_stores) == (8, 8)
    assert code.count(r"@kept\s+st\.global") == 8


@pytest.mark.parametrize(("columns", "lanes"), [(64, 16), (32, 8), (128, 32)])
def test_several_short_rows_share_a_warp(compiled_ptx: Compile, columns: int, lanes: int) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(64, columns))
    assert code.count(r"shfl\.sync\.bfly") == 2 * (lanes.bit_length() - 1)


def test_a_row_that_fits_no_registers_is_read_again(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(2, 100_003))
    assert code.count(r"bar\.sync") == 2


def test_a_division_whose_last_bits_show_is_exact(compiled_ptx: Compile) -> None:
    def quantised(x: Tensor) -> Tensor:
        return torch.round(x.float() / x.float().abs().amax(-1, keepdim=True)).to(torch.int8)

    exact = compiled_ptx(quantised, rand(64, 64, dtype=torch.bfloat16))
    # A reciprocal for the row, and a remainder and what it corrects for each number: one of bfloat16 needs no second.
    assert (exact.count(r"rcp\.rn\.f32"), exact.count(r"div\.(rn|full)\.f32")) == (1, 0)
    assert exact.count(r"fma\.rn\.f32") == 2 * 8
    elements = compiled_ptx(lambda x, y: x / y, rand(64, 64), rand(64, 64))
    assert elements.count(r"div\.rn\.f32") == 4
    rounded = compiled_ptx(lambda x, y: (x + 1) / y, *(rand(64, 64, dtype=torch.bfloat16),) * 2)
    assert (rounded.count(r"div\.rn\.f32"), rounded.count(r"div\.full\.f32") > 0) == (0, True)


def test_a_division_by_a_power_of_two_is_a_product(compiled_ptx: Compile) -> None:
    """Scores of attention are divided by the root of the 64 elements of a head."""
    code = compiled_ptx(lambda x: (x / 8.0).exp(), rand(64, 64))
    assert (code.count(r"\.f64"), code.count(r"div\.")) == (0, 0)
    assert compiled_ptx(lambda x: (x / 9.0).exp(), rand(64, 64)).count(r"mul\S*\.f64") == 4


def test_a_quotient_whose_last_bits_vanish_has_no_branch(compiled_ptx: Compile) -> None:
    """An exponential is less exact than the quotient of SiLU, and so is what is rounded to 16 bits on its way."""
    silu = compiled_ptx(lambda x: torch.nn.functional.silu(x).sum(1), rand(64, 64, 64))
    assert (silu.count(r"div\.rn\.f32"), silu.count(r"div\.full\.f32") > 0) == (0, True)
    rounded = compiled_ptx(lambda x, y: (x / y).to(torch.bfloat16).float().sum(1), *(rand(64, 64, 64) + 1,) * 2)
    assert rounded.count(r"div\.rn\.f32") == 0
    shown = compiled_ptx(lambda x, y: (x / y).sum(1), *(rand(64, 64, 64) + 1,) * 2)
    assert shown.count(r"div\.rn\.f32") > 0


@pytest.mark.parametrize("columns", [1000, 1001, 33, 50257])
def test_rows_of_any_length(compiled_ptx: Compile, columns: int) -> None:
    code = compiled_ptx(lambda x: torch.log_softmax(x, -1), rand(4, columns))
    assert code.count(r"shfl\.sync\.bfly") >= 10


def test_layer_norm_writes_its_statistics_in_the_same_kernel(compiled_ptx: Compile) -> None:
    code = compiled_ptx(
        lambda x, w, b: torch.native_layer_norm(x, (256,), w, b, 1e-5), rand(8192, 256), rand(256), rand(256)
    )
    # x, weight and bias in two vectors each; the result in two, mean and deviation in one number each.
    assert (code.loads, code.wide_loads) == (6, 6)
    assert (code.stores, code.wide_stores) == (4, 2)


def test_a_column_sum_has_loads_under_way(compiled_ptx: Compile) -> None:
    # Several threads share a column: 32 of them, with ten rows each, and 4 of them in each warp that has 8 columns.
    for columns in (128, 130):
        shared = compiled_ptx(lambda x: x.sum(0), rand(320, columns))
        assert shared.loads == 10 and shared.count(r"st\.shared") > 0
        assert shared.count(r"shfl\.sync\.bfly") == 2 and shared.count(r"ld\.shared") <= 8
    assert compiled_ptx(lambda x: x.sum(0), rand(320, 20_000)).loads == 32


def test_a_full_sum_is_one_block(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: x.sum(), rand(300, 128))
    assert code.count(r"bar\.sync") == 1


def test_argmax_compares_keys_and_positions(compiled_ptx: Compile) -> None:
    assert compiled_ptx(lambda x: x.argmax(-1), rand(16, 128)).count(r"shfl\.sync\.bfly") == 10


def test_a_ragged_transpose_has_no_branch(compiled_ptx: Compile) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        code = compiled_ptx(lambda x, y: x.t() + y, rand(259, 201, dtype=dtype), rand(201, 259, dtype=dtype))
        assert code.count(r"\bbra\b") == 0
        # All that a thread reads is under way before it waits for the others.
        assert code.code.rindex("bar.sync") < code.code.index("@kept")


def test_a_transpose_goes_through_shared_memory(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x, y: x.t() + y, rand(64, 96), rand(96, 64))
    assert code.count(r"st\.shared") > 0
    assert code.count(r"bar\.sync") == 1


@pytest.mark.parametrize("size", [100, 1000, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_tile_is_loaded_as_a_whole_under_a_condition(compiled_ptx: Compile, dtype: torch.dtype, size: int) -> None:
    """Of a part, Halide computed the shared memory when the kernel was launched, or a loop that it could not unroll."""
    for function in (lambda x: x.tril().t().contiguous(), lambda x: x.triu() + x.tril(-1).t()):
        code = compiled_ptx(function, rand(size, size, dtype=dtype))
        assert code.count(r"st\.shared") > 0
        assert code.count(r"bar\.sync") == 1


@pytest.mark.parametrize("shape", [(320, 512), (301, 501), (7, 64, 100), (2001, 4099)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_transpose_with_several_outputs(compiled_ptx: Compile, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, y = rand(*shape, dtype=dtype), rand(*shape[:-2], shape[-1], shape[-2], dtype=dtype)
    code = compiled_ptx(lambda x, y: (x.mT + y, x.mT * y), x, y)
    one = compiled_ptx(lambda x, y: x.mT + y, x, y)
    # Both operands are read once, and what a block reads is what fits into its memory.
    assert (code.loads, code.stores) == (one.loads, 2 * one.stores)


def test_several_outputs_over_four_loops_have_a_grid(compiled_ptx: Compile) -> None:
    # Of a rotary embedding of both halves; the blocks of the two inner loops are one each.
    def halves(x: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., :32] * c - x[..., 32:] * s, x[..., 32:] * c + x[..., :32] * s

    x, c = rand(4, 128, 8, 64, dtype=torch.bfloat16), rand(128, 1, 32, dtype=torch.bfloat16)
    code = compiled_ptx(halves, x, c, c.clone())
    assert (code.loads, code.wide_loads, code.stores, code.wide_stores) == (4, 4, 2, 2)
    assert code.count(r"%ctaid\.[xyz]") == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_large_transpose_of_16_bits_stays_in_registers(compiled_ptx: Compile, dtype: torch.dtype) -> None:
    def added(x: Tensor, y: Tensor) -> Tensor:
        return x.t() + y

    code = compiled_ptx(added, rand(2048, 1536, dtype=dtype), rand(1536, 2048, dtype=dtype))
    assert code.wide_loads == code.loads == 2 * 8
    assert code.wide_stores == code.stores == 8
    assert code.count(r"\.shared") == 0
    # Of few numbers a thread each keeps more of them under way.
    assert compiled_ptx(added, rand(256, 256, dtype=dtype), rand(256, 256, dtype=dtype)).count(r"st\.shared") > 0


def test_embedding_reads_rows_in_vectors(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda w, i: F.embedding(i, w) * 2, rand(50, 64), torch.randint(0, 50, (70_000,)))
    # Two rows for each thread.
    assert (code.wide_loads, code.wide_stores) == (2, 2)
    # An index out of range ends the kernel.
    assert code.count(r"\btrap;") > 0


def test_index_add_is_an_atomic_addition(programs: Compile, to_ptx: Compile) -> None:
    def added(columns: int, dtype: torch.dtype) -> Any:
        operands = rand(100, columns), torch.randint(0, 100, (500,)), rand(500, columns, dtype=dtype)
        code = to_ptx(programs(lambda x, i, s: x.index_add(0, i, s.float()), *operands)[-1])
        assert ".local" not in code.code
        return code

    # Two at a time, where they begin at a multiple of their size.
    for dtype in (torch.float32, torch.bfloat16):
        assert added(64, dtype).count(r"red\.\S*\.v2\.f32") == 1
        assert added(65, dtype).count(r"red\.global\.add\.f32") == 1


def test_sums_of_rows_pass_the_first_cache_by(compiled_ptx: Compile) -> None:
    def passing(function: Callable[..., Any], *operands: Tensor) -> int:
        code = compiled_ptx(function, *operands)
        return str(with_eviction_priority(parse(code.code), loads_of(code.text))).count("L1::no_allocate.v4")

    assert passing(lambda x: x.sum(-1), rand(256, 2048)) == 4
    assert passing(lambda x, w: (x * w).sum(-1), rand(256, 2048), rand(2048)) == 0  # the weights are every row's
    assert passing(lambda x: torch.softmax(x, -1), rand(64, 2048)) == 0


def test_long_tensors_that_are_normalized_leave_the_second_cache_last(compiled_ptx: Compile) -> None:
    def kept(function: Callable[..., Any], *operands: Tensor) -> tuple[int, int]:
        code = compiled_ptx(function, *operands)
        text = str(with_eviction_priority(parse(code.code), loads_of(code.text)))
        if ptxas.find():
            assert ptxas.assemble(text, "sm_90", "k")[:4] == b"\x7fELF"
        return text.count("L2::cache_hint.v4"), text.count("L2::evict_last")

    def normalized(x: Tensor, w: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), w)

    # 128 MiB are read and written; of each row a thread has two vectors, and two of the weights.
    assert kept(normalized, rand(4096, 4096), rand(4096)) == (4, 1)
    assert kept(normalized, rand(4095, 4096), rand(4096)) == (0, 0)
    # Two tensors are read.
    assert kept(lambda x, y: torch.softmax(x + y, -1), rand(4096, 4096), rand(4096, 4096)) == (0, 0)
    # Less is written than read.
    assert kept(lambda x: torch.softmax(x, -1).half(), rand(8192, 4096)) == (0, 0)


@pytest.mark.parametrize("operator", ["sum", "amax"])
def test_a_reduction_over_five_loops(compiled_ptx: Compile, operator: str) -> None:
    code = compiled_ptx(lambda x: getattr(x, operator)((0, 2, 4, 6, 8)), rand(2, 3, 2, 3, 2, 3, 2, 3, 2, 3))
    assert code.kernels == 1


def test_what_only_constants_make_is_native(compiled_ptx: Compile) -> None:
    # LLVM writes one word twice by a product with 2**32 + 1; a single element leaves no loop at all.
    for count, dtype in ((11, torch.float16), (1001, torch.float32), (1, torch.bfloat16), (3, torch.uint8)):
        compiled_ptx(lambda x, n=count, d=dtype: torch.arange(n, dtype=d), rand(1))
        compiled_ptx(lambda x, n=count, d=dtype: torch.ones(n, dtype=d), rand(1))


def test_pooling_of_two_stores_pairs_of_words(compiled_ptx: Compile) -> None:
    # Rows of 28 are no whole vectors: four elements are stored, and eight of each of two rows read.
    code = compiled_ptx(lambda x: F.max_pool2d(x, 2), rand(1, 2, 56, 56, dtype=torch.bfloat16))
    assert (code.loads, code.wide_loads, code.count(r"st\.global\S*\.b64")) == (2, 2, 1)


def test_a_bad_index_ends_the_kernel_after_all_loads(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda w, i: F.embedding(i, w) * 2, rand(100, 31), torch.randint(0, 100, (400,)))
    assert code.count(r"\btrap;") == code.count(r"\bret;")
    assert code.code.rindex("ld.global") < code.code.index("trap;")


def test_a_reversed_operand_is_read_in_vectors(compiled_ptx: Compile) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        code = compiled_ptx(lambda x: x.flip(-1) + x, rand(16, 64, dtype=dtype))
        assert code.wide_loads == code.loads == 2


def test_constants_are_rounded_on_the_gpu(compiled_ptx: Compile) -> None:
    # Where whole blocks are padding Halide would compute what they store on the host, which cannot round it.
    compiled_ptx(lambda x: F.pad(x, (1, 3, 2, 2)) * 2, rand(2100, 1101, dtype=torch.bfloat16))


@pytest.mark.parametrize("name", ["exp", "tanh", "sin", "bfloat16"])
def test_what_is_the_same_for_all_threads_is_computed_on_the_gpu(programs: Compile, to_ptx: Compile, name: str) -> None:
    # The host has none of the instructions: blocks of padding, one chunk of positions, positions of a loop's steps.
    def made(x: Tensor) -> Tensor:
        return getattr(x, name)()

    def positions(count: int) -> Tensor:
        return torch.arange(count, dtype=torch.float32) / 2

    for function, operand in (
        (lambda x: made(F.pad(x, (1, 3, 2, 2))) * 2, rand(2100, 1101)),
        (lambda x: x + made(positions(8)).float(), rand(100, 8)),
        (lambda x: made(positions(8)).expand(100, 8) * 2, rand(1)),
        (lambda x: (x * made(positions(64))[:, None]).sum(0), rand(64, 1000)),
    ):
        for program in programs(function, operand):
            assert to_ptx(program).kernels == 1


def test_a_division_by_a_constant_has_no_branch(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: x / 12_100, rand(1024))
    assert code.count(r"div\.rn") == code.count(r"\bbra\b") == 0


def test_roots_and_reciprocals_have_no_branch_where_16_bits_are_left(compiled_ptx: Compile) -> None:
    def scaled(x: Tensor, variance: Tensor) -> Tensor:
        return x * (1 / (variance.float() + 1).sqrt())

    rounded = compiled_ptx(lambda x, v: scaled(x, v).to(x.dtype), *(rand(1024, dtype=torch.bfloat16),) * 2)
    assert (rounded.count(r"sqrt\.rn"), rounded.count(r"rcp\.rn"), rounded.count(r"sqrt\.approx\.f32")) == (0, 0, 8)
    joint = compiled_ptx(scaled, rand(1024), rand(1024))
    assert (joint.count(r"rsqrt\.approx\.f32"), joint.count(r"sqrt\.rn|rcp\.rn")) == (4, 0)
    shown = compiled_ptx(lambda x, v: x * (1 / (v + 2)) + (v + 1).sqrt(), rand(1024), rand(1024))
    assert (shown.count(r"sqrt\.rn"), shown.count(r"rcp\.rn")) == (4, 4)
    assert shown.count(r"sqrt\.approx|div\.full") == 0
    steps = compiled_ptx(lambda v: torch.floor(v.sqrt()), rand(1024, dtype=torch.bfloat16))
    assert steps.count(r"sqrt\.approx") == 0


def test_a_sine_takes_the_long_way_behind_a_branch(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: x.sin(), rand(1024))
    assert code.count(r"@small bra") == code.count(r"cvt\.rn\.f32\.f64") == 4


def test_concatenation_reads_vectors_behind_its_masks(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x, y: F.pad(x, (0, 64)) + y, rand(8, 64), rand(8, 128))
    assert code.wide_loads == code.loads == 2


def test_dropout_draws_random_numbers(compiled_ptx: Compile) -> None:
    assert compiled_ptx(lambda x: torch.rand_like(x) * x, rand(64, 64)).count(r"mul\.(wide|hi)\.u32") > 0


def added_rows(programs: Compile, dtype: str, rows: int, columns: int) -> Any:
    """The program that adds rows of `dtype`, which on a CPU is eager's where the numbers have 16 bits."""
    *_, program = programs(
        lambda x, i, s: x.index_add(0, i, s), rand(100, columns), torch.randint(0, 100, (rows,)), rand(rows, columns)
    )

    def retyped(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(item, dtype=dtype) if item.dtype == "float32" else item for item in items)

    changed = {name: retyped(getattr(program, name)) for name in ("inputs", "outputs", "values")}
    return replace(program, **changed)


@pytest.mark.parametrize(("dtype", "kind"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_numbers_of_16_bits_are_added_four_at_a_time(programs: Compile, to_ptx: Compile, dtype: str, kind: str) -> None:
    # With 501 rows the last block has less to do.
    for rows, columns, instruction in (
        (500, 64, f"add.noftz.v4.{kind}"),
        (501, 64, f"add.noftz.v4.{kind}"),
        (501, 66, f"add.noftz.v2.{kind}"),
        (500, 65, f"add.noftz.{kind}"),
    ):
        code = to_ptx(added_rows(programs, dtype, rows, columns))
        assert (code.count(r"\bred\."), code.code.count(instruction), code.stores) == (1, 1, 0)
        assert ".local" not in code.code and code.kernels == 1


def test_a_vector_is_added_at_once_where_the_last_block_is_short(programs: Compile, to_ptx: Compile) -> None:
    assert to_ptx(added_rows(programs, "float32", 501, 64)).count(r"\bred\.") == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_bytes_are_added_as_parts_of_a_word(programs: Compile, to_ptx: Compile, dtype: str) -> None:
    code = to_ptx(added_rows(programs, dtype, 500, 64))
    assert (code.count(r"\.cas\.b32"), code.stores) == (1, 0)


def test_an_atomic_addition_of_bool_is_refused(programs: Compile) -> None:
    with pytest.raises(Unsupported, match="atomic addition of bool"):
        cuda_kernel_text(added_rows(programs, "bool", 500, 64))


def test_float8_is_refused(programs: Compile) -> None:
    (program,) = programs(lambda x: x.to(torch.float32), torch.zeros(64).to(torch.float8_e5m2))
    with pytest.raises(Unsupported, match="float8_e5m2 on a GPU"):
        cuda_kernel_text(program)


def test_equal_programs_have_equal_texts(programs: Compile) -> None:
    first, second = (programs(lambda x: torch.softmax(x, -1), rand(16, 1024))[0] for _ in range(2))
    assert cuda_kernel_text(first) == cuda_kernel_text(second)


@pytest.mark.parametrize("name", ["hermite_polynomial_h", "legendre_polynomial_p"])
def test_a_recurrence_ends_where_its_degree_says(compiled_ptx: Compile, name: str) -> None:
    """Halide cuts a scalar loop at its predicate; in a vector it would run through 2**31 steps."""
    code = compiled_ptx(lambda x, n: getattr(torch.special, name)(x, n), rand(64, 64), rand(64, 64) * 9)
    assert code.wide_loads == 0
    # The loop's end is the smaller of the degree and the largest one.
    assert code.count(r"min\.u32.*, 2147483646;") == 1


@pytest.mark.parametrize("dtype, kind", [(torch.float32, "f32"), (torch.float64, "f64")])
def test_rounding_and_roots_are_one_instruction_each(compiled_ptx: Compile, dtype: torch.dtype, kind: str) -> None:
    x = torch.rand(64, 1024, dtype=dtype)
    code = compiled_ptx(lambda x: x.floor() + x.ceil() * x.trunc() - x.sqrt(), x)
    for instruction in ("cvt.rmi", "cvt.rpi", "cvt.rzi"):
        assert code.count(rf"{instruction}\.{kind}\.{kind}") == 16 * 8 // torch.finfo(dtype).bits
    assert code.count(rf"sqrt\.rn\.{kind}") == 16 * 8 // torch.finfo(dtype).bits


@pytest.mark.parametrize("count", [1, 9, 1000])
def test_a_binary_search_stays_among_its_boundaries(
    compiled_ptx: Compile, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Where Halide proves that a step is in range, it drops the bounds of the load, and refuses it as unbounded."""
    searching = OrderedSet([BackendFeature.BUCKETIZE])
    monkeypatch.setattr(HalideScheduling, "get_backend_features", lambda *_: searching)
    code = compiled_ptx(torch.bucketize, torch.randn(1000), torch.randn(count).sort()[0])
    # A pair of values, the middle boundary, and one for each of them in every other step.
    assert code.loads == 2 + 2 * (count.bit_length() - 1)


@pytest.mark.parametrize("shape", [(5, 5), (33, 64), (33, 65)], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        torch.igamma,
        lambda a, x: torch.igammac(a, x[:, :1]).sum(1),
    ],
)
def test_a_loop_in_an_operation(compiled_ptx: Compile, function: Callable[..., Any], shape: tuple[int, int]) -> None:
    """Its Func takes the variables of the loops that the axes were made into."""
    assert compiled_ptx(function, torch.rand(shape), torch.rand(shape)).loads


def test_lines_of_an_operation_with_a_loop_are_a_warp_s(compiled_ptx: Compile) -> None:
    """Warps cannot exchange behind a loop that some of their lanes have left."""
    code = compiled_ptx(lambda a, x: torch.softmax(torch.igammac(a, x), 1), torch.rand(33, 65), torch.rand(33, 65))
    assert code.count(r"bar\.sync") == 0 and code.count(r"shfl\.sync\.bfly") >= 2 * 5
    (program,) = programs_of(lambda a, x: torch.igammac(a, x).sum(1), (torch.rand(33, 1000), torch.rand(33, 1000)))
    tiling = plan_kernel(program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None and tiling.threads == 32


def tiling_of(function: Callable[..., Any], *operands: Tensor) -> Tiling:
    """The tiling of its last kernel."""
    found = plan_kernel(programs_of(function, operands)[-1], device_of(TARGET)).plan.mapping.tiling
    assert found is not None
    return found


def test_results_that_are_wider_are_stored_in_one_vector() -> None:
    x = rand(8192, 1024, dtype=torch.bfloat16)
    assert tiling_of(lambda x: torch.softmax(x, -1), x).elements == 8
    assert tiling_of(lambda x: torch.softmax(x, -1, dtype=torch.float32), x).elements == 4


def test_masks_alone_are_not_kept_in_more_threads() -> None:
    x, mask = rand(8192, 4096), torch.ones(8192, 4096, dtype=torch.bool)
    assert tiling_of(lambda x, m: (x * m).sum(-1) / m.sum(-1), x, mask).threads == 256
    assert tiling_of(lambda x: torch.softmax(x, -1), x).threads == 512


def test_what_only_stores_has_large_blocks() -> None:
    x, rows = rand(4096, 4096, dtype=torch.bfloat16), torch.arange(1024)
    stored = tiling_of(lambda x, i: x.index_fill(0, i, 3.0), x, rows)
    assert (stored.threads, stored.unroll) == (512, 8)
    added = tiling_of(lambda x, i, y: x.float().index_add(0, i, y), x, rows, rand(1024, 4096))
    assert added.threads == 128


@pytest.mark.skipif(not ptxas.find(), reason="no ptxas on this machine")
def test_large_blocks_have_fewer_registers_if_one_more_fits_on_an_sm(compiled_ptx: Compile) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), rand(2048, 8192, dtype=torch.bfloat16))
    text = code.text.replace("\nREGISTERS = 0.8\n", "\nREGISTERS = 'auto'\n")
    assert text != code.text
    free = replace(code, image=compile_kernel(text, TARGET, "kernel_under_test").image)
    assert code.registers < free.registers <= code.registers / 0.8


def test_a_row_too_long_for_shared_memory_is_read_twice_for_the_place_of_its_maximum(compiled_ptx: Compile) -> None:
    """12,000 floats and what warps exchange were 52,096 bytes: the kernel was refused, and left to Triton."""
    code = compiled_ptx(lambda x: x.argmax(), rand(6, 50, 40))
    shared = [int(number) for number in re.findall(r"\.shared .*\[(\d+)\]", code.code)]
    assert sum(shared) < 4096
    assert compiled_ptx(lambda x: x.argmax(-1), rand(64, 12_000)).kernels == 1
