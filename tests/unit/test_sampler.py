"""Samples of the host: CPU load, clocks, energy counters, GPUs that answer or refuse, and the sampler's thread."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.analysis import host_samples
from kit.analysis.measured_launch import measured_launches
from kit.host.sampling import cpu
from kit.host.sampling.rapl import Counter, Packages
from kit.host.sampling.sampler import Sampler
from kit.model.record import HostSamples
from scenarios.contract.result import Telemetry, Window
from tests import examples
from tests.fakes_nvml import UNSUPPORTED, FakeGpu, Refusal, install

# CPUs 1 and 3 of 4 are offline; CPU 4 is parked and never ran. Columns:
# user nice system idle iowait irq softirq steal guest guest_nice
STAT = """\
cpu  300 0 0 0 0 0 0 0 0 0
cpu0 {user0} 1 2 {idle0} {waiting0} 3 4 {steal0} 50 0
cpu2 {user2} 0 0 {idle2} 0 0 0 0 0 0
cpu4 0 0 0 0 0 0 0 0 0 0
intr 3915701 0 0
ctxt 14
"""
STILL = {"user0": 100, "idle0": 100, "waiting0": 50, "steal0": 10, "user2": 100, "idle2": 100}


def samples(at: list[float], **series: list[float | None]) -> HostSamples:
    return HostSamples(at=at, series=series, core_busy=[], cost_s=0.0)


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the kernel counts, in ticks. It is missing until a test writes it."""
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(cpu, "ONLINE", tmp_path / "online")
    (tmp_path / "online").write_text("0,2,4-4\n")
    return tmp_path / "stat"


def test_load_is_the_time_between_readings_per_cpu_and_never_negative(stat):
    load, tick = cpu.Load(), 1 / os.sysconf("SC_CLK_TCK")
    stat.write_text(STAT.format(**STILL))
    assert load.read() == {}  # nothing to compare with
    assert cpu.cpu_times()[0] == cpu.CpuTimes(*(pytest.approx(ticks * tick) for ticks in (110, 10, 150)))
    stat.write_text(STAT.format(**{**STILL, "user0": 101, "idle2": 101}))
    assert load.read() == {}  # too soon: one tick is no measurement
    # CPU 0: 60 busy, 20 stolen, 20 idle while its waiting, as it may, falls. CPU 2: 25 busy, 75 idle.
    stat.write_text(
        STAT.format(
            **{**STILL, "user0": 160, "idle0": 120, "waiting0": 40, "steal0": 30, "user2": 125, "idle2": 175},
        )
    )
    first = load.read()
    assert first["cpu_busy"] == pytest.approx(60 / 90 + 0.25)  # idle and waiting together: 10
    assert first["cpu_steal"] == pytest.approx(20 / 90)
    assert load.core_busy() == pytest.approx([60 / 90, 0.25])


@pytest.mark.parametrize(("online", "numbers"), [("0,2,4-4\n", [0, 2, 4]), ("0-63\n", [0, 1, 2]), (None, [0, 1, 2])])
def test_cpus_have_their_numbers_unless_the_system_shows_other_cpus_than_are_online(stat, online, numbers):
    stat.write_text(STAT.format(**STILL))
    cpu.ONLINE.unlink()
    if online:
        cpu.ONLINE.write_text(online)
    assert list(cpu.cpu_times()) == numbers


def test_without_counted_time_there_is_no_load(stat):
    stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    load = cpu.Load()
    assert (load.read(), load.read(), load.core_busy()) == ({}, {}, [])


def test_without_the_kernels_files_there_is_no_load_and_no_clock(stat, tmp_path):
    load = cpu.Load()
    assert (load.read(), load.read(), load.core_busy()) == ({}, {}, [])
    assert cpu.Clocks(tmp_path, tmp_path / "cpuinfo").read() == {}


