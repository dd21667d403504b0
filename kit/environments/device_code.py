"""Read for which GPUs the libraries in the CUDA wheels have code, and write the lists to `framework.toml`.

`python -m kit.environments.device_code [FRAMEWORK ...]`

For maintainers (`make lock`). The section `device_code` of a framework.toml names the libraries that every training
step needs. Their wheels are downloaded one after the other, with the hashes of the lock, and deleted.
"""

import mmap
import re
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from kit.environments.build_context import lock_file
from kit.environments.locks import TARGET, for_each, uv_pip
from kit.environments.package_sources import Sources
from kit.model.device_code import Capability, DeviceCode
from kit.model.environment import Framework
from kit.model.errors import ImageError

# A fat binary has a header (magic, version, bytes of the header, bytes of all entries) and entries. An entry has a
# header (kind, bytes of the header, bytes of the code, minor and major version of the code's format, architecture,
# flags), and the code, usually compressed. NVIDIA does not document this. Source: RWTH-ACS/cricket, cpu/cpu-elf2.c. The
# flags of the variants, and what is found, agree with the lists that NVIDIA's cuobjdump 13.5 prints.
HEADER = struct.Struct("<IHHQ")
MAGIC = HEADER.pack(0xBA55ED50, 1, HEADER.size, 0)[:8]
ENTRY = struct.Struct("<HHIQ8xHHI8xQ")
PTX, MACHINE_CODE = 1, 2
VARIANTS = {0x100000: "a", 0x200000: "f"}

# Libraries have fat binaries of single kernels for further architectures, for example PyTorch's for FP8 on sm_89.
# TensorFlow 2.21 has sm_90 in 18% of them and cannot run there without PTX. The smallest share of an architecture with
# the usual kernels is 36%: sm_75 in ONNX Runtime 1.31.1, whose other fat binaries are kernels for newer GPUs.
MIN_SHARE = 0.25

LINE = re.compile(r'^"([\w.-]+)==[^/"]*/([^"]+)" = \[.*\]$', re.MULTILINE)


def fat_binaries(content: bytes | mmap.mmap) -> Iterator[list[DeviceCode]]:
    """Yield the device code of each fat binary in a library. What only looks like the start of one is left out."""
    start = content.find(MAGIC)
    while 0 <= start <= len(content) - HEADER.size:
        *_, size = HEADER.unpack_from(content, start)
        end = start + HEADER.size + size
        if end <= len(content) and (found := _entries(content, start + HEADER.size, end)):
            yield found
        start = content.find(MAGIC, start + 1)


def _entries(content: bytes | mmap.mmap, position: int, end: int) -> list[DeviceCode]:
    """Return the device code of the entries, none if they do not fill the fat binary."""
    found = []
    while position + ENTRY.size <= end:
        kind, _, header_size, size, minor, major, architecture, flags = ENTRY.unpack_from(content, position)
        if kind in (PTX, MACHINE_CODE):
            variant = "".join(letter for flag, letter in VARIANTS.items() if flags & flag)
            found.append(DeviceCode(divmod(architecture, 10), variant, (major, minor) if kind == PTX else None))
        position += max(header_size, ENTRY.size) + size
    return found if position == end else []


def common(binaries: Iterable[list[DeviceCode]]) -> list[DeviceCode]:
    """Return the architectures of at least `MIN_SHARE` of the fat binaries, sorted. PTX gets its newest version."""
    found: dict[tuple[bool, Capability, str], list[DeviceCode]] = {}
    listed = list(binaries)
    for binary in listed:
        architectures = {(code.ptx is not None, code.capability, code.variant): code for code in binary}
        for key, code in architectures.items():
            found.setdefault(key, []).append(code)
    usual = [found[key] for key in sorted(found) if len(found[key]) >= MIN_SHARE * len(listed)]
    return [max(codes, key=lambda code: code.ptx or (0, 0)) for codes in usual]


def read(library: Path) -> list[DeviceCode]:
    """Return the device code of a library. Raise ImageError if there is none."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = common(fat_binaries(content))
    if not found:
        raise ImageError(f"{library.name} has no device code that kit can read.", "Name another library.")
    return found


def download(requirement: str, folder: Path, sources: Sources) -> None:
    """Install a package of a lock, with its hashes, into the folder. Raise ImageError with uv's explanation."""
    listed = folder / "requirement.txt"
    listed.write_text(requirement, encoding="utf-8")
    options = [*TARGET, "--no-deps", "--require-hashes", "--no-cache", "--only-binary", ":all:"]
    failure = uv_pip(["install", *options, "--target", str(folder), "-r", str(listed)], folder, sources)
    if failure is not None:
        raise ImageError(
            f"{requirement.split(maxsplit=1)[0]} cannot be downloaded:\n{failure}",
            "Run `make lock`, or set KIT_INDEX_URL to another source.",
        )


def update(framework: Framework, sources: Sources) -> None:
    """Write the lists of a framework that has a CUDA lock. Raise ImageError if a package or library is missing."""
    if "cuda" not in framework.devices:
        return
    file = framework.folder / "framework.toml"
    lock = lock_file(framework, "cuda").read_text(encoding="utf-8")

    def line(match: re.Match[str]) -> str:
        package, name = match.groups()
        requirement = re.search(rf"^{re.escape(package)}==(\S+).*\n(?:    --hash.*\n?)+", lock, re.MULTILINE)
        if requirement is None:
            raise ImageError(f"The CUDA lock has no {package}.", f"Correct {file}, or run `make lock`.")
        with tempfile.TemporaryDirectory() as folder:
            download(requirement[0], Path(folder), sources)
            library = next(Path(folder).rglob(name), None)
            if library is None:
                raise ImageError(f"{package} {requirement[1]} has no {name}.", f"Correct {file}.")
            codes = ", ".join(f'"{code}"' for code in read(library))
        sys.stdout.write(f"{package} {requirement[1]}: {codes}\n")
        return f'"{package}=={requirement[1]}/{name}" = [{codes}]'

    file.write_text(LINE.sub(line, file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(for_each(sys.argv[1:], update))
