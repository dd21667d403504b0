"""What an examination looks at where a GPU is or could be: driver, toolkit, frameworks, power, other programs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kit.analysis.measured_launch import capped
from kit.analysis.warnings import REMEDIES, WarningCode
from kit.doctor.facts import Facts, Gpus, Toolkit
from kit.doctor.findings import Finding, Level
from kit.model.environment import Framework
from kit.model.errors import KitError
from kit.model.figures import percent

# NVIDIA, security bulletin of September 2024: up to here a container can reach the host, but not where it gets its
# GPUs through CDI.
CVE_2024_0132 = (1, 16, 1)


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """All lines about GPUs: one where there is none."""
    yield check_driver(facts.gpus, facts.cards, facts.frameworks)
    if not facts.gpus.found:
        return
    if not isinstance(facts.docker.description, KitError):
        yield check_toolkit(facts.docker.toolkit)
    for framework in facts.frameworks:
        if "cuda" in framework.devices:
            yield check_framework(framework, facts.gpus)
    yield check_power(facts.gpus)
    yield check_gpu_load(facts.gpus)


def check_driver(gpus: Gpus, cards: int, frameworks: Sequence[Framework]) -> Finding:
    """Which GPUs NVIDIA's driver shows. cards: on the PCI bus. Without any, kit works: on the CPU."""
    if not gpus.answered:
        remedy = "Run nvidia-smi: where it hangs too, restart the machine; where it is slow, turn on persistence mode."
        return Finding(Level.WARNING, "gpu", "NVIDIA's driver does not answer, or fails.", remedy)
    if gpus.found:
        names = Counter(gpu.name for gpu in gpus.found)
        told = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())
        return Finding(Level.OK, "gpu", f"{told}; driver {gpus.driver}, for CUDA up to {gpus.cuda}")
    if not cards:
        return Finding(Level.OK, "gpu", "No NVIDIA GPU is visible; cells on cuda will be skipped.")
    least = max((framework.min_driver or 0 for framework in frameworks), default=0)
    return Finding(
        Level.WARNING,
        "gpu",
        f"NVIDIA GPUs in this machine: {cards}, and no driver shows one; cells on cuda will be skipped.",
        f"Install NVIDIA's driver, {least} or newer. If this is a container, start it with GPUs (--gpus all).",
    )


def check_toolkit(toolkit: Toolkit) -> Finding:
    """Whether Docker can hand a GPU to a container, and does so safely."""
    if not toolkit.ways:
        return Finding(
            Level.WARNING,
            "toolkit",
            "Docker cannot hand a GPU to a container.",
            "Install the NVIDIA Container Toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker` and "
            "restart Docker; or use --engine local.",
        )
    version = ".".join(map(str, toolkit.version)) if toolkit.version else "version not shown"
    message = f"NVIDIA Container Toolkit {version}; Docker hands over GPUs by {', '.join(toolkit.ways)}"
    if toolkit.version and toolkit.version <= CVE_2024_0132 and "CDI" not in toolkit.ways:
        remedy = "Update it to 1.16.2 or newer: up to 1.16.1 a container can reach the host (CVE-2024-0132)."
        return Finding(Level.WARNING, "toolkit", message, remedy)
    return Finding(Level.OK, "toolkit", message)


def check_framework(framework: Framework, gpus: Gpus) -> Finding:
    """Driver and compute capability against what the framework's cuda environment needs."""
    name = f"cuda {framework.name}"
    if framework.name in gpus.lacks:
        cause, remedy = gpus.lacks[framework.name]
        return Finding(Level.WARNING, name, f"{framework.title}'s cells on cuda would be skipped: {cause}", remedy)
    least = framework.min_capability or (0, 0)
    old = [f"{gpu.index} ({gpu.name})" for gpu in gpus.found if gpu.compute_capability < least]
    if old:
        message = f"{framework.title} cannot use GPU {', '.join(old)}: it needs compute capability {_dotted(least)}."
        return Finding(Level.WARNING, name, message, "Choose another GPU with --gpus.")
    capabilities = ", ".join(_dotted(own) for own in sorted({gpu.compute_capability for gpu in gpus.found}))
    return Finding(
        Level.OK,
        name,
        f"CUDA {framework.cuda_major}; driver {gpus.driver} (needs {framework.min_driver}), compute capability "
        f"{capabilities} (needs {_dotted(least)})",
    )


def check_power(gpus: Gpus) -> Finding:
    """Power limits against the defaults."""
    if lowered := capped(gpus.found):
        told = ", ".join(f"GPU {gpu.index} to {percent(share)}" for gpu, share in lowered)
        message = f"The power limit is lowered: {told} of its default."
        return Finding(Level.WARNING, "gpu power", message, REMEDIES[WarningCode.POWER_CAP])
    shown = any(gpu.power_limit_w and gpu.default_power_limit_w for gpu in gpus.found)
    return Finding(Level.OK, "gpu power", "Not lowered" if shown else "The limit is not shown here")


def check_gpu_load(gpus: Gpus) -> Finding:
    """Programs that compute on a GPU already."""
    if not gpus.busy:
        return Finding(Level.OK, "gpu load", "No program computes on a GPU now")
    message = f"Programs compute on GPU {', '.join(map(str, gpus.busy))} of {len(gpus.found)}."
    remedy = "End them, or choose an idle GPU with --gpus: both would be slower."
    return Finding(Level.WARNING, "gpu load", message, remedy)


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
