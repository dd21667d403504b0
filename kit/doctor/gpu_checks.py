"""Check the GPUs: driver, toolkit, frameworks, power limits and other programs. Every check only judges facts."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kit.analysis.measured_launch import power_capped
from kit.analysis.warnings import REMEDIES, WarningCode
from kit.doctor.facts import Facts, Gpus, Toolkit
from kit.doctor.findings import Finding, Level
from kit.host.gpus import lack_of
from kit.model.environment import Framework
from kit.model.errors import KitError
from kit.model.formatting import format_percent

# Up to this version a container can reach the host, unless it gets its GPUs through CDI (NVIDIA, security bulletin of
# September 2024).
CVE_2024_0132 = (1, 16, 1)


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """Yield all findings about GPUs. Without a GPU there is only one."""
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
    """Check which GPUs NVIDIA's driver shows. cards: number of GPUs on the PCI bus. kit works without GPUs."""
    if not gpus.answered:
        remedy = "Run nvidia-smi. If it hangs, restart the machine. If it is slow, turn on persistence mode."
        return Finding(Level.WARNING, "gpu", "NVIDIA's driver fails or does not answer.", remedy)
    if gpus.found:
        names = Counter(gpu.name for gpu in gpus.found)
        models = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items())
        return Finding(Level.OK, "gpu", f"{models}; driver {gpus.driver} supports CUDA up to {gpus.cuda}")
    if not cards:
        return Finding(Level.OK, "gpu", "No NVIDIA GPU is visible. Cells on cuda will be skipped.")
    required = max((framework.min_driver or 0 for framework in frameworks), default=0)
    return Finding(
        Level.WARNING,
        "gpu",
        f"This machine has NVIDIA GPUs ({cards}), but no driver shows them. Cells on cuda will be skipped.",
        f"Install NVIDIA's driver {required} or newer. If this is a container, start it with --gpus all.",
    )


def check_toolkit(toolkit: Toolkit) -> Finding:
    """Check whether Docker can pass a GPU to a container safely."""
    if not toolkit.ways:
        return Finding(
            Level.WARNING,
            "toolkit",
            "Docker cannot pass a GPU to a container.",
            "Install the NVIDIA Container Toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker`, and "
            "restart Docker. Or use --engine local.",
        )
    version = ".".join(map(str, toolkit.version)) if toolkit.version else "(unknown version)"
    message = f"NVIDIA Container Toolkit {version}; Docker passes GPUs by {', '.join(toolkit.ways)}"
    if toolkit.version and toolkit.version <= CVE_2024_0132 and "CDI" not in toolkit.ways:
        remedy = "Update it to 1.16.2 or newer. In older versions, a container can reach the host (CVE-2024-0132)."
        return Finding(Level.WARNING, "toolkit", message, remedy)
    return Finding(Level.OK, "toolkit", message)


def check_framework(framework: Framework, gpus: Gpus) -> Finding:
    """Check whether the driver and every GPU suffice for the cuda environment of a framework."""
    name = f"cuda {framework.name}"
    if framework.name in gpus.lacks:
        cause, remedy = gpus.lacks[framework.name]
        return Finding(Level.WARNING, name, f"Cells of {framework.title} on cuda would be skipped: {cause}", remedy)
    lacks = [lack[0] for gpu in gpus.found if (lack := lack_of(gpu, framework, gpus.cuda))]
    if lacks:
        return Finding(Level.WARNING, name, " ".join(lacks), "Choose another GPU with --gpus.")
    capabilities = ", ".join(_dotted(own) for own in sorted({gpu.compute_capability for gpu in gpus.found}))
    return Finding(
        Level.OK,
        name,
        f"CUDA {framework.cuda_major}; driver {gpus.driver} (needs {framework.min_driver}); has code for compute "
        f"capability {capabilities}",
    )


def check_power(gpus: Gpus) -> Finding:
    """Compare the power limits with their defaults."""
    if lowered := power_capped(gpus.found):
        shares = ", ".join(f"GPU {gpu.index} to {format_percent(share)}" for gpu, share in lowered)
        message = f"The power limit is lowered: {shares} of its default."
        return Finding(Level.WARNING, "gpu power", message, REMEDIES[WarningCode.POWER_CAP])
    shown = any(gpu.power_limit_w and gpu.default_power_limit_w for gpu in gpus.found)
    return Finding(Level.OK, "gpu power", "Power limits are not lowered" if shown else "The power limits are unknown")


def check_gpu_load(gpus: Gpus) -> Finding:
    """Check whether programs already compute on a GPU."""
    if not gpus.busy:
        return Finding(Level.OK, "gpu load", "No program computes on a GPU")
    message = f"Programs compute on GPU {', '.join(map(str, gpus.busy))} of {len(gpus.found)}."
    remedy = "End them, or choose an idle GPU with --gpus. A shared GPU distorts the results."
    return Finding(Level.WARNING, "gpu load", message, remedy)


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
