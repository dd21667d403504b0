"""Check the cells of a machine with an NVIDIA GPU: `python -m tests.gpu_check`. `make gpu-check` calls it.

It runs the doctor, stock cells of each framework, the contract suite, other precisions and two tuned cells. It ends
with one page of pass and fail, and packs records, reports and logs into an archive. It takes at most 30 minutes after
images or environments are built.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host import gpu_choice, gpus
from kit.model.errors import EngineError, KitError, UsageError
from kit.planning import catalog
from kit.storage.files import disk_errors
from kit.storage.run_folder import RunFolder
from scenarios.contract.cell import Device

ROOT = Path(__file__).parents[1]
TOTAL_S = 30 * 60
BUILD_S = 2 * 60 * 60  # images and environments have gigabytes
MIN_S = 20  # a check with less time would only fail for that reason
KILL_S = 30  # for kit to end its launch
MAX_SHOWN = 200  # characters of a log's last line
PASS, FAIL, SKIP = "pass", "FAIL", "skip"

# The smallest network with a dropout layer, a dense one and the deep one with photos: all kinds of layers and feeds.
PRECISION_SCENARIOS = ("mnist-cnn-dropout", "cifar-mlp", "catdog-cnn")
TUNED_SCENARIOS = ("mnist-cnn-dropout", "catdog-cnn")


@dataclass(frozen=True)
class Check:
    """One line of the page.

    command: arguments of Python. limit_s: the most time that it may take, s. judge: takes the folder of the check's
    runs and returns the outcome and a remark; None: the exit code decides. skipped: why it does not run here, or "".
    """

    name: str
    command: tuple[str, ...]
    limit_s: float
    judge: Callable[[Path], tuple[str, str]] | None = None
    skipped: str = ""


@dataclass(frozen=True)
class Line:
    """The outcome of a check. seconds: how long it took."""

    name: str
    outcome: str
    seconds: float
    remark: str


def refusals(device: Device, interpreter: str) -> dict[str, str]:
    """Return for each framework why no cell of it can run here, or "".

    interpreter: as `--env` takes it, or "". Raise UsageError if there is no such interpreter, and EngineError if all
    frameworks are refused.
    """
    engine = LocalEngine(Sources.from_environment(), interpreter)
    frameworks = catalog.frameworks()
    found = {name: engine.refusal(framework, device) or "" for name, framework in frameworks.items()}
    if all(found.values()):
        causes = " ".join(f"{frameworks[name].title}: {refusal}" for name, refusal in found.items())
        raise EngineError(f"No framework can be checked on this machine. {causes}", "`kit doctor` checks this machine.")
    return found


def checks(device: str, interpreter: str, refused: Mapping[str, str]) -> Iterator[Check]:
    """Return all checks, most important first. refused: as `refusals` returns it."""
    env = ("--env", interpreter) if interpreter else ()
    options = (*env, "--device", device, "--data", "synthetic")
    yield Check("doctor", ("-m", "kit", "doctor"), 120)
    for name, skipped in refused.items():
        run = ("-m", "kit", "run", "--framework", name, *options)
        yield Check(f"stock cells, {name}", (*run, "--profile", "smoke"), 600, judge_records, skipped)
    for name, skipped in refused.items():
        yield Check(f"contract suite, {name}", ("-m", "tests.run_contract", name), 600, None, skipped)
    for name, skipped in refused.items():
        run = ("-m", "kit", "run", "--framework", name, *options)
        scenarios = tuple(f"--scenario={scenario}" for scenario in PRECISION_SCENARIOS)
        precisions = ("--precision", "tf32", "--precision", "bf16")
        command = (*run, "--profile", "smoke", *precisions, *scenarios)
        yield Check(f"tf32 and bf16, {name}", command, 300, judge_records, skipped)
    for name, skipped in refused.items():
        run = ("-m", "kit", "run", "--framework", name, *options)
        scenarios = tuple(f"--scenario={scenario}" for scenario in TUNED_SCENARIOS)
        command = (*run, "--profile", "quick", "--lane", "stock", "--lane", "tuned", "--tune", "60s", *scenarios)
        yield Check(f"tuned cells, {name}", command, 600, judge_records, skipped)


def judge_records(folder: Path) -> tuple[str, str]:
    """Return whether the launches of a run are `ok`, and how many have each status, with the reasons of others.

    The outcome is `skip` if all were skipped, for example because the GPU lacks the precisions. An incomplete run and
    one without its report fail.
    """
    runs = [RunFolder.open(run) for run in folder.glob("*/")]
    records = [record for run in runs for record in run.records()]
    statuses = Counter(str(record.status) for record in records)
    reasons = dict.fromkeys(f"{record.key}: {record.reason.message}" for record in records if record.reason)
    remark = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "no launch has a record"
    if any(run.missing() or not run.index.is_file() for run in runs):
        return FAIL, "\n".join([f"{remark}, but launches or the report are missing", *reasons])
    outcomes = {frozenset({"ok"}): PASS, frozenset({"ok", "skipped"}): PASS, frozenset({"skipped"}): SKIP}
    return outcomes.get(frozenset(statuses), FAIL), "\n".join([remark, *reasons])


def perform(check: Check, out: Path, variables: dict[str, str], left_s: float) -> Line:
    """Run a check. Its output goes to a log in `out`, and its runs to a folder there."""
    if check.skipped:
        return Line(check.name, SKIP, 0, check.skipped)
    if left_s < MIN_S:
        return Line(check.name, FAIL, 0, "no time was left")
    stem = check.name.replace(", ", "-").replace(" ", "-")
    runs = out / stem
    command = [sys.executable, *check.command, *(("--out", str(runs)) if "run" in check.command else ())]
    began = time.monotonic()
    with open(out / f"{stem}.log", "wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=log, start_new_session=True)
        try:
            ended = _ended(process, min(check.limit_s, left_s))
        finally:  # also after Ctrl-C, which does not reach another session
            _end(process)
    seconds = time.monotonic() - began
    try:
        outcome, remark = check.judge(runs) if check.judge else (PASS, "")
    except KitError as error:  # a run that was killed while it wrote its first files
        outcome, remark = FAIL, error.message
    if not ended:
        return Line(check.name, FAIL, seconds, f"it took too long\n{remark}".rstrip())
    # A run ends with exit code 1, too, if a cell on the named device was skipped. The records say whether one failed.
    if process.returncode not in ({0, 1} if outcome != FAIL and check.judge else {0}):
        why = [f"exit code {process.returncode}, see {stem}.log", *remark.splitlines(), *_end_of(out / f"{stem}.log")]
        return Line(check.name, FAIL, seconds, "\n".join(why))
    return Line(check.name, outcome, seconds, remark)


def _end_of(log: Path) -> list[str]:
    """Return the last line of a log that is not empty, cut to MAX_SHOWN characters."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return [line[:MAX_SHOWN] for line in lines[-1:]]


