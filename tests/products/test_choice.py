from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import halide_backend
from halide_backend.products import calibration_store
from halide_backend.products.calibration import SIZES, Calibration, measure
from halide_backend.products.choice import Choice
from halide_backend.products.processor import Processor
from halide_backend.products.product import ATEN, ONEDNN, Product
from halide_backend.products.rule import by_rule

ZEN_5 = Processor("AuthenticAMD", 26, "AMD EPYC")
ZEN_4 = Processor("AuthenticAMD", 25, "AMD EPYC")
XEON = Processor("GenuineIntel", 6, "Intel(R) Xeon(R) Processor")

LARGE = Product(512, 3072, 768, "nt")


@pytest.fixture(autouse=True)
def cache(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path))


def here(**settings: object) -> Choice:
    with halide_backend.config.patch(**settings):
        return Choice.of_this_process()


@pytest.mark.parametrize(
    ("processor", "product", "library"),
    [
        (ZEN_5, LARGE, ONEDNN),
        (ZEN_5, Product(8, 768, 768, "nn"), ONEDNN),
        (ZEN_5, Product(1, 4096, 4096, "nt"), ATEN),
        (ZEN_5, Product(2048, 2, 4096, "nn"), ATEN),
        (ZEN_5, Product(64, 64, 64, "tn"), ATEN),
        (ZEN_4, LARGE, ATEN),
        (XEON, LARGE, ATEN),
        (Processor(), LARGE, ATEN),
    ],
)
def test_the_rule_follows_the_family_and_leaves_small_products(
    processor: Processor, product: Product, library: str
) -> None:
    assert by_rule(product, processor) == library


def test_a_processor_is_read_from_what_linux_says() -> None:
    text = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\n"
        "processor\t: 1\nvendor_id\t: Other\n"
    )
    assert Processor.read(text) == ZEN_5
    assert Processor.read("Processor : ARMv8\n") == Processor()


def test_what_was_measured_goes_before_the_rule() -> None:
    slower = measure(lambda _: (1.0, 1.0 / 1.04))
    faster = measure(lambda _: (1.0, 1.0 / 1.06))
    rule = Choice("auto", "", ZEN_5, None)
    assert rule.library(LARGE) == ONEDNN
    assert replace(rule, calibration=slower).library(LARGE) == ATEN
    assert replace(rule, processor=XEON, calibration=faster).library(LARGE) == ONEDNN
    texts = {rule.digest(), replace(rule, calibration=slower).digest(), replace(rule, calibration=faster).digest()}
    assert len(texts) == 3


def test_the_option_goes_before_everything_but_torchs_settings() -> None:
    assert here(product_library="aten").library(LARGE) == ATEN
    small = Product(1, 1, 1, "nn")
    assert here(product_library="onednn").library(small) == ONEDNN
    with torch.backends.mkldnn.flags(enabled=False):
        choice = here(product_library="onednn")
        assert choice.library(LARGE) == ATEN
        assert choice.describe() == "ATen, because of torch.backends.mkldnn.enabled = False"


def test_determinism_and_lower_precision_keep_products_with_aten() -> None:
    try:
        torch.use_deterministic_algorithms(True)
        assert here(product_library="onednn").library(LARGE) == ATEN
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.backends.mkldnn.flags(enabled=True, deterministic=True):
        assert here(product_library="onednn").library(LARGE) == ATEN
    try:
        torch.set_float32_matmul_precision("medium")
        assert here(product_library="onednn").library(LARGE) == ATEN
    finally:
        torch.set_float32_matmul_precision("highest")
    assert here(product_library="onednn").library(LARGE) == ONEDNN


def test_a_calibration_is_found_for_its_number_of_threads_alone() -> None:
    calibration = measure(lambda _: (2.0, 1.0))
    threads = torch.get_num_threads()
    calibration_store.save(calibration, threads)
    assert calibration_store.load(threads) == calibration
    assert calibration_store.load(threads + 1) is None
    assert here().describe() == "measured here: oneDNN is faster than ATen in 375 of 375 products"
    assert calibration_store.discard(threads) and not calibration_store.discard(threads)
    assert here().calibration is None


@pytest.mark.parametrize("changed", ["torch", "processor"])
def test_a_calibration_is_forgotten_with_another_torch_or_processor(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration_store.save(measure(lambda _: (2.0, 1.0)), 1)
    if changed == "torch":
        monkeypatch.setattr(calibration_store, "installed_version", lambda _: "0.0")
    else:
        other = replace(Processor.host(), name="another")
        monkeypatch.setattr(Processor, "host", staticmethod(lambda: other))
    assert calibration_store.load(1) is None


def test_a_damaged_calibration_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    good = measure(lambda _: (2.0, 1.0)).to_json()
    for damaged in ({}, {**good, "sizes": [1]}, {**good, "gains": {**good["gains"], "nn": [0.0] * 125}}, "text"):
        with pytest.raises(ValueError, match="calibration"):
            Calibration.from_json(damaged)
        monkeypatch.setattr(Calibration, "to_json", lambda _, damaged=damaged: damaged)
        calibration_store.save(Calibration({}), 1)
        assert calibration_store.load(1) is None


def test_gains_are_interpolated_between_points_and_held_beyond() -> None:
    # A gain that is a product of powers of the sides is a plane in logarithms, which interpolation keeps.
    def gain(product: Product) -> float:
        return float(product.m**0.5 * product.n**-0.25 * product.k**0.125)

    calibration = measure(lambda product: (gain(product), 1.0))
    for product in (Product(3, 700, 30, "tn"), Product(8, 8, 8, "nn"), Product(1, 2048, 512, "nt")):
        assert calibration.gain(product) == pytest.approx(gain(product), rel=1e-12)
    beyond = Product(100_000, 5, 4096, "nn")
    assert calibration.gain(beyond) == pytest.approx(gain(replace(beyond, m=SIZES[-1], k=SIZES[-1])), rel=1e-12)
