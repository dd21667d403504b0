"""Run one launch in a fresh process: read the request, do what it asks for, and write the result.

    python -m scenarios.worker IO_FOLDER [--data DATA_FOLDER]

The worker reads IO_FOLDER/request.json and writes IO_FOLDER/result.json by rename. Standard output and standard error
are a log for people. The exit code is 0 if a result was written, whatever its status.
"""

import argparse
import re
import sys
import traceback
from pathlib import Path

from scenarios.adapter import DeviceUnavailable, NotOffered
from scenarios.contract import disk
from scenarios.contract.codec import from_json, write
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import REQUEST_FILE, RESULT_FILE, Request
from scenarios.contract.result import Result
from scenarios.data.errors import DataCorrupt, DataUnavailable
from scenarios.launch import Launch, measure_launch, probe_ceilings, tune_launch
from scenarios.prediction import export_launch, predict_launch
from scenarios.prepare import Refused

PURPOSES = {
    "measure": measure_launch,
    "probe": probe_ceilings,
    "tune": tune_launch,
    "predict": predict_launch,
    "export": export_launch,
}
# CUDA and PyTorch; TensorFlow's kernels; ONNX Runtime's arena; cuBLAS and cuDNN
OUT_OF_MEMORY = re.compile(
    r"out of memory|\bOOM\b|Resource_?Exhausted|Failed to allocate memory|_ALLOC_FAILED", re.IGNORECASE
)
MAX_CHARACTERS = 500  # of an exception in a result; the log has all of it


def explain(error: Exception, request: Request) -> Reason:
    """Return the reason for an exception that stopped the launch."""
    if disk.is_full(error):
        return Reason.of(Code.DISK_FULL, f"The disk is full. {type(error).__name__}: {error}"[:MAX_CHARACTERS])
    match error:
        case Refused():
            return error.reason
        case DataUnavailable():
            return Reason.of(Code.DATA_UNAVAILABLE, str(error), error.remedy)
        case DataCorrupt():
            return Reason.of(Code.DATA_CORRUPT, str(error), error.remedy)
        case NotOffered():
            return Reason.of(Code.NOT_OFFERED, str(error))
        case DeviceUnavailable():
            return Reason.of(Code.WRONG_DEVICE, str(error))
        case MemoryError():
            return Reason.of(Code.MEMORY_LIMIT, f"Memory ran out: {error}")
        case _:
            text = f"{type(error).__name__}: {error}"
            if request.cell.device == "cuda" and OUT_OF_MEMORY.search(text):
                return Reason.of(Code.DEVICE_MEMORY, text[:MAX_CHARACTERS])
            return Reason.of(Code.WORKER_ERROR, text[:MAX_CHARACTERS], "Read the traceback in the log.")


def run(request: Request, io: Path, data: Path | None) -> Result:
    """Run one launch from request to result. Turn every exception into a status with a reason."""
    launch = Launch(request, io, data, Result(request.cell, request.launch, Status.OK))
    try:
        PURPOSES[request.purpose](launch)
    except Exception as error:  # noqa: BLE001 - whatever a framework raises is a result, not a crash
        traceback.print_exc()
        return launch.result(explain(error, request))
    return launch.result()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="scenarios.worker", description="Run one launch of the kit.")
    parser.add_argument("io", type=Path, help="folder with request.json; result.json is written there")
    parser.add_argument("--data", type=Path, help="folder with the prepared data sets")
    options = parser.parse_args(arguments)
    request = from_json(Request, (options.io / REQUEST_FILE).read_bytes())
    write(options.io / RESULT_FILE, run(request, options.io, options.data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
