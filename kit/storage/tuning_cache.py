"""Settings of tuned cells between runs: what a search found is kept for runs on the same machine; what a person wants
to be measured with is pinned by a file."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from kit import assets
from kit.model.environment import Environment
from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from kit.storage.bounded_cache import keep
from kit.storage.safe_read import read_untrusted
from scenarios.contract import allocators
from scenarios.contract.reasons import Status
from scenarios.contract.request import Request

FOLDER_LIMIT = 64 << 20


RECORD_LIMIT = 4 << 20


class TuningCache:
    """A folder of records of searches, at most FOLDER_LIMIT bytes in all, each named by what its outcome depends on; of
    the data their kind alone, since which of the settings is fastest hardly depends on what is in the images. machine:
    that this is. plan: of the run; a record of one that names host and user is not for others."""

    def __init__(self, folder: Path, machine: Machine, plan: Plan) -> None:
        self._folder = folder
        self._machine = machine
        self._plan = plan
        self._code = _digest_of(sorted((assets.ROOT / "scenarios").rglob("*.py")))

    def find(self, request: Request, environment: Environment) -> Record | None:
        """What a search for this very request found here; None where there was none, or its record cannot be read or is
        of something else: the search is made anew then."""
        file = self._file(request, environment)
        try:
            content = read_untrusted(file, RECORD_LIMIT)
            if content is None:
                return None
            record = Record.from_json(content, str(file))
            os.utime(file)
        except (OSError, ValueError, UsageError):
            return None
        asked = Status.OK, request.key, request.launch, request
        return record if (record.status, record.key, record.launch, record.request) == asked else None

    def keep(self, record: Record, environment: Environment) -> None:
        """Keep what a search found. Raises OSError."""
        keep(self._file(record.request, environment), record.to_json().encode(), FOLDER_LIMIT)

    def _file(self, request: Request, environment: Environment) -> Path:
        parts = {
            "key": request.key,
            "spec": request.spec,
            "threads": request.threads,
            "data": request.data,
            "seconds": request.budget.seconds,
            "environment": environment.digest,
            "machine": self._machine.id,
            "identify": self._plan.identify,
            "gpus": self._plan.gpus,
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
