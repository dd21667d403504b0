"""Write the report of a run with its summary, and the index of the folder that contains the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.execution import campaign
from kit.model.errors import DiskError, UsageError
from kit.model.progress import Progress
from kit.model.tariff import Tariff
from kit.planning import catalog
from kit.storage.run_folder import RunFolder, parent_of
from kit.storage.run_list import list_runs, save_summary

# The modules of kit.report take seconds to import, which `kit plan` does not need.


@dataclass(frozen=True)
class FinishedRun:
    """A run after it ended. exit_code: see `campaign.exit_code`. base: the run that was measured in the same rounds, if
    there is one. Then the exit code is that of both."""

    folder: Path
    report: Path
    analysis: RunAnalysis
    exit_code: int
    base: Self | None = None


def report(folder: RunFolder, target: Path | None = None, tariff: Tariff | None = None) -> FinishedRun:
    """Write the report of what a run has measured so far to `target`, or with a summary into the folder of the run.

    tariff: the prices of the machine. The report lists files that cannot be used. They are an error of use, so they
    determine the exit code. Raise UsageError if another file is in place of the report, or a folder in place of the
    summary, and DiskError if they cannot be written.
    """
    from kit.report.render import write_report
    from kit.report.summary import summarize_report

    analysis = analyze_run(folder.read_usable(), catalog.scenarios(), catalog.frameworks())
    view = write_report(target or folder.index, analysis, tariff)
    if target is None:
        save_summary(folder.path, summarize_report(view, analysis))
    return FinishedRun(
        folder=folder.path,
        report=target or folder.index,
        analysis=analysis,
        exit_code=UsageError.exit_code
        if analysis.run.unusable
        else campaign.exit_code(folder.plan, analysis.run.records),
    )


def update_index(run: Path) -> str:
    """Write the index of the folder that contains this run. Return "", or why it was not written.

    Then the run and its report are there nevertheless, so this is no error.
    """
    from kit.report.run_index import write_index

    try:
        write_index(parent_of(run))
    except (UsageError, DiskError) as error:
        return f"The index of runs was not written. {error.message} {error.remedy}"
    return ""


def refresh_index(out: Path, progress: Progress) -> Path:
    """Write the reports of the runs in a folder that are missing or older than the records, then the index. Return its
    path.

    A run that is being measured is left alone. Raise UsageError and DiskError as `write_index` does.
    """
    from kit.report.run_index import write_index

    for run in list_runs(out):
        if run.current or run.error:
            continue
        folder = RunFolder.open(run.path)
        if folder.being_measured:
            continue
        try:
            with progress.task(f"Report of {run.path.name}"):
                report(folder)
        except (UsageError, DiskError) as error:  # for example somebody else's folder; the other runs have reports
            progress.line(str(error))
    return write_index(out)
