"""Test the diagnosis: a realistic example of each bottleneck, the order of the rules, and that it never fails."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.analysis import ceilings
from kit.analysis.answers import answers
from kit.analysis.diagnosis import Diagnosis, diagnose, diagnose_all
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.run_analysis import analyze_run
from kit.analysis.warnings import WarningCode
from kit.model.formatting import format_percent, format_si
from kit.model.machine import Machine
from kit.model.record import HostSamples, Record
from kit.planning import catalog
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.cell import CEILINGS
from scenarios.contract.reasons import Code, Status
from scenarios.contract.result import StepTime, StepTiming
from scenarios.spec.flops import training_flops
from tests import examples

GIGA, TERA = 1e9, 1e12


def ceiling(name, value, precision=""):
    unit = {"memory": "B/s", "upload": "B/s", "launch": "s", "jpeg": "images/s"}.get(name, "FLOP/s")
    return Ceiling(name, precision, unit, value, [value], "example")


def measured(device, precision="fp32", **values):
    """Return ceilings like `best_ceilings`: matmul and convolution at this precision, the others without one."""
    precisions = {name: precision if name in ("matmul", "convolution") else "" for name in values}
    return {(device, n, precisions[n]): ceiling(n, value, precisions[n]) for n, value in values.items()}


# Two cores of a server, and an H200 as measured with PyTorch with TF32 off.
CPU = measured("cpu", matmul=110 * GIGA, convolution=100 * GIGA, memory=10 * GIGA, launch=4e-6, jpeg=700.0)
H200 = measured("cuda", matmul=50 * TERA, convolution=45 * TERA, memory=4.1 * TERA, launch=4.5e-6)


def scenario_of(cell):
    return catalog.scenarios()[cell.scenario][cell.variant]


def launch(cell, step_s, resident, *, launch=1, threads=2, host_samples=None, placement=None, **telemetry) -> Record:
    """Return an ok launch with steps of `step_s` end to end. resident: seconds of a resident step by batch size."""
    asked = examples.request(cell, launch=launch, threads=threads)
    result = examples.result(asked, images_per_s=cell.batch / step_s)
    step_timing = StepTiming([StepTime(batch, [seconds]) for batch, seconds in resident.items()])
    gpu = {"device": "cuda:0", "device_name": "NVIDIA H200"} if cell.device == "cuda" else {}
    where = replace(result.evidence.placement, **gpu | (placement or {}))
    result = replace(
        result,
        step_timing=step_timing,
        evidence=replace(result.evidence, placement=where),
        telemetry=replace(result.telemetry, **{"busy_threads": threads, "cpu_cores": 0.97 * threads, **telemetry}),
    )
    return examples.record(asked, result=result, host_samples=host_samples)


def host(**series) -> HostSamples:
    """Return samples at seconds 0 to 11. Training is from 1 to 11."""
    at = [float(second) for second in range(12)]
    spread = {name: [float(value)] * len(at) for name, value in series.items()}
    return HostSamples(at=at, series=spread, core_busy=[], cost_s=0.01)


def diagnosed(records, known=CPU, machine: Machine | None = None, own=None) -> Diagnosis:
    cell = examples.cell(records[0].request.cell.scenario, variant=records[0].request.cell.variant)
    found = diagnose(records, scenario_of(cell), known, known if own is None else own, machine or examples.machine())
    assert found
    return found


MNIST_GPU = examples.cell("mnist-cnn", device="cuda")
SMALL_NET_ON_GPU = {16: 770e-6, 32: 775e-6, 64: 790e-6}


def test_a_gpu_does_not_help_a_small_network_because_starting_kernels_takes_longer_than_running_them():
    host_samples = host(gpu0_use=0.35)
    found = diagnosed([launch(MNIST_GPU, 950e-6, SMALL_NET_ON_GPU, host_samples=host_samples)], H200)
    assert found.bottleneck is Bottleneck.LAUNCH_BOUND
    # The line through the three times: 762.5 us + 0.42 us an image; half of the time from 762.5 / 0.42 = 1,800 on.
    assert "762 µs of the step does not depend on the batch size (80%, as much time as starting 169 empty kernels" in (
        found.evidence
    )
    assert "empty kernels at 4.5 µs each). At a batch size of about 1,800, the images take half" in found.evidence
    assert "The 985 MFLOP of a batch of 64 would take 21.9 µs at the measured 45 TFLOP/s" in found.evidence
    assert "the GPU mostly waits" in found.evidence
    assert "35% of the time" in found.evidence
    assert found.remedy == (
        "The network is too small for this GPU at batch size 64: use a larger batch or graph compilation, or use the "
        "CPU."
    )
    assert found.flops_per_s == pytest.approx(training_flops(scenario_of(MNIST_GPU)) * 64 / 950e-6)
    assert found.ceiling_share == pytest.approx(found.flops_per_s / (45 * TERA))
    assert found.peak_share == pytest.approx(found.flops_per_s / (66.9 * TERA))


def test_two_gpus_have_twice_the_ceiling_and_peak():
    one = diagnosed([launch(MNIST_GPU, 950e-6, SMALL_NET_ON_GPU)], H200)
    two = diagnosed([launch(replace(MNIST_GPU, devices=2), 950e-6, SMALL_NET_ON_GPU)], H200)
    assert (two.ceiling_share, two.peak_share) == pytest.approx((one.ceiling_share / 2, one.peak_share / 2))


def test_a_slice_of_a_gpu_is_not_compared_with_the_peak_of_the_whole_gpu():
    records = [launch(MNIST_GPU, 950e-6, SMALL_NET_ON_GPU, placement={"device_name": "NVIDIA H200 MIG 1g.18gb"})]
    assert diagnosed(records, H200, examples.machine(gpus=[examples.gpu()])).peak_share is None


def test_a_slow_loader_is_input_bound():
    cell = examples.cell("catdog-cnn")
    found = diagnosed([launch(cell, 0.200, {8: 0.016, 16: 0.031, 32: 0.060})])
    assert found.bottleneck is Bottleneck.INPUT_BOUND
    assert "70% of the time goes to loading" in found.evidence
    assert "at full size, and 2 threads decode 1,400. The cell trained on 160 photos/s." in found.evidence
    assert "decoding is not the limit" in found.remedy
    decoding = diagnosed([launch(cell, 0.040, {8: 0.004, 16: 0.008, 32: 0.015})])
    assert "trained on 800 photos/s." in decoding.evidence
    assert "decoded photos from a cache" in decoding.remedy
    record = launch(cell, 0.040, {8: 0.004, 16: 0.008, 32: 0.015})
    for feed in ("cached", "pinned", "resident"):
        asked = examples.change(record.request, lane="tuned", settings={"feed": feed})
        cached = diagnosed([record.model_copy(update={"request": asked, "cell": asked.cell})])
        assert cached.bottleneck is Bottleneck.INPUT_BOUND
        assert "decode" not in cached.evidence + cached.remedy


def test_a_small_network_on_a_cpu_is_launch_bound():
    cell = examples.cell("mnist-cnn", "tensorflow")
    found = diagnosed([launch(cell, 0.021, {16: 0.0142, 32: 0.0163, 64: 0.0203})])
    assert found.bottleneck is Bottleneck.LAUNCH_BOUND
    assert "12.2 ms of the step does not depend on the batch size (58%, " in found.evidence
    assert "GPU" not in found.evidence + found.remedy


def test_updating_a_large_mlp_is_memory_traffic_and_not_overhead():
    """Its step hardly grows with the batch size, but the fixed part is Adam's passes over all weights."""
    cell = examples.cell("cifar-mlp")
    records = [launch(cell, 0.030, {8: 0.024, 16: 0.0248, 32: 0.0266})]
    found = diagnosed(records)
    assert found.bottleneck is Bottleneck.MEMORY_BOUND
    # The line through the three times: 23.1 ms + 0.109 ms an image. 6.1 million weights, with gradients and Adam's two
    # means, each read and written.
    assert found.evidence == (
        "A step takes 30 ms: 26.6 ms on loaded data and 3.4 ms (11%) waiting for data. 23.1 ms of the step does not "
        "depend on the batch size (77%). Each step passes over all weights, gradients and optimizer state several "
        "times. One pass moves 196 MB and takes 19.6 ms at the measured 10 GB/s."
    )
    assert "fused optimizer" in found.remedy
    several_passes = {**CPU, **measured("cpu", memory=60 * GIGA)}
    assert diagnosed(records, several_passes).bottleneck is Bottleneck.MEMORY_BOUND
    too_many = {**CPU, **measured("cpu", memory=80 * GIGA)}  # 23.1 ms is 9.4 passes
    assert diagnosed(records, too_many).bottleneck is Bottleneck.LAUNCH_BOUND