def test_clocks_are_those_of_the_cores_and_nominal_clocks_do_not_count(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    block = "cpu MHz\t\t: 1800.500\nflags\t\t: fpu {}\n\nprocessor\t: 1\ncpu MHz\t\t: 2200.500\ncpu MHz\t: 9"
    cpuinfo.write_text(block.format("constant_tsc"))
    assert cpu.Clocks(tmp_path, cpuinfo).read() == {}
    cpuinfo.write_text(block.format("aperfmperf"))
    assert cpu.Clocks(tmp_path, cpuinfo).read() == {"cpu_mhz": 2000.5}
    for number in range(100):
        file = tmp_path / f"cpu{number}/cpufreq/scaling_cur_freq"
        file.parent.mkdir(parents=True)
        file.write_text("3000000\n" if number % 2 else "<unknown>\n")
    clocks = cpu.Clocks(tmp_path, cpuinfo)
    assert [clocks.read() for _ in range(5)] == [{"cpu_mhz": 3000.0}, {}, {}, {}, {"cpu_mhz": 3000.0}]


@given(range_uj=st.integers(1, 1 << 40), first=st.integers(0), steps=st.lists(st.floats(0, 0.999), max_size=20))
def test_a_counter_that_wraps_around_adds_up_to_what_was_spent(range_uj, first, steps):
    truth = first
    counter = Counter(range_uj, truth % range_uj)
    for step in steps:
        truth += int(step * range_uj)
        counter.advance(truth % range_uj)
    assert counter.total_uj == truth - first


def zone(folder: Path, name: str, kind: str, energy: str) -> Path:
    path = folder / name
    path.mkdir(exist_ok=True)
    (path / "name").write_text(f"{kind}\n")
    (path / "max_energy_range_uj").write_text("1000000\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    return path


def test_energy_is_that_of_all_packages_or_missing(tmp_path):
    first = zone(tmp_path, "intel-rapl:0", "package-0", "900000")
    zone(tmp_path, "intel-rapl:1", "package-1", "0")
    zone(tmp_path, "intel-rapl:0:0", "core", "500000")
    whole_computer = zone(tmp_path, "intel-rapl:2", "psys", "500000")
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", "900000")
    packages = Packages(tmp_path)
    assert packages.read() == {"cpu_energy_j": 0.0}
    (first / "energy_uj").write_text("100000\n")  # it wrapped around
    (whole_computer / "energy_uj").write_text("800000\n")
    assert packages.read() == {"cpu_energy_j": pytest.approx(0.2)}
    (first / "energy_uj").unlink()
    assert packages.read() == {}
    assert Packages(tmp_path).read() == {}  # package-1 alone is not the machine
    assert Packages(tmp_path / "absent").read() == {}


def test_series_that_a_gpu_cannot_report_are_missing(monkeypatch):
    busy = FakeGpu(
        uuid="GPU-a",
        use=(97,),
        memory=(2 << 30,),
        power=(310_500,),
        energy=(5_000_000_250, 5_000_155_000),
        temperature=(64,),
        sm_clock=(1980,),
        processes=((7, 8), (7, 8), (8, 4711)),  # 7 has ended; 4711 is the launch's
        reasons=(0x4, 0x4 | 0x8 | 0x40 | 0x1),
    )
    silent = FakeGpu(
        uuid="GPU-b",
        use=(UNSUPPORTED,),
        memory=(UNSUPPORTED,),
        energy=(Refusal(13),),  # FUNCTION_NOT_FOUND: an old driver
        power=(20_000, UNSUPPORTED),
        temperature=(Refusal(15),),  # GPU_IS_LOST
        sm_clock=(UNSUPPORTED,),
        processes=(Refusal(4),),  # NO_PERMISSION
        reasons=(UNSUPPORTED,),
    )
    calls = install(monkeypatch, [FakeGpu(), silent, busy])
    sampler = Sampler(("GPU-a", "1", "9"), interval_s=60)
    sampler.start()
    seen = sampler.stop()
    assert calls == ["init", "shutdown"]
    assert {name: values for name, values in seen.series.items() if name.startswith("gpu")} == {
        "gpu2_use": [0.97, 0.97],
        "gpu2_memory_gib": [2, 2],
        "gpu2_power_w": [310.5, 310.5],
        "gpu2_energy_j": [5_000_000.25, 5_000_155.0],
        "gpu2_temperature_c": [64, 64],
        "gpu2_sm_mhz": [1980, 1980],
        "gpu2_other_processes": [2, 1],
        "gpu2_sw_power_cap": [1, 1],
        "gpu2_hw_slowdown": [0, 1],
        "gpu2_sw_thermal": [0, 0],
        "gpu2_hw_thermal": [0, 1],
        "gpu2_hw_power_brake": [0, 0],
        "gpu1_power_w": [20, None],
    }
    assert HostSamples.model_validate_json(seen.model_dump_json()) == seen


def test_old_drivers_report_throttle_reasons_by_the_former_name(monkeypatch):
    install(monkeypatch, [FakeGpu(reasons=(0x80,))], old_driver=True)
    sampler = Sampler(("0",), interval_s=60)
    sampler.start()
    assert sampler.stop().series["gpu0_hw_power_brake"] == [1, 1]


def test_a_launch_without_gpus_does_not_use_nvml(monkeypatch):
    calls = install(monkeypatch, [FakeGpu()])
    sampler = Sampler((), interval_s=60)
    sampler.start()
    seen = sampler.stop()
    assert calls == []
    assert not any(name.startswith("gpu") for name in seen.series)


def test_an_unexpected_error_ends_the_sampling_and_keeps_earlier_samples(monkeypatch):
    sampler = Sampler((), interval_s=0.01)
    sampler.start()
    monkeypatch.setattr(sampler._load, "read", lambda: 1 / 0)
    seen = sampler.stop()
    assert seen.at
    assert all(len(values) == len(seen.at) for values in seen.series.values())
    assert "ZeroDivisionError" in sampler.failure


def test_an_unexpected_error_at_the_start_does_not_end_the_launch(monkeypatch):
    monkeypatch.setattr("kit.host.sampling.sampler.Packages", lambda: 1 / 0)
    sampler = Sampler((), interval_s=60)
    sampler.start()
    assert sampler.stop().at == []
    assert "ZeroDivisionError" in sampler.failure


@pytest.mark.parametrize("at_the_start", [True, False])
def test_a_driver_that_does_not_answer_does_not_hold_up_the_launch(monkeypatch, at_the_start):
    answers = threading.Event()

    class Wedged(cpu.Clocks):
        def read(self):
            answers.wait(9)
            return super().read()

    sampler = Sampler((), interval_s=0.01, patience_s=0.2)
    if at_the_start:
        monkeypatch.setattr("kit.host.sampling.sampler.Clocks", Wedged)
    sampler.start()
    if not at_the_start:
        sampler._started.wait()
    monkeypatch.setattr(sampler._load, "read", lambda: answers.wait(9) and {})
    seen = sampler.stop()
    answers.set()
    assert "no answer within 0.2 s" in sampler.failure
    assert bool(seen.at) is not at_the_start


def test_the_sampler_samples_at_both_ends_and_between(monkeypatch):
    seconds = itertools.count()

    def cpu_times():
        now = next(seconds)
        return {0: cpu.CpuTimes(busy=now, stolen=now, idle=2 * now), 1: cpu.CpuTimes(busy=now)}

    monkeypatch.setattr(cpu, "cpu_times", cpu_times)
    began = time.monotonic()
    sampler = Sampler((), interval_s=0.01)
    sampler.start()
    while len(sampler._samples) < 3 and sampler.failure is None:
        time.sleep(0.01)
    seen = sampler.stop()
    assert sampler.failure is None
    assert began <= seen.at[0] + 1e-4
    assert seen.at == sorted(seen.at)
    assert len(seen.at) >= 4
    assert seen.series["cpu_busy"] == [None, *[1.25] * (len(seen.at) - 1)]  # the time before is not the launch's
    assert seen.series["cpu_steal"] == [None, *[0.25] * (len(seen.at) - 1)]
    assert seen.core_busy == [0.25, 1.0]
    assert seen.cost_s > 0


def test_the_interval_grows_with_the_age_of_a_long_launch(monkeypatch):
    monkeypatch.setattr("kit.host.sampling.sampler.STEADY_INTERVALS", 2)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    sampler = Sampler((), interval_s=0.5)
    for began_at, pause_s in ((100.0, 0.5), (99.5, 0.5), (90.0, 5.0), (0.0, 50.0)):
        sampler._at = [began_at, 100.0]
        assert sampler._pause_s() == pause_s


times = st.floats(0, 100)


@given(powers=st.lists(st.floats(1, 1000), min_size=11, max_size=11), cuts=st.tuples(times, times, times))
def test_energies_of_the_parts_of_a_span_add_up(powers, cuts):
    at = [i * 10.0 for i in range(11)]
    counter = [sum(powers[:i]) for i in range(11)]
    a, b, c = sorted(cuts)
    for seen in (samples(at, gpu0_energy_j=list(counter)), samples(at, gpu0_power_w=list(powers))):
        whole, first, second = (host_samples.energy_j(seen, "gpu0", [span]) for span in ((a, c), (a, b), (b, c)))
        assert whole is not None
        assert first is not None
        assert second is not None
        assert whole == pytest.approx(first + second, abs=1e-6)
        assert host_samples.energy_j(seen, "gpu0", [(at[0], at[-1] + 0.001)]) is None
        assert host_samples.energy_j(seen, "gpu0", [(at[0] - 0.001, at[-1])]) is None


@given(watts=st.floats(1, 1000), from_at=st.floats(0, 2), to_at=st.floats(5, 8))
def test_constant_power_is_power_times_time_from_counter_and_from_power(watts, from_at, to_at):
    at = [0.0, 0.5, 1.5, 2.0, 5.0, 8.0]
    gaps = [None if i == 2 else watts for i in range(6)]  # a sample that could not be read
    counted = samples(at, gpu1_energy_j=[1e6 + watts * t for t in at], gpu1_power_w=[0.0] * 6)
    for seen in (counted, samples(at, gpu1_power_w=list(gaps))):
        joules = host_samples.energy_j(seen, "gpu1", [(from_at, to_at)])
        assert joules == pytest.approx(watts * (to_at - from_at), abs=1e-3)
    assert host_samples.mean(samples(at, gpu1_power_w=list(gaps)), "gpu1_power_w", from_at, to_at) == pytest.approx(
        watts
    )


def test_a_constant_or_reset_counter_is_not_a_measurement():
    at = [0.0, 1.0, 2.0]
    assert host_samples.energy_j(samples(at, cpu_energy_j=[5, 5, 5]), "cpu", [(0, 2)]) is None
    reset = samples(at, gpu0_energy_j=[100, 0, 200], gpu0_power_w=[10, 10, 10])
    assert host_samples.energy_j(reset, "gpu0", [(0, 2)]) == pytest.approx(20)
    assert host_samples.energy_j(samples(at), "cpu", [(0, 2)]) is None


def test_a_load_describes_the_time_since_the_previous_sample():
    seen = samples([0, 1, 1.2, 4], cpu_busy=[None, 1.0, None, 4.0])
    assert host_samples.mean(seen, "cpu_busy", 0, 4) == pytest.approx((1 * 1 + 3 * 4) / 4)
    assert host_samples.mean(seen, "cpu_busy", 0.5, 4) == 4.0  # the first second is not wholly within
    assert host_samples.mean(seen, "cpu_busy", 0, 3.9) == 1.0  # nor is the time of the last sample
    assert host_samples.mean(seen, "cpu_busy", 5, 9) is None
    assert host_samples.mean(seen, "cpu_steal", 0, 4) is None


@pytest.mark.parametrize(("busy", "other"), [([None, 3.0], 1.5), ([None, 1.0], 0.0), ([None, None], None)])
def test_other_load_is_the_load_without_the_worker(busy, other):
    telemetry = Telemetry(2.0, 6.0, 1, cpu_s=6.0, cpu_cores=1.5, busy_threads=1, throttled_s=None, gpu_peak_bytes=None)
    seen = samples([0, 3, 6, 9], cpu_busy=[None, 64.0, *busy[1:], 64.0])  # before and after, all CPUs are busy
    (launch,) = measured_launches([examples.record(host_samples=seen)])
    assert replace(launch, telemetry=telemetry).other_cpus == other
    assert replace(launch, telemetry=replace(telemetry, to_at=3.5)).other_cpus is None


@pytest.mark.parametrize(("steal", "share"), [(0.0, 0.0), (1.0, 0.25), (None, None)])
def test_zero_steal_differs_from_unknown_steal(steal, share):
    seen = samples([1, 11], cpu_busy=[None, 3.0], cpu_steal=[None, steal])
    (launch,) = measured_launches([examples.record(host_samples=seen)])
    assert launch.steal_share == share


def test_energy_per_image_covers_the_steady_windows_completely():
    record = examples.record()
    assert record.result is not None
    assert record.result.training is not None
    # 10 s of warm-up, then two windows with an evaluation of 5 s between them: 4,000 images in 20 s.
    windows = [Window(0, 10, 9, 900), Window(10, 10, 20, 2000), Window(25, 10, 20, 2000)]
    training = replace(record.result.training, windows=windows, steady_from=1)
    at = [0.0, 5.0, 20.0, 22.0, 40.0]
    seen = samples(
        at,
        cpu_energy_j=[80 * t for t in at],
        gpu0_power_w=[300.0] * 5,
        gpu0_energy_j=[0.0] * 5,
        gpu1_energy_j=[None, 0.0, 10.0, 20.0, None],  # does not cover them
        gpu1_use=[1.0] * 5,
    )
    watched = record.model_copy(update={"host_samples": seen, "result": replace(record.result, training=training)})
    assert host_samples.joules_per_1000_images(watched) == {"cpu": pytest.approx(400), "gpu0": pytest.approx(1500)}
    assert host_samples.joules_per_1000_images(record.model_copy(update={"host_samples": None})) == {}
