"""Test that each cause raises its own warning and no other, once per cell, sorted by severity."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.analysis import warning_rules
from kit.analysis.launch_windows import launch_windows
from kit.analysis.measured_launch import launches_by_cell, measured_launches
from kit.analysis.robust import (
    change_point,
    mann_kendall,
    modified_z_scores,
    relative_spread,
    theil_sen,
    variance_factor,
)
from kit.analysis.warnings import RunWarning, WarningCode, find_warnings
from kit.model.record import HostSamples, Image, Record
from kit.model.run import Run
from scenarios.contract.cell import CEILINGS
from scenarios.contract.reasons import Code, Status
from scenarios.contract.request import Budget
from scenarios.contract.result import Epoch, Training, Window
from tests import examples

CPU, GPU = examples.cell(), examples.cell(device="cuda")
QUIET = [0.0, 0.004, -0.003, 0.005, -0.006, 0.001]  # differences between launches on an idle machine
STEADY = [0.0, 0.02, -0.01, 0.015, -0.02, 0.005, -0.015, 0.01] * 3


def host(**series: float) -> HostSamples:
    """Return samples at seconds 0 to 11. Training is from 1 to 11; at 0 all CPUs start the launch."""
    at = [float(second) for second in range(12)]
    means = {"cpu_busy": 1.95, "cpu_steal": 0.0} | series
    values: dict[str, list[float | None]] = {name: [2.0, *[float(mean)] * 11] for name, mean in means.items()}
    return HostSamples(at=at, series=values, core_busy=[], cost_s=0.01)


def launch(
    number: int = 1,
    cell=CPU,
    *,
    change: float = 0.0,
    windows: Sequence[float] = STEADY,
    steady_from: int = 4,
    host_samples: HostSamples | None = None,
    versions: dict[str, str] | None = None,
    data: str = "real",
    budget: Budget | None = None,
    telemetry: dict[str, float] | None = None,
    ignored: Sequence[str] = (),
    **record,
) -> Record:
    """Return an ok launch without a warning. change, windows: relative changes of the speed and of steady windows."""
    speed = 1000.0 * (1 + change)
    asked = examples.request(cell, launch=number, data=data, budget=budget or Budget(seconds=6, test_images=1000))
    result = examples.result(asked, images_per_s=speed)
    lengths = [0.25 / (1 + c) for c in [*[-0.3] * steady_from, *windows]]
    cut = [Window(1.0 + i, seconds, 4, 256) for i, seconds in enumerate(lengths)]
    result = replace(
        result,
        training=replace(result.training, windows=cut, steady_from=steady_from, ignored_checkpoints=[*ignored]),
        telemetry=replace(result.telemetry, **telemetry or {}),
        evidence=replace(result.evidence, versions={"python": "3.11", asked.cell.framework: "1.0", **(versions or {})}),
    )
    fields = {"started_at": f"2026-01-01T00:{number:02d}:00+00:00", "host_samples": host_samples or host()}
    return examples.record(asked, result=result, **fields | record)


def launches(cell=CPU, count=5, **changes) -> list[Record]:
    return [launch(n, cell, change=QUIET[n % len(QUIET)], **changes) for n in range(1, count + 1)]


def found(records, machine=None, probes=()) -> list[RunWarning]:
    planned = examples.plan([examples.planned(record.launch, **asdict(record.cell)) for record in records])
    run = Run(planned, machine or examples.machine(), records, probes)
    return find_warnings(run, launches_by_cell(records))


def with_one(odd: Record, cell=CPU) -> list[Record]:
    """Return five launches, one of them replaced by this one."""
    return [odd if record.launch == odd.launch else record for record in launches(cell)]


def machine(limit: float = 700.0, **changes):
    return examples.machine(**{"gpus": [examples.gpu(power_limit_w=limit)], "driver": "580.65.06"} | changes)


IMAGE = Image(kind="image", reference="kit-torch", digest="sha256:1", size_bytes=1)
FALLING = [-0.005 * i for i in range(24)]
SLOW_END = [change - 0.45 * (i >= 20) for i, change in enumerate(STEADY)]  # 3,700 to 2,050 images/s in 4 windows

# The code of a warning: records, machine if it matters, and words of the cause.
CAUSES = {
    WarningCode.MIXED_VERSIONS: (with_one(launch(3, versions={"torch": "1.1"})), None, "torch (1.0, 1.1)"),
    WarningCode.OTHER_LOAD: (
        with_one(launch(3, host_samples=host(cpu_busy=2.9))),
        None,
        "kept 1.0 of the machine's 2 logical CPUs busy while the cell trained (in 1 of 5 launches)",
    ),
    WarningCode.OTHER_GPU_PROCESSES: (
        with_one(launch(3, GPU, host_samples=host(gpu0_other_processes=2)), GPU),
        None,
        "(2 at once) computed on the cell's GPU (in 1 of 5 launches)",
    ),
    WarningCode.QUOTA: (launches(telemetry={"throttled_s": 19.0}), None, "withheld 50%"),
    WarningCode.HOT_GPU: (
        launches(GPU, host_samples=host(gpu0_hw_thermal=0.3, gpu0_temperature_c=88)),
        None,
        "reached 88 °C (in 5 of 5 launches) and lowered its clocks because of heat in 30%",
    ),
    WarningCode.POWER_CAP: (
        launches(GPU, host_samples=host(gpu0_use=0.9)),
        machine(420),
        "GPU 0 to 420 W, 60% of its default",
    ),
    WarningCode.STEAL: (launches(host_samples=host(cpu_steal=0.2)), None, "gave 9% of the requested CPU time"),
    WarningCode.NO_STEADY_STATE: (launches(steady_from=24), None, "not settled after 8.2 s, the first half"),
    WarningCode.FEW_WINDOWS: (
        with_one(launch(3, windows=STEADY[:4])),
        None,
        "comes from 4 steady windows, but its spread cannot be judged from fewer than 5 (in 1 of 5 launches)",
    ),
    WarningCode.JUMP: (
        with_one(launch(3, windows=SLOW_END)),
        None,
        "suddenly fell by 46% within a launch, after 20.0 s of steady training (in 1 of 5 launches)",
    ),
    WarningCode.DRIFT: (launches(windows=FALLING), None, "changed by -12% from the first to the last steady window"),
    WarningCode.NOISY: (
        [launch(n, change=c) for n, c in enumerate([0.1, -0.1, 0.12, -0.08, 0.0], 1)],
        None,
        "by 10% between 5 launches",
    ),
    WarningCode.SLOW_FIRST_LAUNCH: (with_one(launch(1, change=-0.15)), None, "Launch 1 was 15% slower than the 4"),
    WarningCode.OUTLIERS: (
        with_one(launch(4, change=-0.2)),
        None,
        "Some of 5 launches are far from the median (modified z-score above 3.5): launch 4 (-20%)",
    ),
    WarningCode.FEW_LAUNCHES: ([launch()], None, "A single launch has no interval"),
    WarningCode.UNDER_QUOTA: (
        launches(),
        examples.machine(quota_cpus=1.5, cpus=1),
        "grants 1.5 of the machine's 2 logical CPUs, so the results apply to the quota",
    ),
    WarningCode.SYNTHETIC_DATA: (launches(data="synthetic"), None, "data is synthetic"),
    WarningCode.OLD_DRIVER: (
        launches(GPU, versions={"cuda": "13.0"}),
        machine(driver="570.86.15"),
        "driver is 570.86.15, but torch ran CUDA 13, which needs 580",
    ),
    WarningCode.IGNORED_CHECKPOINT: (
        with_one(launch(2, ignored=["It is of a training with another GPU."])),
        None,
        "with another GPU.",
    ),
    WarningCode.ENGINE_REMARK: (with_one(launch(2, warnings=["No limit of pids here."])), None, "No limit of pids"),
}


@pytest.mark.parametrize("device", [CPU, GPU], ids=lambda cell: cell.device)
@pytest.mark.parametrize("count", [2, 5, 20])
def test_a_quiet_run_has_no_warning(device, count):
    assert found(launches(device, count, image=IMAGE, versions={"cuda": "13.0"}), machine=machine()) == []


@pytest.mark.parametrize("code", CAUSES, ids=str)
def test_each_cause_raises_its_warning_once_and_no_other(code):
    records, where, words = CAUSES[code]
    (warning,) = found(records, machine=where or machine())
    assert warning.code is code
    assert words in warning.cause
    assert warning.remedy.endswith(".")
    of_run = {WarningCode.POWER_CAP, WarningCode.UNDER_QUOTA, WarningCode.OLD_DRIVER}
    assert warning.about == ("" if code in of_run else records[0].key)


def test_every_code_has_an_example():
    elsewhere = {
        *(WarningCode.CORRELATED, WarningCode.DIFFERENT_LIBRARIES, WarningCode.NO_CEILING, WarningCode.LOW_CEILING)
    }  # see below
    assert set(CAUSES) | elsewhere == set(WarningCode)


def test_warnings_are_sorted_by_severity_and_name_their_own_cell():
    loaded = launches(GPU, host_samples=host(cpu_busy=4.1, cpu_steal=0.2))
    codes = [(warning.code, warning.about) for warning in found([*launches(CPU, data="synthetic"), *loaded])]
    assert codes == [
        (WarningCode.OTHER_LOAD, GPU.key),
        (WarningCode.STEAL, GPU.key),
        (WarningCode.SYNTHETIC_DATA, CPU.key),
    ]


@pytest.mark.parametrize(("slower", "noisy"), [(-0.16, False), (-0.17, True), (-0.5, True)])
def test_two_launches_that_are_far_apart_are_noise(slower, noisy):
    """In 1% of pairs, exp(2.58 * sqrt(2) * 0.05) = 1.20, so the slower launch is 16.7% slower."""
    causes = [warning.cause for warning in found([launch(1), launch(2, change=slower)])]
    apart = f"varies by {1 / (1 + slower) - 1:.0%} between its two launches."
    assert causes == ([f"The speed of equal work {apart}"] if noisy else [])


def with_epochs(rates: Sequence[float], resumed_from: Sequence[int] = ()) -> Record:
    """Return a launch that trained whole epochs at these images/s."""
    record = launch()
    epochs = [Epoch(i, 1000 / rate, 1000, 1.0, 0.5, 1.0, 0.5) for i, rate in enumerate(rates, 1)]
    training = replace(record.result.training, epochs=epochs, resumed_from=[*resumed_from])
    return record.model_copy(update={"result": replace(record.result, training=training)})


@pytest.mark.parametrize(
    ("rates", "resumed_from", "noise"),
    [
        # Measured on a shared machine. The median absolute deviation hides three epochs at twice the speed.
        ([1301, 1074, 1083, 1166, 1070, 1133, 1100, 1171, 2201, 2198, 2149, 1139, 1090, 1088, 1085], (), "41%"),
        ([500, 1000, 1010, 990], (), ""),  # the first epoch includes the warm-up
        ([500, 1000, 1010, 500, 1005], (3,), ""),  # so does the first one after a resume
        ([500, 1000, 1010, 500, 1005], (), "25%"),
        ([500, 1000, 2000], (), ""),  # two epochs show no spread
    ],
)
def test_each_whole_epoch_counts_for_the_noise_within_a_launch(rates, resumed_from, noise):
    record = with_epochs(rates, resumed_from)
    warnings = found([record])
    causes = [warning.cause for warning in warnings if warning.code is WarningCode.NOISY]
    words = f"The speed of equal work varies by {noise} between the epochs of a launch (standard deviation)."
    assert causes == ([words] if noise else [])
    (shown,) = launch_windows(launches_by_cell([record]), warnings)
    assert [doubt.words for doubt in shown.reasons] == ([f"epochs vary by {noise}"] if noise else [])


@pytest.mark.parametrize("changes", [{"images": 0}, {"seconds": 5e-324}])
def test_an_epoch_of_a_stranger_that_did_nothing_shows_no_noise(changes):
    record = with_epochs([1000] * 5)
    training = record.result.training
    epochs = [replace(epoch, **changes) for epoch in training.epochs]
    odd = record.model_copy(update={"result": replace(record.result, training=replace(training, epochs=epochs))})
    assert WarningCode.NOISY not in {warning.code for warning in found([odd])}


def test_a_warning_of_all_cells_becomes_one_of_the_run():
    both = found([launch(cell=CPU, data="synthetic"), launch(cell=GPU, data="synthetic")])
    assert [(c.code, c.about) for c in both] == [(WarningCode.FEW_LAUNCHES, ""), (WarningCode.SYNTHETIC_DATA, "")]


def test_other_load_excludes_the_launch_and_the_time_before_training():
    """cpu_busy includes the launch itself (1.9 CPUs), and all CPUs were busy before training began."""
    assert found(launches(host_samples=host(cpu_busy=2.05)), machine=machine()) == []
    eight = examples.machine(logical_cpus=8)
    assert found(launches(host_samples=host(cpu_busy=2.25), machine=eight)) == []
    assert [c.code for c in found(launches(host_samples=host(cpu_busy=2.35), machine=eight))] == [
        WarningCode.OTHER_LOAD
    ]
    large = examples.machine(logical_cpus=64)
    one_whole_cpu = launches(host_samples=host(cpu_busy=2.85), machine=large)
    assert [c.code for c in found(one_whole_cpu)] == [WarningCode.OTHER_LOAD]
    blind = launches(host_samples=host().model_copy(update={"series": {"cpu_busy": [None] * 12}}))
    assert found(blind) == []


def test_a_quota_of_all_cpus_raises_no_warning():
    assert found(launches(), machine=examples.machine(quota_cpus=2.0)) == []


def test_fewer_launches_than_planned():
    failed = examples.failed(examples.request(CPU, launch=5), status=Status.TIMEOUT, code=Code.DEADLINE)
    (warning,) = found([*launches(count=4), failed])
    assert (warning.code, warning.about) == (WarningCode.FEW_LAUNCHES, CPU.key)
    assert warning.cause == "Only 4 of 5 planned launches are ok."
    assert warning.remedy == "Resume with kit run --resume r1 --retry-failed."
    assert found([failed]) == []  # without a result there is no warning


def test_a_drift_of_the_run_is_found_across_cells_with_few_launches():
    cells = [CPU, examples.cell(framework="tensorflow"), examples.cell(framework="onnxruntime")]
    order = [(n, cell) for n in range(1, 5) for cell in cells]
    records = [launch(n, cell, change=-0.01 * i) for i, (n, cell) in enumerate(order)]
    warning, other = found(records, machine=machine())
    assert (warning.code, warning.about) == (WarningCode.DRIFT, "")
    assert other.code is WarningCode.CORRELATED  # a drift is one kind of it
    # -11% relative to the first launch is -12% relative to the median.
    assert warning.cause.startswith("The speed changed by -12% over the 12 launches of the run ")


def test_a_machine_with_two_speeds_is_found_by_neighbors_with_similar_errors():
    cells = [CPU, examples.cell(framework="tensorflow"), examples.cell(framework="onnxruntime")]
    order = [(n, cell) for n in range(1, 7) for cell in cells]
    records = [
        launch(n, cell, change=0.02 * (i // 5 % 2), started_at=f"2026-01-01T00:{i:02d}:00+00:00")
        for i, (n, cell) in enumerate(order)
    ]
    (warning,) = found(records, machine=machine())
    assert (warning.code, warning.about) == (WarningCode.CORRELATED, "")
    assert "(lag-1 autocorrelation 0." in warning.cause
    assert "over 18 launches" in warning.cause


def test_launches_and_probes_of_another_machine():
    strange = launch(3, machine=examples.machine(id="fedcba9876543210"))
    codes = [(c.code, c.about) for c in found(with_one(strange))]
    assert codes == [(WarningCode.MIXED_VERSIONS, ""), (WarningCode.MIXED_VERSIONS, CPU.key)]
    image = found(with_one(launch(3, image=IMAGE)))
    assert "image (none, sha256:1)" in image[0].cause


def test_frameworks_on_different_cuda_and_cudnn():
    """Versions have few or many parts, are a single number, or are those of packages."""
    tensorflow = launches(examples.cell("mnist-cnn", "tensorflow", "cuda"), versions={"cuda": "12.5.1", "cudnn": "9"})
    torch = launches(GPU, versions={"cuda": "13.0", "cudnn": "91002"})
    wheels = {"nvidia-cuda-runtime": "13.0.48", "nvidia-cudnn-cu13": "9.12.0.46"}
    onnx = launches(examples.cell("mnist-cnn", "onnxruntime", "cuda"), versions=wheels)
    assert found(onnx) == []
    (cuda,) = found([*tensorflow, *torch], machine=machine())
    assert (cuda.code, cuda.about) == (WarningCode.DIFFERENT_LIBRARIES, "")
    assert cuda.cause == "The frameworks use different versions of CUDA: tensorflow 12.5.1, torch 13.0."
    (cudnn,) = found([*torch, *onnx], machine=machine())
    assert cudnn.cause == "The frameworks use different versions of cuDNN: onnxruntime 9.12.0.46, torch 9.10.2."


def test_remarks_are_reported_once_and_a_failed_probe_with_its_own_reason():
    remarked = launches(warnings=["The machine changed."], count=2) + launches(
        GPU, 2, warnings=["The machine changed."]
    )
    probe = examples.request(purpose="probe", scenario=CEILINGS, batch=1)
    failed = examples.failed(probe, message="It crashed.", remedy="Look at its log.")
    skipped = examples.failed(probe, status=Status.SKIPPED, code=Code.NOT_OFFERED)
    remark_and_probe = found(remarked, probes=[failed, skipped])
    assert [(c.code, c.about, c.remedy.startswith("Look at")) for c in remark_and_probe] == [
        (WarningCode.NO_CEILING, "ceilings/torch/cpu/stock/fp32/b1", True),
        (WarningCode.ENGINE_REMARK, "", False),
    ]
    assert remark_and_probe[1].cause == "The machine changed."


def test_one_launch_of_five_may_fail_to_settle_by_chance():
    assert found(with_one(launch(3, steady_from=24))) == []


def test_launches_without_a_time_budget_need_no_steady_state():
    assert found(launches(steady_from=24, budget=Budget(steps=20))) == []
    assert found(launches(steady_from=24, budget=Budget(epochs=12))) == []


def test_noise_alone_rarely_raises_a_warning():
    """300 cells of 6 launches (standard deviation 2%) with 40 windows each (4%), all independent and normal."""
    draw = random.Random(7)
    raised = 0
    for _ in range(300):
        cell = [
            launch(n, change=draw.gauss(0, 0.02), windows=[draw.gauss(0, 0.04) for _ in range(40)]) for n in range(1, 7)
        ]
        raised += bool(found(cell, machine=machine()))
    assert raised <= 0.05 * 300


def correlated(draw: random.Random, count: int, rho: float, deviation: float) -> list[float]:
    """Return a first-order autoregressive series around 1 with this lag-1 autocorrelation."""
    value, series = draw.gauss(0, deviation), []
    for _ in range(count):
        series.append(1 + value)
        value = rho * value + math.sqrt(1 - rho**2) * draw.gauss(0, deviation)
    return series


@pytest.mark.parametrize("count", [12, 24, 80])
@pytest.mark.parametrize(("rho", "allowed"), [(0.0, 0.01), (0.3, 0.03), (0.6, 0.04), (0.8, 0.08)])
def test_trends_and_jumps_are_rarely_found_in_windows_that_only_vary(count, rho, allowed):
    """800 launches, a standard deviation of 5% within each. Without a correction, up to 40% of them raise an alarm.

    Twice the standard error of a share of 800 is added to the allowed share.
    """
    draw = random.Random(f"{count} {rho}")
    alarms = {"trend": 0, "jump": 0}
    for _ in range(800):
        series = correlated(draw, count, rho, 0.05)
        alarms["trend"] += warning_rules.trend(series) is not None
        alarms["jump"] += jump_of(series) is not None
    assert max(alarms.values()) <= 800 * allowed + 2 * math.sqrt(800 * allowed), alarms


def jump_of(series: Sequence[float]) -> str | None:
    windows = [value - 1 for value in series]
    return warning_rules.jump_of_windows(measured_launches([launch(windows=windows)]))


@pytest.mark.parametrize(("count", "slow"), [(12, 3), (12, 6), (24, 4), (24, 12), (80, 5), (80, 40)])
def test_jumps_are_found_wherever_they_are(count, slow):
    """The windows at the end are 45% slower. The standard deviation is 3%, as on a quiet machine."""
    draw = random.Random(f"{count} {slow}")
    found_in = 0
    for _ in range(100):
        series = [value - 0.45 * (i >= count - slow) for i, value in enumerate(correlated(draw, count, 0.0, 0.03))]
        found_in += "fell by 4" in (jump_of(series) or "")
    assert found_in >= 80


def test_a_single_stall_and_an_epoch_boundary_are_no_jump():
    stalled = [*STEADY[:-1], -0.7]
    assert jump_of([1 + change for change in stalled]) is None
    record = launch(windows=SLOW_END)
    assert record.result
    assert record.result.training
    windows = [replace(w, boundaries=int(w.seconds > 0.4)) for w in record.result.training.windows]
    training = replace(record.result.training, windows=windows)
    assert warning_rules.jump_of_windows(measured_launches([with_training(record, training)])) is None


def with_training(record: Record, training: Training) -> Record:
    assert record.result
    return record.model_copy(update={"result": replace(record.result, training=training)})


SERIES = st.lists(st.floats(1, 1e6), min_size=8, max_size=30)


@given(SERIES)
def test_a_trend_does_not_depend_on_direction_or_scale(values):
    assert mann_kendall(values) == mann_kendall(values[::-1])
    assert mann_kendall(values) == mann_kendall([4 * value for value in values])
    assert 0 <= mann_kendall(values) <= 1
    assert theil_sen(values) == pytest.approx(-theil_sen(values[::-1]))
    assert mann_kendall(sorted(values)) <= mann_kendall(values)


def test_statistics_by_hand():
    rising = [float(i) for i in range(1, 11)]
    # Tables of Kendall's S for n = 8 (for example Hollander and Wolfe): P(S >= 20) = 285 / 8! = 0.007, one-sided.
    assert mann_kendall([2, 1, 4, 3, 6, 5, 8, 7]) == pytest.approx(2 * 285 / math.factorial(8))
    assert mann_kendall(rising) == pytest.approx(2 / math.factorial(10))
    # in pairs of equals: S = 40, var = (10 * 9 * 25 - 5 * 18) / 18 = 120, z = 40 / sqrt(120) = 3.651
    assert mann_kendall([value // 2 for value in range(2, 12)]) == pytest.approx(2.61e-4, rel=0.01)
    assert mann_kendall([1.0] * 10) == 1
    assert theil_sen([*rising[:-1], 1000.0]) == pytest.approx(1.0)
    assert theil_sen([1.0, 5.0, 3.0]) == pytest.approx(1.0)  # median of the slopes 4, 1 and -2
    # n = 100, r = 0.48: rho = (48 + 2) / 96 = 0.521; the limit of the factor for long series is (1 + rho) / (1 - rho)
    assert variance_factor([1.0, -1.0] * 50) == 1
    assert variance_factor([0.0] * 9) == 1
    assert mann_kendall(rising, 4.0) == pytest.approx(2 * statistics.NormalDist().cdf(-5.008 / 2), rel=1e-3)
    assert change_point([1.0, 1.1, 0.9, 1.0, 5.0, 5.1, 4.9, 5.0])[0] == 4
    assert change_point([2.0] * 8)[1] == 1
    assert change_point([1.0] * 4 + [2.0] * 4) == (4, 0.0)
    # median 3, median absolute deviation 1: 0.6745 * (100 - 3) / 1 (Iglewicz and Hoaglin)
    assert modified_z_scores([1, 2, 3, 4, 100])[-1] == pytest.approx(0.6745 * 97, rel=1e-4)
    assert modified_z_scores([5, 5, 5, 5, 9])[-1] == pytest.approx(4 / (1.253314 * 0.8))
    assert modified_z_scores([5, 5]) == [0, 0]
    normal = statistics.NormalDist(100, 7).samples(20_000, seed=1)
    assert relative_spread(normal) == pytest.approx(0.07, rel=0.03)


def test_launches_on_different_data_are_named():
    odd = launch(3)
    other = replace(odd.result.evidence, data_digest="0" * 64)
    (warning,) = found(with_one(odd.model_copy(update={"result": replace(odd.result, evidence=other)})))
    assert warning.code is WarningCode.MIXED_VERSIONS
    assert "data (000000000000, " in warning.cause


def test_a_trend_in_a_long_series_is_found():
    noise = random.Random(1)
    still = [1000 * noise.gauss(1, 0.02) for _ in range(1500)]
    falling = [value * (1 - 0.05 * place / len(still)) for place, value in enumerate(still)]
    assert warning_rules.trend(still) is None
    assert warning_rules.trend(falling) == pytest.approx(-0.05, abs=0.01)
