"""Carry out the phases of a run that come before measuring, and say in a few words how each phase ended."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kit.analysis.ceilings import best_ceilings, ceiling_value
from kit.datasets.service import ResolvedData
from kit.engines import registry
from kit.engines.base import Engine
from kit.execution.launch_report import LaunchReport
from kit.execution.resolve import DataSets, Resolver
from kit.model.data_choice import DataChoice
from kit.model.environment import Environment, EnvironmentKey, Framework
from kit.model.formatting import DEVICES, format_count, format_list, format_si, shortened
from kit.model.plan import PlannedLaunch
from kit.model.progress import Outcome, Phase, Progress
from kit.model.record import Record
from kit.planning import catalog
from kit.planning.estimates import environment_cost
from scenarios.contract.cell import Device
from scenarios.contract.reasons import Reason
from scenarios.spec import DATASETS

MAX_LACK = 120  # characters of the reason why a data set is missing


def find_data(progress: Progress, data: DataSets, names: Iterable[str]) -> None:
    """Find or download these data sets. `data` keeps them."""
    if not (missing := [name for name in dict.fromkeys(names) if name not in data.found]):
        return
    with progress.phase("Data", len(missing)) as phase:
        for name in missing:
            phase.now(DATASETS[name].title)
            data.find(name)
            phase.advance(1)
        found = {DATASETS[name].title: data.found[name] for name in missing}
        phase.end(data_outcome(found, requested=data.kind))


def data_outcome(found: Mapping[str, ResolvedData | Reason], requested: DataChoice) -> Outcome:
    """Return how many data sets are ready, which ones are synthetic or missing, and the first reason.

    found: by the title of the data set. A data set with several mirrors has a reason for each. The report has all of
    them.
    """
    if requested == "synthetic":
        return Outcome("synthetic, as requested")
    missing = [title for title, each in found.items() if isinstance(each, Reason)]
    made = [title for title, each in found.items() if isinstance(each, ResolvedData) and each.kind == "synthetic"]
    ready = len(found) - len(missing) - len(made)
    parts = [f"{format_count(ready, 'data set')} ready"] * bool(ready)
    parts += [f"synthetic: {format_list(made)}"] * bool(made)
    parts += [f"not available: {format_list(missing)}"] * bool(missing)
    lacks = ((title, each.message if isinstance(each, Reason) else each.lack) for title, each in found.items())
    title, lack = next(((title, lack) for title, lack in lacks if lack), ("", ""))
    first = shortened(lack.removesuffix(".").partition("; ")[0], MAX_LACK)
    of = f"{title}: " if len(missing) + len(made) > 1 else ""
    return Outcome(f"{'; '.join(parts)}{f' ({of}{first})' if first else ''}", good=not (made or missing))


def find_environments(progress: Progress, resolver: Resolver, launches: Sequence[PlannedLaunch], engine: str) -> None:
    """Find or make the environments of these launches. `resolver` keeps them."""
    needed = resolver.missing(launches)
    if not needed:
        return
    with progress.phase(_environments(engine), len(needed)) as phase:
        for key in _announced(phase, needed):
            resolver.environment(key)
        here = [key for key in needed if isinstance(resolver.environments[key], Environment)]
        phase.end(environments_outcome(len(needed), [needed[key] for key in here]))


def build(progress: Progress, engine: Engine, wanted: Sequence[tuple[Framework, Device]]) -> list[Environment]:
    """Make environments and return them. Raise as `Engine.prepare` does."""
    frameworks = {(framework.name, device): framework for framework, device in wanted}
    needed = {key: engine.ready(framework, key[1]) for key, framework in frameworks.items()}
    with progress.phase(_environments(engine.name), len(needed)) as phase:
        made = [engine.prepare(frameworks[key], key[1], progress) for key in _announced(phase, needed)]
        phase.end(environments_outcome(len(needed), [*needed.values()]))
    return made


def _environments(engine: str) -> str:
    """Return the name of the phase that makes environments. engine: its name."""
    return next(
        ("Packages" for entry in registry.entries() if entry.name == engine and entry.makes != "image"), "Images"
    )


def _announced(phase: Phase, needed: Mapping[EnvironmentKey, bool]) -> Iterator[EnvironmentKey]:
    """Yield each environment, with its name and the time that is left on the terminal. needed: whether it exists."""
    titles = {name: framework.title for name, framework in catalog.frameworks().items()}
    seconds = {key: 0.0 if exists else environment_cost(*key).seconds for key, exists in needed.items()}
    for key in needed:
        framework, device = key
        phase.now(f"{titles[framework]} on the {DEVICES[device]}", sum(seconds.values()))
        yield key
        del seconds[key]
        phase.advance(1)


def environments_outcome(needed: int, existed: Sequence[bool]) -> Outcome:
    """Return how many environments were built, existed before, and failed. existed: of each one that is here."""
    ready, failed = sum(existed), needed - len(existed)
    counts = ((len(existed) - ready, "built"), (ready, "ready"), (failed, "failed"))
    return Outcome(", ".join(f"{count} {word}" for count, word in counts if count), good=not failed)


def tuning_outcome(report: LaunchReport, known: int) -> Outcome:
    """Return how many searches there were. known: number of cells whose settings an earlier run found."""
    failed = sum(not record.ok for record, _ in report.records)
    counts = (
        (len(report.records) - failed, "searched"),
        (known, "known from earlier runs"),
        (failed, "failed"),
    )
    return Outcome(", ".join(f"{count} {word}" for count, word in counts if count), good=not failed)


def ceilings_outcome(report: LaunchReport, probes: Sequence[Record]) -> Outcome:
    """Return the ceilings of each device. probes: records of all probes of the run."""
    ceilings, texts = best_ceilings(probes), []
    for device, name in (("cpu", "CPU"), ("cuda", "GPU")):
        arithmetic = ceiling_value(ceilings, device, "convolution", "fp32")
        what = "convolution"
        if arithmetic is None:
            arithmetic, what = ceiling_value(ceilings, device, "matmul", "fp32"), "matrix products"
        memory = ceiling_value(ceilings, device, "memory")
        found = [f"{format_si(arithmetic, 'FLOP/s')} {what}"] if arithmetic else []
        found += [f"{format_si(memory, 'B/s')} memory"] if memory else []
        if found:
            texts.append((name, ", ".join(found)))
    text = texts[0][1] if len(texts) == 1 else "; ".join(f"{name} {found}" for name, found in texts)
    if failed := sum(not record.ok for record, _ in report.records):
        failures = f"{failed} of {format_count(len(report.records), 'probe')} failed"
        return Outcome(f"{text}; {failures}" if text else failures, good=False)
    return Outcome(text or "measured")
