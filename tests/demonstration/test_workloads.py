"""The demo's models compute what they say: each is held against something that is not itself."""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch

from halide_backend.demonstration import photograph, residual_network, source_text, transformer
from halide_backend.demonstration.catalogue import ROWS, workloads
from halide_backend.demonstration.training import Training
from halide_backend.demonstration.workload import Workload

ALL = workloads()
each_workload = pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)


def eager(function: object) -> object:
    return function


def test_the_rows_known_to_the_command_line_are_the_workloads() -> None:
    by_model: dict[str, tuple[str, ...]] = {}
    for workload in ALL:
        by_model[workload.model] = (*by_model.get(workload.model, ()), workload.name)
    assert by_model == ROWS


@each_workload
def test_values_repeat_and_have_tolerances(workload: Workload) -> None:
    first, second = (workload.start(eager, True).values() for _ in range(2))
    assert set(first) == set(workload.tolerances)
    for name, value in first.items():
        assert value.isfinite().all()
        # Zeros would be right within any tolerance.
        assert value.std() > 1e-4
        torch.testing.assert_close(value, second[name], rtol=0, atol=0)


@each_workload
def test_values_hold_still_while_steps_go_on(workload: Workload) -> None:
    trial = workload.start(eager, True)
    values = trial.values()
    kept = {name: value.clone() for name, value in values.items()}
    trial.step()
    assert all(torch.equal(values[name], kept[name]) for name in kept)


@pytest.mark.parametrize("training", [transformer.training, residual_network.training])
def test_training_lowers_the_loss(training: Callable[..., Training]) -> None:
    trial = training(eager, True)
    first = float(trial.step())
    for _ in range(30):
        last = float(trial.step())
    assert last < 0.9 * first


def test_an_untrained_model_knows_nothing_of_bytes() -> None:
    losses = transformer.training(eager, False).values()["loss curve"]
    assert float(losses[0]) == pytest.approx(math.log(256), rel=0.1)


def test_attention_sees_no_later_byte() -> None:
    torch.manual_seed(0)
    model = transformer.Transformer(transformer.QUICK).eval()
    text = torch.arange(32)[None]
    other = text.clone()
    other[0, 20] = 200
    with torch.no_grad():
        same, different = (model(text) - model(other))[0].abs().amax(dim=1).split([20, 12])
    assert same.max() == 0
    assert different[0] > 1e-3


def test_attention_equals_torchs_own() -> None:
    torch.manual_seed(0)
    attention = transformer.Attention(transformer.QUICK)
    x = torch.randn(2, 32, 32)
    q, k, v = (p.view(2, 32, 2, 16).transpose(1, 2) for p in attention.project_in(x).chunk(3, -1))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = attention.project_out(mixed.transpose(1, 2).reshape(2, 32, 32))
    torch.testing.assert_close(attention(x), expected)


def test_the_text_is_the_standard_librarys() -> None:
    first = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[0]
    beginning = first.read_bytes()[:100]
    assert bytes(source_text.tokens(len(beginning)).tolist()) == beginning


def test_a_target_is_its_input_one_byte_on() -> None:
    pairs = source_text.batches(3, 2, 5)
    text = source_text.tokens(33).tolist()
    for number, (given, following) in enumerate(pairs):
        start = number * 11
        assert given.flatten().tolist() == text[start : start + 10]
        assert following.flatten().tolist() == text[start + 1 : start + 11]


def test_crops_carry_the_cell_they_come_from() -> None:
    picture = photograph.load()
    ((pieces, cells),) = residual_network.crops(1, 5)
    height, width = picture.shape[1] - 32, picture.shape[2] - 32
    windows = picture.unfold(1, 32, 1).unfold(2, 32, 1)
    for piece, cell in zip(pieces, cells.tolist(), strict=True):
        rows, columns = cell // 4, cell % 4
        region = windows[
            :,
            -(-rows * height // 4) : -(-(rows + 1) * height // 4),
            -(-columns * width // 4) : -(-(columns + 1) * width // 4),
        ]
        corner = region[:, :, :, 0, 0] == piece[:, 0, 0].view(3, 1, 1)
        places = corner.all(dim=0).nonzero().tolist()
        assert any(torch.equal(region[:, y, x], piece) for y, x in places)


def test_blur_is_convolution_with_a_gaussian() -> None:
    generator = numpy.random.default_rng(0)
    row = generator.random(40)
    offsets = numpy.arange(-6, 7)
    weights = numpy.exp(-(offsets**2) / 8.0)
    expected = numpy.convolve(row, weights / weights.sum(), mode="valid")
    picture = torch.from_numpy(row).expand(13, 40)
    torch.testing.assert_close(photograph.blur(picture, 2.0)[0], torch.from_numpy(expected))
    torch.testing.assert_close(photograph.blur(picture.T, 2.0)[:, 0], torch.from_numpy(expected))


def test_corners_of_a_square_are_its_four_corners() -> None:
    picture = torch.zeros(3, 64, 80)
    picture[:, 20:40, 30:60] = 1.0
    _, _, measure, _ = photograph.pipeline(picture)
    found = sorted((measure > 0.5).nonzero().tolist())
    assert measure.max() == 1.0
    assert len(found) == 4
    for (y, x), (top, left) in zip(found, [(20, 30), (20, 59), (39, 30), (39, 59)], strict=True):
        assert abs(y - top) <= 2 and abs(x - left) <= 2


def test_a_flat_picture_has_no_detail() -> None:
    picture = torch.full((3, 40, 50), 0.25)
    blurred, sharpened, _, contrast = photograph.pipeline(picture)
    torch.testing.assert_close(blurred, picture)
    torch.testing.assert_close(sharpened, picture)
    torch.testing.assert_close(contrast, torch.full((40, 50), 0.5), rtol=0, atol=1e-3)


def test_pictures_are_written_and_the_first_is_the_photograph(tmp_path: Path) -> None:
    from PIL import Image

    trial = photograph.Pipeline(eager, True)
    files = photograph.write_pictures(trial, tmp_path / "new")
    assert [file.name for file in files] == [
        "before.png",
        "after-blur.png",
        "after-sharpen.png",
        "after-corners.png",
        "after-local-contrast.png",
    ]
    with Image.open(files[0]) as before:
        pixels = numpy.asarray(before)
    expected = (trial.before * 255).round().permute(1, 2, 0).numpy()
    assert (pixels == expected).all()
    # Green dots, and only a few of them.
    with Image.open(files[3]) as marked:
        dots = (numpy.asarray(marked) == (0, 255, 0)).all(axis=2).mean()
    assert 0.001 < dots < 0.2
