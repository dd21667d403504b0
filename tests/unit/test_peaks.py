"""Test the table of data-sheet peaks: which board a name belongs to, and that the figures are dense."""

from __future__ import annotations

import pytest

from kit.analysis.peaks import _PEAKS, peak


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H200", "bf16", 989.4),
        ("NVIDIA H100 80GB HBM3", "fp32", 66.9),
        ("NVIDIA H100 PCIe", "fp32", 51.2),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("A100-PCIE-40GB", "bf16", 312),
        ("NVIDIA A10", "tf32", 62.5),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla V100-SXM2-32GB", "fp32", 15.7),
        ("Tesla T4", "fp32", 8.1),
    ],
)
def test_a_name_in_nvml_s_spelling_finds_its_board(name, precision, tera):
    found = peak(name)
    assert found
    assert found.flops(precision) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA A10G",
        "Tesla V100S-PCIE-32GB",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "Example",
        "",
    ],
)
def test_a_board_with_other_clocks_or_memory_has_no_peak(name):
    assert peak(name) is None


def test_the_memory_distinguishes_boards_with_the_same_name():
    assert [peak(n).memory / 1e9 for n in ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB")] == [2039, 1555]


def test_gpus_before_ampere_have_no_peak_for_tf32_and_bf16():
    for name in ("Tesla V100-PCIE-16GB", "Tesla T4", "Tesla P100-SXM2-16GB"):
        assert peak(name).flops("tf32") is None
        assert peak(name).flops("bf16") is None


@pytest.mark.parametrize("found", [found for _, found in _PEAKS], ids=lambda found: found.gpu)
def test_all_peaks_are_dense(found):
    """Tensor cores compute bf16 at twice the rate of tf32, so a row that mixes dense and sparse figures fails.

    No GPU of the table has a dense PFLOP/s.
    """
    assert found.source
    assert found.fp32 < 1e14
    assert 1e11 < found.memory < 1e13
    if found.bf16 is not None:
        assert found.bf16 / found.tf32 == pytest.approx(2, rel=0.02)
        assert found.bf16 < 1e15