def test_a_deep_network_near_the_ceiling_is_compute_bound():
    cell = examples.cell("catdog-cnn", variant="deep")
    found = diagnosed([launch(cell, 12.6, {8: 3.1, 16: 6.1, 32: 12.0})])
    assert found.bottleneck is Bottleneck.COMPUTE_BOUND
    assert found.evidence.startswith("A step takes 12.6 s: 12 s on loaded data and 600 ms (5%) waiting for data. Its ")
    assert "Its 879 GFLOP take 8.79 s (70%) at the measured 100 GFLOP/s" in found.evidence
    assert found.remedy.startswith("The kernels compute near the ceiling of this CPU: ")
    assert found.ceiling_share == pytest.approx(8.79 / 12.6, rel=0.01)
    assert found.peak_share is None


def test_bf16_halves_the_traffic_of_activations_but_arithmetic_gains_more():
    cell = replace(examples.cell("catdog-cnn", device="cuda", variant="128"), precision="bf16")
    known = measured("cuda", "bf16", convolution=600 * TERA, memory=4.1 * TERA)
    found = diagnosed([launch(cell, 250e-6, {8: 100e-6, 16: 145e-6, 32: 230e-6})], known)
    assert found.bottleneck is Bottleneck.MEMORY_BOUND
    # 865 MB in fp32, but 13 MB of it (407,745 weights with Adam) stay as they are.
    assert "439 MB of memory traffic take at least 107 µs (43%) at the measured 4.1 TB/s (data sheet: 4.8 TB/s)" in (
        found.evidence
    )
    assert found.peak_share == pytest.approx(found.flops_per_s / (989.4 * TERA))
    assert "bf16" not in found.remedy