def _ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process if it still runs: first as Ctrl-C does, then by force."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            _ended(process, KILL_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def page(lines: Sequence[Line]) -> str:
    """Return the page: one line per check, with the reasons of what is not `ok` below it."""
    width = max(len(line.name) for line in lines)
    text = []
    for line in lines:
        first, *rest = line.remark.split("\n")
        time_taken = f"{line.seconds:,.0f} s" if line.outcome != SKIP else ""
        text.append(f"{line.outcome}  {line.name:<{width}}  {time_taken:>7}  {first}".rstrip())
        text += [f"      {reason}" for reason in rest]
    counts = Counter(line.outcome for line in lines)
    text.append(f"{counts[PASS]} passed, {counts[FAIL]} failed, {counts[SKIP]} skipped")
    return "\n".join([*text, ""])


def main(arguments: Sequence[str]) -> int:
    """Perform all checks and print the page. Return 0 if none failed, 130 after Ctrl-C, else 1.

    Raise EngineError if there is nothing to check. Raise UsageError or DiskError for a folder that cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_check", description="Check a machine with an NVIDIA GPU."
    )
    parser.add_argument("--env", default="", help="interpreter with the frameworks, or `system`; default: kit's own")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="new folder for records, reports and logs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: try the check without a GPU")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        require_gpu()
    refused = refusals(options.device, options.env)
    out: Path = options.out.absolute()
    archive = Path(f"{out}.tar.gz")
    create(out, archive)
    variables = {**os.environ, "KIT_TEST_DEVICE": options.device, "KIT_TEST_ENV": options.env}
    lines: list[Line] = []
    env = ("--env", options.env) if options.env else ()
    build = Check("build", ("-m", "kit", "build", "--device", options.device, *env), BUILD_S)
    end = time.monotonic() + BUILD_S
    interrupted = False
    for check in (build, *checks(options.device, options.env, refused)):
        try:
            lines.append(perform(check, out, variables, end - time.monotonic()))
        except KeyboardInterrupt:
            lines.append(Line(check.name, FAIL, 0, "interrupted. The checks after it did not run."))
            interrupted = True
            break
        if check is build:
            end = time.monotonic() + TOTAL_S
            if lines[-1].outcome == FAIL:  # the checks would fail for the same reason
                break
        sys.stdout.write(page(lines[-1:]).splitlines()[0] + "\n")
        sys.stdout.flush()
    text = page(lines)
    sys.stdout.write(f"\n{text}")
    with disk_errors(archive, f"Pack the folder {out} yourself."):
        (out / "page.txt").write_text(text, encoding="utf-8")
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(out, out.name)
    sys.stdout.write(f"Records, reports and logs: {archive}\n")
    if interrupted:
        return 130
    return 1 if any(line.outcome == FAIL for line in lines) else 0


def require_gpu() -> None:
    """Raise EngineError if there is no GPU, and UsageError if CUDA_VISIBLE_DEVICES hides or misnames it."""
    if absence := gpus.absence():
        raise EngineError(absence, "Run `kit doctor` to find the cause, or add --device cpu to try the check anyway.")
    gpu_choice.visible_gpus()
    if hidden := gpu_choice.hidden():
        raise hidden


def create(out: Path, archive: Path) -> None:
    """Create the folder. Raise UsageError if it or the archive exists, and DiskError if it cannot be created."""
    remedy = "Choose a new folder with --out, for example gpu-check-2."
    with disk_errors(out, remedy):
        for path in (out, archive):
            if os.path.lexists(path):
                raise UsageError(f"{path} already exists. Measurements are never overwritten.", remedy)
        out.mkdir(parents=True)


def command_line(arguments: Sequence[str]) -> NoReturn:
    """Perform all checks and exit. A terminal that closes and SIGTERM count as Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main(arguments))
    except KitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    command_line(sys.argv[1:])
