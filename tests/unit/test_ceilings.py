"""Ceilings, measured through an adapter whose kernels take as long as the test defines."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from PIL import Image

from scenarios import launch, worker
from scenarios.adapter import DeviceUnavailable, NotOffered
from scenarios.contract.cell import Cell
from scenarios.contract.codec import from_json, write
from scenarios.contract.reasons import Code, Status
from scenarios.contract.request import RESULT_FILE
from scenarios.contract.result import Result
from scenarios.linux.caches import last_cache_bytes
from scenarios.measuring import ceilings, step_timing
from tests import examples

MIB = 1 << 20
FLOPS = {1024: 2e11, 2048: 3e11, 4096: 5e13, 8192: 4e13, "nchw": 7e12, "nhwc": 6e12}
KERNELS = ("matmul", "convolution nchw", "convolution nhwc", "memory", "upload", "launch")


class Machine:
    """A clock, and an adapter whose kernels move it.

    The speeds are: matmul and convolution as in FLOPS, memory 4e10 B/s, upload 2e10 B/s, launch 5 us, photos
    500/s. Every second run of a kernel takes 10% longer.
    """

    def __init__(self):
        self.now = 0.0
        self.offered = KERNELS
        self.runs = 0

    def monotonic(self):
        return self.now

    def decode(self, photo, flags):
        assert flags == ceilings.cv2.IMREAD_COLOR
        self.now += 0.002

    def kernel(self, name, size):
        if name not in self.offered:
            raise NotOffered(f"no {name} here")
        seconds = {
            "matmul": lambda: 2 * size**3 / FLOPS[size],
            "convolution nchw": lambda: 2 * size * 56**2 * 64**2 * 9 / FLOPS["nchw"],
            "convolution nhwc": lambda: 2 * size * 56**2 * 64**2 * 9 / FLOPS["nhwc"],
            "memory": lambda: 2 * size / 4e10,
            "upload": lambda: size / 2e10,
            "launch": lambda: 5e-6,
        }[name]()

        def run(count):
            self.runs += 1
            self.now += count * seconds * (1.1 if self.runs % 2 else 1.0)

        return run


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(step_timing, "time", made)
    monkeypatch.setattr(ceilings, "cv2", SimpleNamespace(imdecode=made.decode, IMREAD_COLOR=ceilings.cv2.IMREAD_COLOR))
    monkeypatch.setattr(ceilings, "SECONDS", 0.3)
    return made


@pytest.mark.parametrize(("device", "size"), [("cpu", 2048), ("cuda", 4096)])
def test_each_ceiling_is_the_best_sample_at_its_best_size(machine, device, size):
    names = ["matmul", "convolution", "memory", *(["upload"] if device == "cuda" else []), "launch"]
    found = {ceiling.name: ceiling for ceiling in ceilings.measure(machine, device, "bf16")}
    expected = {"matmul": FLOPS[size], "convolution": 7e12, "memory": 4e10, "upload": 2e10, "launch": 5e-6}
    assert list(found) == [*names, "jpeg"]
    for name in names:
        ceiling = found[name]
        assert ceiling.value == pytest.approx(expected[name], rel=1e-3)
        assert ceiling.value == (min if name == "launch" else max)(ceiling.samples)
        assert len(ceiling.samples) >= 5
        assert len({round(sample / ceiling.value, 2) for sample in ceiling.samples}) == 2
        assert ceiling.precision == ("bf16" if name in ("matmul", "convolution") else "")
    assert str(size) in found["matmul"].detail
    assert {name: ceiling.unit for name, ceiling in found.items() if name != "upload"} == {
        "matmul": "FLOP/s",
        "convolution": "FLOP/s",
        "memory": "B/s",
        "launch": "s",
        "jpeg": "images/s",
    }
    assert found["jpeg"].value == pytest.approx(500)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("nchw", "nhwc", "better"), [(7e12, 6e12, "NCHW"), (6e12, 9e12, "NHWC"), (7e12, None, "NCHW"), (None, 6e12, "NHWC")]
)
def test_the_ceiling_of_convolutions_is_that_of_the_better_layout(machine, monkeypatch, device, nchw, nhwc, better):
    speeds = {layout: speed for layout, speed in (("nchw", nchw), ("nhwc", nhwc)) if speed}
    monkeypatch.setattr(f"{__name__}.FLOPS", FLOPS | speeds)
    machine.offered = [name for name in KERNELS if name.split()[-1] not in {"nchw", "nhwc"} - set(speeds)]
    [ceiling] = [ceiling for ceiling in ceilings.measure(machine, device, "fp32") if ceiling.name == "convolution"]
    assert ceiling.value == pytest.approx(max(speeds.values()), rel=1e-3)
    assert ceiling.detail.endswith(f" 3x3, {better}")


def test_a_ceiling_is_missing_if_no_layout_is_offered(machine):
    machine.offered = ["matmul"]
    assert [ceiling.name for ceiling in ceilings.measure(machine, "cpu", "fp32")] == ["matmul", "jpeg"]


def test_the_photo_is_valid_and_always_the_same():
    photo = ceilings.encode_photo()
    assert photo == ceilings.encode_photo()
    assert 20_000 < len(photo) < 45_000
    assert Image.open(io.BytesIO(photo)).size == (500, 375)


def test_memory_is_measured_on_four_times_the_last_level_caches_of_the_cpus_in_use(tmp_path, monkeypatch):
    def cache(cpu, index, level, shared, size):
        folder = tmp_path / f"cpu{cpu}/cache/index{index}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("shared_cpu_list", shared), ("size", size)):
            (folder / name).write_text(f"{value}\n")

    for cpu, group in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (4, "4-5")):
        cache(cpu, 2, 2, str(cpu), "2048K")
        cache(cpu, 3, 3, group, "98304K")
    assert last_cache_bytes([0, 1, 2], tmp_path) == 2 * 96 * MIB
    assert last_cache_bytes([0], tmp_path / "nothing") == 0
    (tmp_path / "cpu4/cache/index3/size").unlink()
    assert last_cache_bytes([4], tmp_path) == 2 * MIB
    for cached, expected in ((0, 256), (40 * MIB, 256), (96 * MIB, 384), (4096 * MIB, 2048)):
        monkeypatch.setattr(ceilings, "last_cache_bytes", lambda _, cached=cached: cached)
        assert ceilings._kernels("cpu")["memory"] == [("memory", expected * MIB)]


def probe(**changes):
    cell = Cell("ceilings", "", "torch", "cpu", 1, "stock", "fp32", 1)
    return replace(examples.request(), cell=cell, spec="", purpose="probe", **changes)


def test_a_probe_needs_neither_scenario_nor_data_and_reports_ceilings_alone(machine, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(launch, "start_adapter", lambda request: machine)
    result = worker.run(probe(), tmp_path, None)
    assert (result.status, result.reason) == (Status.OK, None)
    result.check_against(probe())
    assert (result.timings, result.training, result.evidence) == (None, None, None)
    assert [line.split("] ")[1] for line in capsys.readouterr().out.splitlines() if "] " in line] == [
        "import",
        "ceilings",
    ]
    write(tmp_path / RESULT_FILE, result)
    assert from_json(Result, (tmp_path / RESULT_FILE).read_bytes()) == result


def test_a_probe_that_fails_has_a_result(monkeypatch, tmp_path):
    def unavailable(request):
        raise DeviceUnavailable("no GPU")

    monkeypatch.setattr(launch, "start_adapter", unavailable)
    assert worker.run(probe(), tmp_path, None).status is Status.WRONG_DEVICE
    refused = worker.run(probe(environment={"KIT_TEST_VARIABLE": "1"}), tmp_path, None)
    assert refused.reason
    assert refused.reason.code is Code.MISSING_PROOF