def test_idle_threads_are_found():
    cell = examples.cell("catdog-cnn", variant="deep")
    resident = {8: 3.1, 16: 6.1, 32: 12.0}
    few = diagnosed([launch(cell, 12.6, resident, threads=8, cpu_cores=2.1, busy_threads=2)])
    assert few.bottleneck is Bottleneck.STARVED_OF_THREADS
    assert "Only 2 of 8 threads computed, and 2.1 CPUs were busy" in few.evidence
    crowded = launch(cell, 12.6, resident, threads=8, cpu_cores=4.0, cpu_s=40.0, host_samples=host(cpu_busy=7.9))
    assert "Other processes used 3.9" in diagnosed([crowded]).evidence
    gpu_cell = examples.cell("catdog-cnn", device="cuda", variant="deep")
    on_gpu = launch(gpu_cell, 0.032, {8: 0.008, 16: 0.0155, 32: 0.030}, threads=16, cpu_cores=1.0, busy_threads=1)
    assert diagnosed([on_gpu], H200).bottleneck is Bottleneck.COMPUTE_BOUND  # one CPU suffices to feed a GPU


def test_other_load_explains_the_times_measured_with_it():
    """Other load while the step was timed decides at random which part of it looks long."""
    cell, two = examples.cell(), {"threads": 2, "cpu_cores": 1.0, "cpu_s": 10.0}
    for step_s, resident in ((0.040, {16: 0.005, 64: 0.020}), (0.021, {16: 0.019, 64: 0.020})):
        crowded = diagnosed([launch(cell, step_s, resident, host_samples=host(cpu_busy=2.0), **two)])
        assert crowded.bottleneck is Bottleneck.STARVED_OF_THREADS
        assert crowded.evidence.endswith("2 threads kept 1.0 CPUs busy. Other processes used 1.0 of 2.")
        room = diagnosed([launch(cell, step_s, resident, host_samples=host(cpu_busy=1.3), **two)])
        enough = diagnosed([launch(cell, step_s, resident, host_samples=host(cpu_busy=2.0), **{**two, "threads": 1})])
        asleep = {"threads": 2, "cpu_cores": 0.1, "cpu_s": 1.0}
        waits = diagnosed([launch(cell, step_s, resident, host_samples=host(cpu_busy=2.0), **asleep)])
        assert {room.bottleneck, enough.bottleneck, waits.bottleneck} <= {
            Bottleneck.INPUT_BOUND,
            Bottleneck.LAUNCH_BOUND,
        }
    on_gpu = launch(MNIST_GPU, 950e-6, SMALL_NET_ON_GPU, host_samples=host(cpu_busy=2.0), **two)
    assert diagnosed([on_gpu], H200).bottleneck is Bottleneck.LAUNCH_BOUND


