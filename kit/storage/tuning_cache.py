"""Keep what searches for settings found, for later runs on the same machine."""

import hashlib
import json
import os
from pathlib import Path

from kit import assets
from kit.model.environment import Environment
from kit.model.errors import UsageError
from kit.model.machine import Gpu, Machine
from kit.model.plan import Plan
from kit.model.record import Record
from kit.storage.bounded_cache import keep
from kit.storage.safe_read import read_untrusted
from scenarios.contract import allocators
from scenarios.contract.request import Request

MAX_FOLDER_BYTES = 64 << 20
MAX_RECORD_BYTES = 4 << 20


class TuningCache:
    """A folder with records of searches, at most MAX_FOLDER_BYTES in all.

    The name of each file is a hash over everything that the outcome depends on. The data is represented by its kind
    only, because the content of the images hardly changes which settings are fastest.
    """

    def __init__(self, folder: Path, machine: Machine, gpu: Gpu | None, plan: Plan) -> None:
        """machine: this machine. gpu: the one that computes cells on CUDA, None if it is unknown. plan: of the run. A
        record that names host and user is not used for other runs."""
        self._folder = folder
        self._machine = machine
        self._gpu = gpu.hardware if gpu else None
        self._plan = plan
        self._code = _digest_of(sorted((assets.ROOT / "scenarios").rglob("*.py")))

    def find(self, request: Request, environment: Environment) -> Record | None:
        """Return the record of a search with exactly this request, or None.

        A record that cannot be read, or that belongs to something else, counts as missing.
        """
        file = self._file(request, environment)
        try:
            content = read_untrusted(file, MAX_RECORD_BYTES)
            if content is None:
                return None
            record = Record.from_json(content, str(file))
            os.utime(file)
        except (OSError, ValueError, UsageError):
            return None
        return record if record.ok and record.request == request else None

    def keep(self, record: Record, environment: Environment) -> None:
        """Keep the record of a search. Raise OSError."""
        assert record.request is not None
        keep(self._file(record.request, environment), record.to_json().encode(), MAX_FOLDER_BYTES)

    def _file(self, request: Request, environment: Environment) -> Path:
        parts = {
            "key": request.cell.key,
            "spec": request.spec,
            "threads": request.threads,
            "data": request.data,
            "seconds": (request.budget.seconds, request.budget.max_seconds),
            "environment": environment.digest,
            "machine": self._machine.id,
            "gpu": self._gpu if request.cell.device == "cuda" else None,
            "identify": self._plan.identify,
            "memory": self._plan.memory_bytes,
            "allocators": allocators.offered(),
            "code": self._code,
        }
        name = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{name}.json"


def _digest_of(files: list[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()
