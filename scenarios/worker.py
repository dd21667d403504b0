"""The worker: request -> prove -> measure -> result; or request -> ceilings or search -> result. Runs once, in a fresh
process, and exits.

    python -m scenarios.worker IO_FOLDER [--data DATA_FOLDER]

Reads IO_FOLDER/request.json, appends progress to events.jsonl, writes result.json by rename. Standard output and
error are a log for people. Exit code 0: a result was written, whatever its status.
"""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from pathlib import Path

from scenarios.adapter import DeviceUnavailable, NotOffered
from scenarios.contract.codec import from_json, write
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import REQUEST_FILE, RESULT_FILE, Request
from scenarios.contract.result import Result
from scenarios.data.errors import DataCorrupt, DataUnavailable
from scenarios.launch import Launch, measure_launch, probe_ceilings, tune_launch
from scenarios.prepare import Refused

PURPOSES = {"measure": measure_launch, "probe": probe_ceilings, "tune": tune_launch}


def explain(error: Exception, request: Request) -> tuple[Status, Reason]:
    """Status and reason for what stopped the launch."""
    match error:
        case Refused():
            return Status.FAILED, error.reason
        case DataUnavailable():
            return Status.FAILED, Reason(Code.DATA_UNAVAILABLE, str(error), error.remedy)
        case DataCorrupt():
            return Status.FAILED, Reason(Code.DATA_CORRUPT, str(error), error.remedy)
        case NotOffered():
            return Status.SKIPPED, Reason(
                Code.NOT_OFFERED, str(error), "Choose another lane, precision, device or settings."
            )
        case DeviceUnavailable():
            return Status.WRONG_DEVICE, Reason(
                Code.WRONG_DEVICE, str(error), "Run kit doctor: it checks driver, toolkit and GPU."
            )
        case MemoryError():
            return Status.OUT_OF_MEMORY, Reason(
                Code.MEMORY_LIMIT, f"Memory ran out: {error}", "Raise --memory or use a smaller --batch."
            )
        case OSError(errno=errno.ENOSPC):
            return Status.FAILED, Reason(
                Code.DISK_FULL,
                f"No space left on the device: {error}",
                "Free disk space, then --resume --retry-failed.",
            )
        case _:
            text = f"{type(error).__name__}: {error}"
            if request.device == "cuda" and "out of memory" in text.lower():
                return Status.OUT_OF_MEMORY, Reason(
                    Code.DEVICE_MEMORY, text[:500], "Use a smaller --batch or a larger GPU."
                )
            return Status.FAILED, Reason(Code.WORKER_ERROR, text[:500], "The log holds the whole traceback.")


def run(request: Request, io: Path, data: Path | None) -> Result:
    """One launch from request to result; every exception becomes a status with a reason."""
    launch = Launch(request, io, data)
    try:
        PURPOSES[request.purpose](launch)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever a framework raises is a result, not a crash
        traceback.print_exc()
        return launch.result(*explain(error, request))
    return launch.result(Status.OK)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="scenarios.worker", description="Run one launch of the kit.")
    parser.add_argument("io", type=Path, help="folder with request.json; takes result.json")
    parser.add_argument("--data", type=Path, help="folder with the prepared data sets")
    options = parser.parse_args(arguments)
    request = from_json(Request, (options.io / REQUEST_FILE).read_bytes())
    write(options.io / RESULT_FILE, run(request, options.io, options.data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