def test_a_quota_of_half_the_cores_throttles():
    cell = examples.cell("mnist-cnn")
    found = diagnosed([launch(cell, 0.020, {64: 0.018}, cpu_s=10.0, throttled_s=10.0)])
    assert found.bottleneck is Bottleneck.THROTTLED
    assert "withheld 50% of the CPU time" in found.evidence


def test_a_gpu_that_lowers_its_clocks_is_throttled():
    slow = {64: 0.0060, 16: 0.0015}
    hot = launch(MNIST_GPU, 0.007, slow, host_samples=host(gpu0_hw_thermal=0.4))
    assert diagnosed([hot], H200).bottleneck is Bottleneck.THROTTLED
    at_its_limit = launch(MNIST_GPU, 0.007, slow, host_samples=host(gpu0_sw_power_cap=0.9))
    usual, capped = (examples.machine(gpus=[examples.gpu(power_limit_w=watts)]) for watts in (700.0, 400.0))
    assert diagnosed([at_its_limit], H200, usual).bottleneck is not Bottleneck.THROTTLED
    assert diagnosed([at_its_limit], H200, capped).bottleneck is Bottleneck.THROTTLED
    another_capped = examples.machine(gpus=[examples.gpu(index=1, power_limit_w=400.0)])
    assert diagnosed([at_its_limit], H200, another_capped).bottleneck is not Bottleneck.THROTTLED
    before_and_after = host(gpu0_hw_thermal=0.0).model_copy(update={"at": [-9.0, *[float(n) for n in range(12, 23)]]})
    before_and_after.series["gpu0_hw_thermal"][:] = [1.0] * 12
    assert (
        diagnosed([launch(MNIST_GPU, 0.007, slow, host_samples=before_and_after)], H200).bottleneck
        is not Bottleneck.THROTTLED
    )


def test_a_cell_on_the_wrong_device_has_the_reason_as_diagnosis():
    words = "It trained on the CPU.", "Run kit doctor."
    elsewhere = examples.failed(examples.request(MNIST_GPU), Status.WRONG_DEVICE, Code.WRONG_DEVICE, *words)
    crashed = examples.failed(examples.request(examples.cell()))
    run = examples.run([crashed, elsewhere])
    (found,) = diagnose_all(run, catalog.scenarios(), {})
    assert found == Diagnosis(MNIST_GPU.key, Bottleneck.WRONG_DEVICE, *words, None, None, None, "wrong device")


def test_slow_kernels_are_compute_bound_far_below_the_ceiling():
    cell = examples.cell("cifar-cnn")
    records = [launch(cell, 0.042, {8: 0.011, 16: 0.021, 32: 0.040})]
    own = measured("cpu", convolution=40 * GIGA)
    found = diagnosed(records, own=own)
    assert found.bottleneck is Bottleneck.COMPUTE_BOUND
    assert "8.24 ms (20%) at the measured 100 GFLOP/s (its own framework's kernel: 40 GFLOP/s)" in found.evidence
    assert "at 21% of the ceiling of this CPU" in found.remedy
    assert "its own" not in diagnosed(records).evidence
    without = diagnosed(records, {})
    assert (without.bottleneck, "ceilings" in without.remedy) == (Bottleneck.UNCLEAR, True)


def test_a_step_that_no_ceiling_explains_is_unclear():
    cell = examples.cell("cifar-cnn")
    slow = diagnosed([launch(cell, 0.142, {8: 0.032, 16: 0.065, 32: 0.130})])
    mixed = diagnosed([launch(cell, 0.021, {8: 0.0088, 16: 0.0108, 32: 0.0150})])  # 6 ms for data, 6.7 fixed, 8.3 more
    assert {slow.bottleneck, mixed.bottleneck} == {Bottleneck.UNCLEAR}
    assert slow.remedy == (
        "Most of the step grows with the batch size, but the kernels are far from every ceiling. --lane tuned tries "
        "other layouts, allocators and compiled steps. A profiler can show why."
    )
    assert mixed.remedy == "No part takes most of the step. A profiler can show where its time goes."


def test_arithmetic_at_half_of_the_ceiling_is_not_near_it():
    cell = examples.cell("catdog-cnn", variant="deep")
    found = diagnosed([launch(cell, 18.6, {8: 4.6, 16: 9.1, 32: 18.0})])  # 8.79 s of 18 s
    assert (found.bottleneck, found.label) == (Bottleneck.COMPUTE_BOUND, "arithmetic")
    assert found.remedy.startswith("The kernels mostly compute, at 49% of the ceiling of this CPU: ")


