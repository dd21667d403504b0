"""What the host sees while a launch runs: parsers, counters, GPUs that answer and that refuse, and the real thing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.analysis import host_samples
from kit.analysis.measured_launch import measured
from kit.host.sampling import cpu
from kit.host.sampling.rapl import Counter, Packages
from kit.host.sampling.sampler import Sampler
from kit.model.record import HostSamples
from scenarios.contract.result import Telemetry, Window
from tests import examples
from tests.fakes_nvml import UNSUPPORTED, FakeGpu, Refusal, install

# Of four logical CPUs number 1 is offline, and number 3 parked without a tick. Columns:
# user nice system idle iowait irq softirq steal guest
STAT = """\
cpu  300 0 0 0 0 0 0 0 0 0
cpu0 {user0} 1 2 {idle0} {waiting0} 3 4 {steal0} 50 0
cpu2 {user2} 0 0 {idle2} 0 0 0 0 0 0
cpu3 0 0 0 0 0 0 0 0 0 0
intr 3915701 0 0
ctxt 14
"""
STILL = {"user0": 100, "idle0": 100, "waiting0": 50, "steal0": 10, "user2": 100, "idle2": 100}


def samples(at: list[float], **series: list[float | None]) -> HostSamples:
    return HostSamples(at=at, series=series, core_busy=[], cost_s=0.0)


@pytest.fixture
def stat(tmp_path: Path) -> Path:
    return tmp_path / "stat"


def test_load_is_the_time_between_readings_per_cpu_and_never_negative(stat):
    load = cpu.Load(stat)
    stat.write_text(STAT.format(**STILL))
    assert load.read() == {}  # nothing to compare with
    stat.write_text(STAT.format(**{**STILL, "user0": 101, "idle2": 101}))
    assert load.read() == {}  # too soon: one tick is no measurement
    # CPU 0: 60 busy, 20 stolen, 20 idle while its waiting, as it may, falls. CPU 2: 25 busy, 75 idle.
    stat.write_text(
        STAT.format(
            **{**STILL, "user0": 160, "idle0": 120, "waiting0": 40, "steal0": 30, "user2": 125, "idle2": 175},
        )
    )
    first = load.read()
    assert first["cpu_busy"] == pytest.approx(60 / 90 + 0.25)  # 10 of idle and waiting together
    assert first["cpu_steal"] == pytest.approx(20 / 90)
    assert load.core_busy() == pytest.approx([60 / 90, 0.25])


def test_where_the_system_counts_no_ticks_there_is_no_load(stat):
    stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    load = cpu.Load(stat)
    assert (load.read(), load.read(), load.core_busy()) == ({}, {}, [])


def test_where_the_system_shows_nothing_there_is_no_load_and_no_clock(tmp_path):
    load = cpu.Load(tmp_path / "stat")
    assert (load.read(), load.read(), load.core_busy()) == ({}, {}, [])
    assert cpu.Clocks(tmp_path, tmp_path / "cpuinfo").read() == {}


def test_clocks_are_the_cores_own_and_a_nominal_figure_is_none(tmp_path):
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
def test_a_counter_that_comes_round_adds_up_to_what_was_spent(range_uj, first, steps):
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


def test_energy_is_that_of_all_packages_or_none(tmp_path):
    first = zone(tmp_path, "intel-rapl:0", "package-0", "900000")
    zone(tmp_path, "intel-rapl:1", "package-1", "0")
    zone(tmp_path, "intel-rapl:0:0", "core", "500000")
    whole_computer = zone(tmp_path, "intel-rapl:2", "psys", "500000")
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", "900000")
    packages = Packages(tmp_path)
    assert packages.read() == {"cpu_energy_j": 0.0}
    (first / "energy_uj").write_text("100000\n")  # came round
    (whole_computer / "energy_uj").write_text("800000\n")
    assert packages.read() == {"cpu_energy_j": pytest.approx(0.2)}
    (first / "energy_uj").unlink()
    assert packages.read() == {}
    assert Packages(tmp_path).read() == {}  # package-1 alone is not the machine
    assert Packages(tmp_path / "absent").read() == {}


def test_a_gpu_tells_what_it_can_and_nothing_is_made_up(monkeypatch):
    busy = FakeGpu(
        uuid="GPU-a",
        use=(97,),
        memory=(2 << 30,),
        power=(310_500,),
        energy=(5_000_000_250, 5_000_155_000),
        temperature=(64,),
        sm_clock=(1980,),
        processes=((7, 8), (7, 8), (8, 4711)),  # 7 has gone, 4711 has come: the launch's own
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


def test_a_driver_that_knows_throttle_reasons_by_their_former_name_tells_them(monkeypatch):
    install(monkeypatch, [FakeGpu(reasons=(0x80,))], old_driver=True)
    sampler = Sampler(("0",), interval_s=60)
    sampler.start()
    assert sampler.stop().series["gpu0_hw_power_brake"] == [1, 1]


def test_a_launch_without_gpus_leaves_nvml_alone(monkeypatch):
    calls = install(monkeypatch, [FakeGpu()])
    sampler = Sampler((), interval_s=60)
    sampler.start()
    seen = sampler.stop()
    assert calls == []
    assert not any(name.startswith("gpu") for name in seen.series)


def test_an_unforeseen_error_ends_the_sampling_and_keeps_what_was_seen(monkeypatch):
    sampler = Sampler((), interval_s=0.01)
    sampler.start()
    monkeypatch.setattr(sampler._load, "read", lambda: 1 / 0)
    seen = sampler.stop()
    assert seen.at
    assert all(len(values) == len(seen.at) for values in seen.series.values())
    assert "ZeroDivisionError" in sampler.failure


def test_an_unforeseen_error_at_the_start_costs_no_launch(monkeypatch):
    monkeypatch.setattr("kit.host.sampling.sampler.Packages", lambda: 1 / 0)
    sampler = Sampler((), interval_s=60)
    sampler.start()
    assert sampler.stop().at == []
    assert "ZeroDivisionError" in sampler.failure


@pytest.mark.parametrize("at_the_start", [True, False])
def test_a_driver_that_does_not_answer_holds_up_no_launch(monkeypatch, at_the_start):
    answers = threading.Event()

    class Wedged(cpu.Clocks):
        def read(self):
            answers.wait(9)
            return super().read()

    sampler = Sampler((), interval_s=0.01, patience_s=0.2)
    if at_the_start:
        monkeypatch.setattr("kit.host.sampling.sampler.Clocks", Wedged)
    sampler.start()
    monkeypatch.setattr(sampler._load, "read", lambda: answers.wait(9) and {})
    seen = sampler.stop()
    answers.set()
    assert "no answer within 0.2 s" in sampler.failure
    assert bool(seen.at) is not at_the_start


def test_the_sampler_sees_a_busy_process_at_little_cost():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
        try:
            began = time.monotonic()
            sampler = Sampler((), interval_s=0.25)
            sampler.start()
            time.sleep(1.5)
            seen = sampler.stop()
        finally:
            burner.kill()
    assert began <= seen.at[0] + 1e-4 < seen.at[-1] <= time.monotonic()
    assert seen.at == sorted(seen.at)
    assert 6 <= len(seen.at) <= 8  # one at each end and every quarter of a second
    assert seen.series["cpu_busy"][0] is None  # what was before is not of this launch
    busy = host_samples.mean(seen, "cpu_busy", seen.at[0], seen.at[-1])
    assert busy is not None
    assert 0.5 <= busy <= len(seen.core_busy)
    assert sum(seen.core_busy) == pytest.approx(busy, abs=0.25)
    assert 0 < seen.cost_s < 0.05 * (seen.at[-1] - seen.at[0])


def test_a_long_launch_is_sampled_ever_less_often(monkeypatch):
    monkeypatch.setattr("kit.host.sampling.sampler.STEADY_INTERVALS", 2)
    sampler = Sampler((), interval_s=0.01)
    sampler.start()
    time.sleep(0.5)
    assert len(sampler.stop().at) < 15  # 2 + 2 ln(0.5 / 0.02) and one at each end, not 50


times = st.floats(0, 100)


@given(powers=st.lists(st.floats(1, 1000), min_size=11, max_size=11), cuts=st.tuples(times, times, times))
def test_energy_adds_up_however_a_span_is_cut(powers, cuts):
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


def test_a_counter_that_stands_still_or_was_reset_measures_nothing():
    at = [0.0, 1.0, 2.0]
    assert host_samples.energy_j(samples(at, cpu_energy_j=[5, 5, 5]), "cpu", [(0, 2)]) is None
    reset = samples(at, gpu0_energy_j=[100, 0, 200], gpu0_power_w=[10, 10, 10])
    assert host_samples.energy_j(reset, "gpu0", [(0, 2)]) == pytest.approx(20)
    assert host_samples.energy_j(samples(at), "cpu", [(0, 2)]) is None


def test_a_load_stands_for_the_time_since_the_sample_before():
    seen = samples([0, 1, 1.2, 4], cpu_busy=[None, 1.0, None, 4.0])
    assert host_samples.mean(seen, "cpu_busy", 0, 4) == pytest.approx((1 * 1 + 3 * 4) / 4)
    assert host_samples.mean(seen, "cpu_busy", 0.5, 4) == 4.0  # the first second is not wholly within
    assert host_samples.mean(seen, "cpu_busy", 0, 3.9) == 1.0  # nor is what the last sample stands for
    assert host_samples.mean(seen, "cpu_busy", 5, 9) is None
    assert host_samples.mean(seen, "cpu_steal", 0, 4) is None


@pytest.mark.parametrize(("busy", "other"), [([None, 3.0], 1.5), ([None, 1.0], 0.0), ([None, None], None)])
def test_load_by_others_is_what_the_worker_did_not_use(busy, other):
    telemetry = Telemetry(2.0, 6.0, 1, cpu_s=6.0, cpu_cores=1.5, busy_threads=1, throttled_s=None, gpu_peak_bytes=None)
    seen = samples([0, 3, 6, 9], cpu_busy=[None, 64.0, *busy[1:], 64.0])  # before and after, all CPUs are busy
    (launch,) = measured([examples.record(host_samples=seen)])
    assert replace(launch, telemetry=telemetry).other_cpus == other
    assert replace(launch, telemetry=replace(telemetry, to_at=3.5)).other_cpus is None


@pytest.mark.parametrize(("steal", "share"), [(0.0, 0.0), (1.0, 0.25), (None, None)])
def test_no_steal_is_told_from_steal_that_nobody_saw(steal, share):
    seen = samples([1, 11], cpu_busy=[None, 3.0], cpu_steal=[None, steal])
    (launch,) = measured([examples.record(host_samples=seen)])
    assert launch.stolen == share


def test_joules_are_those_of_the_steady_windows_and_only_of_what_was_measured():
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
