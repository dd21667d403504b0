"""The GPUs that a framework can use."""

from dataclasses import replace

import pytest

from kit.host import gpus
from kit.model.machine import Gpu
from kit.planning import catalog
from tests import examples


@pytest.fixture
def machine(monkeypatch):
    def make(capabilities, driver, cuda="13.0"):
        found = [
            Gpu(
                index=i,
                name=f"GPU {c}",
                memory_bytes=1,
                compute_capability=c,
                power_limit_w=None,
                default_power_limit_w=None,
            )
            for i, c in enumerate(capabilities)
        ]
        monkeypatch.setattr(gpus, "gpus", lambda: found)
        monkeypatch.setattr(gpus, "driver", lambda: (driver, cuda))

    return make


# What `python -m kit.environments.device_code` found. The lists of PyTorch and TensorFlow are also in the wheels:
# torch.cuda.get_arch_list() and tensorflow.sysconfig.get_build_info()["cuda_compute_capabilities"].
@pytest.mark.parametrize(
    ("name", "usable", "unusable"),
    [
        ("onnxruntime", "7.5 8.0 8.6 8.9 9.0 12.0", "6.1 7.0 10.0 10.3 12.1"),
        ("tensorflow", "7.5 8.0 8.6 8.9 9.0", "6.1 7.0 10.0 10.3 12.0"),
        ("torch", "7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1", "6.1 7.0 11.0"),
    ],
)
def test_a_framework_is_refused_on_gpus_for_which_its_wheels_have_no_code(machine, name, usable, unusable):
    framework = catalog.frameworks()[name]
    accepted = []
    for capability in [*usable.split(), *unusable.split()]:
        machine([tuple(map(int, capability.split(".")))], "580.65.06")
        accepted += [capability] if gpus.refusal(framework) is None else []
    assert accepted == usable.split()


def test_a_library_that_was_not_read_yet_refuses_no_gpu():
    framework = replace(catalog.frameworks()["torch"], device_code={"torch==2/libtorch_cuda.so": ()})
    assert gpus.lack_of(examples.gpu(), framework, "13.0") is None


def test_one_suitable_gpu_is_enough(machine):
    machine([(6, 0), (9, 0)], "580.65.06")
    assert gpus.refusal(catalog.frameworks()["torch"]) is None


@pytest.mark.parametrize(
    ("name", "capabilities", "driver", "cuda", "words"),
    [
        ("torch", [], None, None, "No NVIDIA GPU is visible"),
        ("torch", [(9, 0)], "575.57", "12.9", "needs 580 or newer. Update the driver."),
        ("torch", [(7, 0), (6, 0)], "580.65.06", "13.0", "GPU 0 (GPU (7, 0)) has compute capability 7.0, for"),
        ("tensorflow", [(7, 0)], "580.65.06", "13.0", "for which nvidia-cudnn-cu12=="),
        ("tensorflow", [(12, 0)], "580.65.06", "13.0", "TensorFlow compiles only for 9.0 and older. Use --env"),
        ("tensorflow", [(9, 0)], "550.54", "12.4", "must support CUDA 12.5, but it supports only 12.4. Update"),
    ],
)
def test_a_refusal_names_what_is_too_old_or_missing(machine, name, capabilities, driver, cuda, words):
    machine(capabilities, driver, cuda)
    assert words in gpus.refusal(catalog.frameworks()[name])


def test_machine_code_needs_no_newer_driver(machine):
    machine([(8, 0)], "535.104", "12.2")
    assert gpus.refusal(catalog.frameworks()["tensorflow"]) is None