@pytest.mark.parametrize(
    ("cell", "step_s", "resident"),
    [
        (examples.cell("catdog-cnn", variant="deep"), 14.0, {8: 3.1, 16: 6.1, 32: 12.0}),  # arithmetic
        (MNIST_GPU, 950e-6, SMALL_NET_ON_GPU),  # fixed cost per step
        (examples.cell("cifar-mlp"), 0.030, {8: 0.024, 16: 0.0248, 32: 0.0266}),  # passes over the weights
        (examples.cell("cifar-cnn"), 0.142, {8: 0.032, 16: 0.065, 32: 0.130}),  # unclear
    ],
)
def test_the_evidence_and_the_parts_are_about_the_same_step(cell, step_s, resident):
    found = diagnosed([launch(cell, step_s, resident)], H200 if cell.device == "cuda" else CPU)
    assert found.parts
    loaded, waiting = (format_si(s, "s") for s in (found.parts.total - found.parts.waiting, found.parts.waiting))
    share = format_percent(found.parts.share("waiting"))
    start = f"A step takes {format_si(found.parts.total, 's')}: {loaded} on loaded data and {waiting} ({share}) waiting"
    assert found.evidence.startswith(start)
    assert f"({format_percent(found.parts.share('fixed'))}" in found.evidence


def test_traffic_that_would_take_longer_than_the_step_stays_in_caches():
    found = diagnosed(
        [launch(MNIST_GPU, 950e-6, {32: 400e-6, 64: 790e-6})], {**H200, **measured("cuda", memory=50 * GIGA)}
    )
    assert found.bottleneck is Bottleneck.UNCLEAR
    assert "45 MB of memory traffic stay in caches" in found.evidence


def test_step_times_of_a_slower_moment_are_scaled_to_training():
    cell = examples.cell("catdog-cnn", variant="deep")
    slower = diagnosed([launch(cell, 11.7, {8: 1.3 * 3.1, 16: 1.3 * 6.1, 32: 1.3 * 11.7})])
    alike = diagnosed([launch(cell, 11.7, {8: 3.1, 16: 6.1, 32: 11.7})])
    assert slower.evidence == alike.evidence
    assert astuple(slower.parts) == pytest.approx(astuple(alike.parts))
    assert slower.evidence.startswith("A step takes 11.7 s. Its ")
    assert "waiting for data" not in slower.evidence


def test_a_step_that_grows_faster_than_its_batch_has_no_fixed_part():
    cell = examples.cell("catdog-cnn", variant="deep")
    assert "0 s (0%) do not grow" in diagnosed([launch(cell, 12.6, {8: 2.9, 16: 6.0, 32: 12.4})]).evidence


def test_the_first_of_several_bottlenecks_is_reported():
    cell = examples.cell("catdog-cnn", variant="deep")
    kinds = []
    causes = {
        "throttled_s": 10.0,
        "step_s": 40.0,
        "resident": {8: 11.0, 16: 11.3, 32: 12.0},
        "cpu_cores": 0.9,
    }
    fixed = {"step_s": 12.6, "resident": {8: 3.1, 16: 6.1, 32: 12.0}}
    for name in list(causes):
        kinds.append(diagnosed([launch(cell, **causes)]).bottleneck)
        del causes[name]
        causes |= {name: fixed[name]} if name in fixed else {}
    kinds.append(diagnosed([launch(cell, **causes)]).bottleneck)
    assert kinds == list(Bottleneck)[1:6]


def test_the_median_counts_over_launches_that_timed_their_steps():
    cell = examples.cell("catdog-cnn", variant="deep")
    good = [launch(cell, 12.6, {8: 3.1, 16: 6.1, 32: 12.0}, launch=i) for i in (1, 2)]
    odd = launch(cell, 40.0, {8: 3.1, 16: 6.1, 32: 12.0}, launch=3)
    blank = launch(cell, 12.6, {}, launch=4)
    assert diagnosed([*good, odd, blank]).bottleneck is Bottleneck.COMPUTE_BOUND
    assert diagnose([blank], scenario_of(cell), CPU, CPU, examples.machine()) is None


SECONDS = st.floats(1e-7, 1e3)
SHARES = st.floats(0, 1)


