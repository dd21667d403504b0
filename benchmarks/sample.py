"""Make the sample reports again: measure this machine in containers, keep the records, and take the README's pictures.

`python -m benchmarks.sample` runs `kit run --all` in the standard profile with Docker, packs the run into
`reports/sample/run.tar.xz`, and writes the report next to it. Then headless Chromium draws the first screen of the
report. `--study NAME` trains a study in full on the CPU instead, and its sample is in `reports/sample/NAME`. `--run
FOLDER` takes a finished run. A sample must stay below MAX_BYTES, and must show no photo of a data set. The only picture
that it may have is that of augmented synthetic photos.

Fetch the real data sets before (`kit data fetch`). Networks without them are measured on synthetic data, and the report
says so.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from benchmarks.pairs import exit_code, print_line
from kit.execution import reporting
from kit.model.errors import KitError
from kit.model.progress import Silent
from kit.planning import studies
from kit.storage.packs import write_pack
from kit.storage.run_folder import RunFolder

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "reports/sample"
DRAWN = {"report.png": "light", "report-dark.png": "dark"}  # in docs, with their color schemes
SCREEN = (1200, 1260)  # width and height of the pictures, px
ROUNDS = 5  # fixed, because more records would be too large for the repository
MAX_BYTES = 1_000_000
ALL = ("--all", "--profile", "standard", "--rounds", str(ROUNDS))
STUDY = ("--profile", "full", "--device", "cpu")
PACK, PAGE = "run.tar.xz", "index.html"  # the files of a sample


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.sample", description=__doc__)
    parser.add_argument("--study", choices=sorted(studies.load_all()), help="default: the sample of all scenarios")
    parser.add_argument("--run", type=Path, help="folder of a finished run; default: measure this machine")
    return parser.parse_args(arguments)


def main() -> None:
    """Make a sample, and the pictures of that of all scenarios. Raise KitError if one of them cannot be made."""
    args = options()
    if args.study:
        write_sample(args.run or measure("--study", args.study, *STUDY), SAMPLE / args.study)
        return
    chromium = shutil.which("chromium")
    if chromium is None:
        raise KitError("Chromium is missing.", "Install it: tests/browser/ensure_browser.sh.")
    report = write_sample(args.run or measure(*ALL), SAMPLE)
    for name, scheme in DRAWN.items():
        draw(chromium, report, ROOT / "docs" / name, scheme)


def write_sample(source: Path, target: Path) -> Path:
    """Write the sample of a run to a folder, print one line, and return the report. Raise KitError if the sample is too
    large, or has a photo. source: the folder of the run."""
    folder = RunFolder.open(source)
    run = folder.read()  # all records must be usable
    target.mkdir(parents=True, exist_ok=True)
    for name in (PACK, PAGE):
        (target / name).unlink(missing_ok=True)
    write_pack(folder, target / PACK, Silent())  # without logs, which name folders
    report = reporting.report(folder, target / PAGE).report
    size = sum((target / name).stat().st_size for name in (PACK, PAGE))
    if size > MAX_BYTES:
        raise KitError(f"{target} has {size:,} bytes, more than {MAX_BYTES:,}.", "Measure fewer rounds.")
    require_no_photo(report.read_bytes(), run.pictures.values())
    print_line({"sample": str(target.relative_to(ROOT)), "bytes": size})
    return report


def measure(*selection: str) -> Path:
    """Run the kit with its output in this terminal, and return the folder of the run. Raise KitError if it failed.

    selection: options of `kit run`.
    """
    command = [sys.executable, "-m", "kit", "run", *selection, "--engine", "docker", "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=ROOT)
    if ended.returncode:
        raise KitError(f"kit run ended with exit code {ended.returncode}.", "Read its messages above.")
    folder: str = json.loads(ended.stdout)["folder"]
    return ROOT / folder


def require_no_photo(page: bytes, allowed: Iterable[bytes]) -> None:
    """Raise KitError if a page has another picture than those allowed: of synthetic photos, with the SHA-256 that a
    record of the run names."""
    for content in allowed:
        page = page.replace(b'<img src="data:image/jpeg;base64,' + b64encode(content) + b'"', b"")
    if found := re.search(rb"<img|<image|data:image", page):
        raise KitError(f"The report contains a picture ({found[0].decode()}).", "Remove it: photos have no license.")


def draw(chromium: str, page: Path, picture: Path, scheme: str) -> None:
    """Draw the top of a page in a color scheme, with few colors, so that the file is small."""
    dark = ("--blink-settings=preferredColorScheme=0",) if scheme == "dark" else ()
    window = f"--window-size={SCREEN[0]},{SCREEN[1]}"
    with tempfile.TemporaryDirectory() as scratch:
        where = (f"--user-data-dir={scratch}", f"--screenshot={picture}", window, "--hide-scrollbars")
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", *where, *dark, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(picture) as drawn:
        drawn.convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))
