"""Test the reader of device code in libraries, and the lists in framework.toml."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from kit.environments import device_code
from kit.environments.package_sources import Sources
from kit.model.device_code import DeviceCode
from kit.model.environment import Framework
from kit.model.errors import ImageError
from kit.planning import catalog
from scenarios.contract.cell import Device

LTO_IR = 8
LOCK = """# comment
nvidia-example==1.2 \\
    --hash=sha256:00 \\
    --hash=sha256:01
nvidia-example-more==3 \\
    --hash=sha256:02
"""


def entry(name: str, kind: int | None = None) -> bytes:
    """Return an entry as nvcc writes it, with incompressible content."""
    code = DeviceCode.parse(name)
    kind = kind or (device_code.PTX if code.ptx else device_code.MACHINE_CODE)
    content = random.Random(name).randbytes(40)
    major, minor = code.ptx or (1, 8)
    flags = 0x8011 | {"": 0, "a": 0x100000, "f": 0x200000}[code.variant]
    architecture = code.capability[0] * 10 + code.capability[1]
    fields = (kind, 0x0101, 64, len(content), 39, 64, minor, major, architecture, 64, 0, flags)
    return struct.pack("<HHIQIIHHIIIQ16x", *fields) + content


def fat_binary(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def library(*binaries: bytes) -> bytes:
    """Return the binaries with other bytes between them, some of which look like the start of a fat binary."""
    noise = b"\x7fELF" + b"".join(
        [
            struct.pack("<IHHQ", 0xBA55ED50, 0, 16, 24),
            struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60),
            struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 8) + b"\xff" * 80,
        ]
    )
    return noise + noise.join(binaries) + noise + noise[4:12]


@pytest.mark.parametrize("name", ["sm_75", "sm_120a", "sm_100f", "compute_90+ptx85", "compute_120f+ptx95"])
def test_a_name_is_read_and_written(name):
    assert str(DeviceCode.parse(name)) == name


@pytest.mark.parametrize(
    ("name", "runs", "fails"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0), (9, 0)]),
        ("sm_90a", [(9, 0)], [(8, 9), (10, 0)]),
        ("sm_120a", [(12, 0)], [(12, 1)]),
        ("sm_100f", [(10, 0), (10, 3)], [(9, 0), (11, 0), (12, 0)]),
        ("compute_90+ptx85", [(9, 0), (10, 0), (12, 1)], [(8, 9)]),
        ("compute_90a+ptx85", [(9, 0)], [(10, 0)]),
        ("compute_120f+ptx95", [(12, 0), (12, 1)], [(10, 0), (13, 0)]),
    ],
)
def test_code_runs_on_the_gpus_that_nvidia_names(name, runs, fails):
    code = DeviceCode.parse(name)
    assert [capability for capability in runs + fails if code.runs_on(capability)] == runs


@pytest.mark.parametrize(("ptx", "cuda"), [("80", (12, 0)), ("85", (12, 5)), ("87", (12, 8)), ("90", (13, 0))])
def test_ptx_needs_the_driver_of_its_cuda_release(ptx, cuda):
    assert DeviceCode.parse(f"compute_75+ptx{ptx}").min_cuda == cuda
    assert DeviceCode.parse("sm_75").min_cuda == (0, 0)


def test_the_device_code_of_a_library_is_read(tmp_path):
    usual = [entry(name) for name in ("sm_75", "sm_90", "sm_120a", "compute_90+ptx83")]
    newer = [entry("sm_75"), entry("compute_90+ptx85"), entry("sm_100f"), entry("sm_50", LTO_IR)]
    content = library(*[fat_binary(*usual)] * 5, fat_binary(*newer))
    first, *_, last = device_code.fat_binaries(content)
    assert list(map(str, first)) == ["sm_75", "sm_90", "sm_120a", "compute_90+ptx83"]
    assert list(map(str, last)) == ["sm_75", "compute_90+ptx85", "sm_100f"]
    file = tmp_path / "libexample.so"
    file.write_bytes(content)
    assert list(map(str, device_code.read(file))) == [
        "sm_75",
        "sm_90",
        "sm_120a",
        "compute_90+ptx85",
    ]  # no rare sm_100f


def test_a_library_without_device_code_is_an_error(tmp_path):
    file = tmp_path / "libexample.so"
    file.write_bytes(library())
    with pytest.raises(ImageError, match=r"libexample\.so has no device code"):
        device_code.read(file)


@pytest.fixture
def framework(tmp_path: Path) -> Framework:
    (tmp_path / "cuda.lock").write_text(LOCK)
    (tmp_path / "framework.toml").write_text('title = "Tiny"\n[device_code]\n"nvidia-example==1.0/libone.so.1" = []\n')
    devices: tuple[Device, ...] = ("cpu", "cuda")
    return Framework("tiny", "Tiny", devices, (), 13, 580, {}, tmp_path)


def test_the_lists_are_written_with_the_versions_of_the_lock(framework, monkeypatch):
    downloaded = []

    def download(requirement, folder, sources):
        downloaded.append(requirement)
        (folder / "lib").mkdir()
        (folder / "lib" / "libone.so.1").write_bytes(library(fat_binary(entry("sm_75"), entry("sm_90a"))))

    monkeypatch.setattr(device_code, "download", download)
    device_code.update(framework, Sources())
    assert downloaded == ["nvidia-example==1.2 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"]
    assert (framework.folder / "framework.toml").read_text() == (
        'title = "Tiny"\n[device_code]\n"nvidia-example==1.2/libone.so.1" = ["sm_75", "sm_90a"]\n'
    )


@pytest.mark.parametrize(
    ("lock", "words"), [("", "The CUDA lock has no nvidia-example"), (LOCK, "nvidia-example 1.2 has no libone")]
)
def test_a_missing_package_or_library_is_an_error(framework, monkeypatch, lock, words):
    (framework.folder / "cuda.lock").write_text(lock)
    monkeypatch.setattr(device_code, "download", lambda *arguments: None)
    with pytest.raises(ImageError, match=words):
        device_code.update(framework, Sources())


def test_the_lists_of_all_frameworks_belong_to_their_locks():
    for framework in catalog.frameworks().values():
        lock = (framework.folder / "cuda.lock").read_text()
        for library_name in framework.device_code or {}:
            assert f"\n{library_name.partition('/')[0]} \\\n" in lock, "run python -m kit.environments.device_code"


@pytest.mark.parametrize("name", ["onnxruntime", "torch"])
def test_the_runtime_compiler_is_no_newer_than_the_oldest_driver(name):
    """Driver 580 is that of CUDA 13.0. It cannot compile the PTX that NVRTC of a later release may write.

    TensorFlow needs NVRTC 12.5 or newer. NVIDIA (cuDNN's support matrix) and TensorFlow support it with driver 525.
    """
    framework = catalog.frameworks()[name]
    lock = (framework.folder / "cuda.lock").read_text()
    assert framework.min_driver == 580
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime"):
        assert f"\n{package}==13.0." in lock
