"""Prove one cell in this process, as a launch does, and print the result as one line of JSON.

python -m benchmarks.proof_side LABEL --framework torch --precision bf16 --threads 2 --seed 1 --folder FOLDER [--later]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from scenarios import catalog
from scenarios.adapter import NotOffered, Options
from scenarios.prepare import load_adapter
from scenarios.proof import checks


def main() -> None:
    """Print the fields of the `Proof`, or {"not_offered": why}."""
    known = {each.label: each for variants in catalog.load().values() for each in variants.values()}
    parser = argparse.ArgumentParser(prog="benchmarks.proof_side", description=__doc__)
    parser.add_argument("scenario", choices=known)
    parser.add_argument("--framework", required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="keeps the reference values")
    parser.add_argument("--later", action="store_true", help="prove as in a later launch of the cell")
    args = parser.parse_args()
    scenario, file = known[args.scenario], args.folder / f"{args.scenario}-{args.seed}.npz".replace("/", "-")
    try:
        adapter = load_adapter(args.framework)(Options(threads=args.threads, precision=args.precision, seed=args.seed))
    except NotOffered as refusal:
        found: dict[str, object] = {"not_offered": str(refusal)}
    else:
        found = dataclasses.asdict(
            checks.prove(adapter, scenario, args.seed, args.precision, file, full=not args.later)
        )
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
