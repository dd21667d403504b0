"""What the tuned lane reaches: each framework's against plain Keras, and against its own stock lane.

`python -m benchmarks.tuned` prints for each scenario and framework a line of JSON against plain Keras' whole epochs
(`tuned`: each is a `fit`), one against the steps of such epochs alone (`tuned-steps`: before them `fit` prepares, after
them it waits for a timer), both where `keras_recipes` has the scenario, and one against the stock lane
(`tuned-stock`), all at the scenario's batch size. Settings are searched as in `kit run --lane tuned`; what was found
before on this machine is taken.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.overhead import OF_KERAS, SCENARIOS
from benchmarks.pairs import Subject, exit_code, say
from benchmarks.processes import Command, Extent, alone, compare, on_host
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.plan import TUNE_S
from kit.model.progress import Progress
from kit.model.record import Record, tuning_of
from kit.planning import catalog
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from scenarios.contract import allocators

TUNED = "tuned"
STOCK = "stock"
STEPS = 150  # of an epoch
PLAIN, PLAIN_FRAMEWORK = "benchmarks.keras_recipes", "tensorflow"


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    known = list(catalog.scenarios())
    parser = argparse.ArgumentParser(prog="benchmarks.tuned", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=known, help="default: all of them")
    parser.add_argument("--framework", action="append", choices=list(catalog.frameworks()), help="default: all")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the tuned lane")
    parser.add_argument("--against", action="append", choices=(*OF_KERAS, STOCK), help="default: all of them")
    parser.add_argument("--tune", type=float, default=TUNE_S, help="seconds of each search; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the searches; default: reports")
    Extent.offer(parser, images=None, images_in_words=f"those of {STEPS} steps")
    asked = parser.parse_args(arguments)
    asked.against = asked.against or [*OF_KERAS, STOCK]
    if STOCK not in asked.against and (absent := set(asked.scenario or ()) - set(SCENARIOS)):
        parser.error(f"there is no plain Keras recipe of {', '.join(sorted(absent))}; there is --against {STOCK}")
    return asked


def main() -> None:
    """Search, then measure with the machine to ourselves."""
    asked = options()
    sources, frameworks = Sources.from_environment(), catalog.frameworks()
    engine = LocalEngine(sources)
    with show_progress() as progress, tempfile.TemporaryDirectory() as home:
        found = searched(asked, sources, progress)
        names = {record.request.framework for record in found} | {PLAIN_FRAMEWORK}
        environments = {name: engine.prepare(frameworks[name], "cpu", progress) for name in sorted(names)}
        with alone():
            for subject, ours, baseline in comparisons(asked, found, environments, Path(home)):
                compare(subject, ours, baseline, Extent.asked(asked), progress)


def searched(asked: argparse.Namespace, sources: Sources, progress: Progress) -> list[Record]:
    """The records of the searches that came to an end, each followed by a short launch with what was found; says which
    did not."""
    scenarios = tuple(asked.scenario or catalog.scenarios())
    selection = Selection(
        scenarios=scenarios,
        frameworks=tuple(asked.framework) if asked.framework else None,
        devices=("cpu",),
        lanes=("tuned",),
        precisions=(asked.precision,),
    )
    wishes = Options("local", profile="smoke", data="synthetic", tune_s=asked.tune)
    outcome = workflow.start(workflow.prepare(selection, wishes, sources), asked.out, progress)
    found = []
    for record in RunFolder.open(outcome.folder).tunings():
        if absent := record.reason.message if record.reason else tuning_of(record).broken:
            request = record.request
            say(Subject(TUNED, request.scenario, request.framework, request.precision).line({"skipped": absent}))
        else:
            found.append(record)
    return found


def comparisons(
    asked: argparse.Namespace, found: list[Record], environments: Mapping[str, Environment], home: Path
) -> Iterator[tuple[Subject, Command, Command]]:
    """What is measured against what."""
    for record in found:
        request = record.request
        images = asked.images or STEPS * request.batch
        work = (request.scenario, "--images", str(images))
        ours = kit_side(record, environments, home, *work, settings=tuning_of(record).settings)
        cell = request.scenario, request.framework, request.precision
        for against, (ending, how) in OF_KERAS.items():
            if against in asked.against and request.scenario in SCENARIOS:
                baseline = on_host(environments[PLAIN_FRAMEWORK], home, PLAIN, *work, *how)
                yield Subject(TUNED + ending, *cell), ours, baseline
        if STOCK in asked.against:
            yield Subject("tuned-stock", *cell), ours, kit_side(record, environments, home, *work)


def kit_side(
    record: Record,
    environments: Mapping[str, Environment],
    home: Path,
    *work: str,
    settings: Mapping[str, str] | None = None,
) -> Command:
    """The kit's training loop in the record's cell. settings: of the tuned lane; None: the stock lane."""
    request = record.request
    who = ("--framework", request.framework, "--threads", str(len(usable_cpus())), "--precision", request.precision)
    how = ("--settings", json.dumps(settings)) if settings else ()
    variables = allocators.variables(settings or {})
    return on_host(environments[request.framework], home, "benchmarks.kit_side", *work, *who, *how, variables=variables)


if __name__ == "__main__":
    sys.exit(exit_code(main))
