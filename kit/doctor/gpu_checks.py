"""Check the GPUs: driver, toolkit, frameworks, modes, power and other programs. Every check only judges facts."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kit.analysis.measured_launch import power_capped
from kit.analysis.warnings import REMEDIES, WarningCode
from kit.doctor.facts import Facts, Gpus, Toolkit
from kit.doctor.findings import Finding, Level
from kit.host.gpus import lack_of
from kit.model.environment import Framework
from kit.model.errors import KitError
from kit.model.formatting import format_percent

# In older versions a container can reach the host: CVE-2024-0132 (up to 1.16.1), CVE-2025-23359 (up to 1.17.3), both
# unless it gets its GPUs through CDI, and CVE-2025-23266 (up to 1.17.7; with CDI, before 1.17.5). NVIDIA's security
# bulletins of September 2024, February 2025 and July 2025.
SAFE_TOOLKIT = (1, 17, 8)
SAFE_TOOLKIT_WITH_CDI = (1, 17, 5)
# Before this version, crun makes the root read-only before it runs the hooks with which NVIDIA's toolkit writes to it
# (crun, issue 1924 and release notes of 1.26).
CRUN_FIXED = (1, 26)
# What each compute mode breaks. The search of the tuned lane holds a process with the stock settings and one with the
# candidate at the same time.
REFUSED = {
    "EXCLUSIVE_PROCESS": "it refuses a second process. Every candidate of the tuned lane's search fails.",
    "PROHIBITED": "it refuses every process. All launches on it fail.",
}


def check_gpus(facts: Facts) -> Iterator[Finding]:
    """Yield all findings about GPUs. Without a GPU there is only one."""
    yield check_driver(facts.gpus, facts.cards, facts.frameworks)
    if not facts.gpus.found:
        return
    if not isinstance(facts.docker.description, KitError):
        yield check_toolkit(facts.docker.toolkit)
        yield from check_runtime(facts.docker.description.get("runtime", ""))
    for framework in facts.frameworks:
        if "cuda" in framework.devices:
            yield check_framework(framework, facts.gpus)
    yield from check_visible(facts.gpus.visible)
    yield check_modes(facts.gpus.modes)
    yield check_power(facts.gpus)
    yield check_gpu_load(facts.gpus)


def check_driver(gpus: Gpus, cards: int, frameworks: Sequence[Framework]) -> Finding:
    """Check which GPUs NVIDIA's driver shows. cards: number of GPUs on the PCI bus. kit works without GPUs."""
    if not gpus.answered:
        remedy = "Run nvidia-smi. If it hangs, restart the machine. If it is slow, turn on persistence mode."
        return Finding(Level.WARNING, "gpu", "NVIDIA's driver does not answer.", remedy)
    if gpus.silent:
        message = f"NVIDIA's driver shows only {len(gpus.found)} of {len(gpus.found) + gpus.silent} GPUs to this user."
        return Finding(Level.WARNING, "gpu", message, "Run nvidia-smi. Ask for permission, or restart the machine.")
    if gpus.found:
        names = Counter(gpu.name for gpu in gpus.found)
        models = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items())
        versions = f"driver {gpus.driver or '(unknown)'} supports CUDA up to {gpus.cuda or '(unknown)'}"
        return Finding(Level.OK, "gpu", f"{models}; {versions}")
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
    if toolkit.version and toolkit.version < (SAFE_TOOLKIT_WITH_CDI if "CDI" in toolkit.ways else SAFE_TOOLKIT):
        remedy = (
            f"Update it to {_dotted(SAFE_TOOLKIT)} or newer. In older versions, a container can reach the host "
            "(CVE-2024-0132, CVE-2025-23359, CVE-2025-23266)."
        )
        return Finding(Level.WARNING, "toolkit", message, remedy)
    return Finding(Level.OK, "toolkit", message)


def check_runtime(runtime: str) -> Iterator[Finding]:
    """Warn if Docker starts containers with a crun that breaks the toolkit's hooks in launches, whose root is
    read-only. runtime: program and, if known, version."""
    crun = re.match(r"crun(?: (\d+)\.(\d+))?", runtime)
    if crun is None or (crun[1] and (int(crun[1]), int(crun[2])) >= CRUN_FIXED):
        return
    fixed = _dotted(CRUN_FIXED)
    yield Finding(
        Level.WARNING,
        "runtime",
        f"Docker's default runtime is {runtime}. Before {fixed}, the hooks of NVIDIA's toolkit can fail in it, because "
        "the root of a launch's container is read-only.",
        f"Make runc the default-runtime in /etc/docker/daemon.json and restart Docker, update crun to {fixed}, or use "
        "--engine local.",
    )


def check_framework(framework: Framework, gpus: Gpus) -> Finding:
    """Check whether the driver and every GPU suffice for the cuda environment of a framework."""
    name = f"cuda {framework.name}"
    if framework.name in gpus.lacks:
        cause, remedy = gpus.lacks[framework.name]
        return Finding(Level.WARNING, name, f"Cells of {framework.title} on cuda would be skipped: {cause}", remedy)
    lacks = [lack[0] for gpu in gpus.found if (lack := lack_of(gpu, framework, gpus.cuda))]
    if lacks:
        return Finding(Level.WARNING, name, " ".join(lacks), "Choose another GPU with --gpus.")
    known = {gpu.compute_capability for gpu in gpus.found if gpu.compute_capability is not None}
    capabilities = ", ".join(_dotted(own) for own in sorted(known)) or "(unknown)"
    return Finding(
        Level.OK,
        name,
        f"CUDA {framework.cuda_major}; driver {gpus.driver or '(unknown)'} (needs {framework.min_driver}); has code "
        f"for compute capability {capabilities}",
    )


def check_visible(visible: tuple[str, ...] | KitError | None) -> Iterator[Finding]:
    """Check the GPUs that CUDA_VISIBLE_DEVICES names. Yield nothing if it is not set."""
    if isinstance(visible, KitError):
        yield Finding(Level.WARNING, "gpu choice", visible.message, visible.remedy)
    elif visible is not None:
        message = f"CUDA_VISIBLE_DEVICES leaves {', '.join(visible)}. Runs without --gpus use the first idle one."
        yield Finding(Level.OK, "gpu choice", message)


def check_modes(modes: Mapping[int, str]) -> Finding:
    """Check the compute modes. modes: by index, of the GPUs on which the driver refuses processes."""
    if not modes:
        return Finding(Level.OK, "gpu mode", "No GPU reports a compute mode that refuses programs")
    message = " ".join(f"GPU {index} is in compute mode {mode}, so {REFUSED[mode]}" for index, mode in modes.items())
    remedy = f"Run `sudo nvidia-smi -i {','.join(map(str, modes))} -c DEFAULT`, or choose another GPU with --gpus."
    return Finding(Level.WARNING, "gpu mode", message, remedy)


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


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