@settings(max_examples=150, deadline=None)
@given(
    cell=st.builds(
        examples.cell, st.sampled_from(sorted(catalog.scenarios())), st.just("torch"), st.sampled_from(["cpu", "cuda"])
    ),
    launches=st.lists(
        st.tuples(st.floats(1e-5, 1e3), st.dictionaries(st.sampled_from([1, 8, 16, 32, 64, 128]), SECONDS)),
        min_size=1,
        max_size=4,
    ),
    known=st.dictionaries(
        st.sampled_from(["matmul", "convolution", "memory", "launch", "jpeg"]), st.floats(1e-9, 1e16)
    ),
    cores=st.floats(0, 64),
    throttled=st.none() | st.floats(0, 1e4),
    slowed=SHARES,
)
def test_every_measured_cell_has_one_diagnosis_with_sane_figures(cell, launches, known, cores, throttled, slowed):
    host_samples = host(gpu0_hw_slowdown=slowed, cpu_busy=cores, gpu0_use=slowed)
    records = [
        launch(cell, s, r, launch=i, cpu_cores=cores, throttled_s=throttled, host_samples=host_samples)
        for i, (s, r) in enumerate(launches, start=1)
    ]
    both = measured(cell.device, **known)
    found = diagnose(records, scenario_of(cell), both, both, examples.machine())
    if found is None:
        assert not any(cell.batch in resident for _, resident in launches)
        return
    assert found.bottleneck in set(Bottleneck)
    assert found.evidence
    assert found.remedy.endswith(".")
    assert not {"nan", "inf", "None"} & set(found.evidence.replace(",", " ").split())
    assert 0 < found.flops_per_s < math.inf
    for share in (found.ceiling_share, found.peak_share):
        assert share is None or 0 <= share < math.inf


def probe(framework, *found, device="cpu", **changes) -> Record:
    asked = examples.request(purpose="probe", scenario=CEILINGS, framework=framework, device=device, batch=1, **changes)
    return examples.record(asked, result=replace(examples.result(asked), ceilings=list(found)))


def test_a_ceiling_is_the_best_value_of_all_frameworks():
    torch = probe("torch", ceiling("matmul", 9e10, "fp32"), ceiling("launch", 5e-6))
    other = probe("tensorflow", ceiling("matmul", 8e10, "fp32"), ceiling("launch", 9e-6), ceiling("memory", 2e10))
    gpu_probe = probe("torch", ceiling("matmul", 5e13, "fp32"), ceiling("jpeg", 600), device="cuda")
    found = ceilings.best_ceilings([other, torch, gpu_probe, examples.failed(examples.request(purpose="probe"))])
    assert {key: value.value for key, value in found.items()} == {
        ("cpu", "matmul", "fp32"): 9e10,
        ("cpu", "launch", ""): 5e-6,
        ("cpu", "memory", ""): 2e10,
        ("cuda", "matmul", "fp32"): 5e13,
        ("cpu", "jpeg", ""): 600,
    }


def test_a_cell_is_also_compared_with_the_ceilings_of_its_own_framework():
    speeds = {"torch": 40 * GIGA, "tensorflow": 100 * GIGA}
    probes = [probe(framework, ceiling("convolution", speed, "fp32")) for framework, speed in speeds.items()]
    slow = launch(examples.cell("cifar-cnn"), 0.042, {8: 0.011, 16: 0.021, 32: 0.040})
    run = replace(examples.run([slow]), probes=probes)
    (found,) = diagnose_all(run, catalog.scenarios(), ceilings.best_ceilings(probes))
    assert "at the measured 100 GFLOP/s (its own framework's kernel: 40 GFLOP/s)" in found.evidence


@pytest.mark.parametrize(("ceiling_share", "warned"), [(1.05, False), (1.2, True)])
def test_a_cell_that_exceeds_a_ceiling_makes_the_limits_doubtful(ceiling_share: float, warned: bool) -> None:
    cell = examples.cell("cifar-cnn")
    fast = examples.record(examples.request(cell), 1000.0)
    flops = diagnose_all(examples.run([fast]), catalog.scenarios(), {})[0].flops_per_s
    assert flops
    probes = [probe("torch", ceiling("convolution", flops / ceiling_share, "fp32"))]
    analysis = analyze_run(replace(examples.run([fast]), probes=probes), catalog.scenarios())
    low = [warning for warning in analysis.warnings if warning.code is WarningCode.LOW_CEILING]
    doubt = "A cell exceeds a measured ceiling, which is therefore too low: take all limits as a hint."
    assert (doubt in answers(analysis, {}).limit.details) is warned
    assert len(low) == warned
    for warning in low:
        assert warning.cause.startswith(
            f"{cell.key} trained at 120% of the measured ceiling, so this ceiling is too low"
        )
