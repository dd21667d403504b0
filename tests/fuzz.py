"""Make damaged and hostile files from valid ones: documents, and archives that are added as data sets.

What is made depends only on the state of a random generator.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import tarfile
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from kit.datasets import service
from kit.model.errors import DataError, DiskError, UsageError
from kit.model.progress import Silent
from scenarios.contract.ranges import MAX_INT

MAX_CHANGES = 4
PARTS, CLASSES = ("train", "test"), ("cats", "dogs")
BOMB_BYTES = 300_000  # more than the limit that `add_hostile_archive` sets
KINDS = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
    tarfile.DIRTYPE,
    tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    b"Z",
)
NAMES = (
    "../../../../../outside.jpg",
    "OUTSIDE.jpg",  # replaced by an absolute name
    "train/../../../../../../outside.jpg",
    "..\\outside.jpg",
    "C:\\outside.jpg",
    "train/cats/0.jpg",  # exists
    "train/cats",  # a file in place of a folder
    "train/cats/0.jpg/9.jpg",  # a folder in place of a file
    "train/cats/./9.jpg",
    "train//cats//9.jpg",
    "train/cats/",
    ".",
    "",
    "train/cats/k\udce4tzchen.jpg",  # not UTF-8
    "train/cats/Kätzchen 猫.jpg",
    "train/cats/9\n\x1b[31m.jpg",
    "train/cats/9\0.jpg",
    "train/cats/" + "9" * 250 + ".jpeg",
    "train/cats/" + "ä" * 300 + ".jpg",
    "a/" * 3_000 + "9.jpg",
)
HEADERS: tuple[Mapping[str, str], ...] = (
    {"size": "99999999999999999999"},
    {"size": "-5"},
    {"size": "abc"},
    {"path": "../../../../../outside.jpg"},
    {"path": "train/cats/9\0.jpg"},
    {"path": ""},
    {"linkpath": "/etc/passwd"},
    {"mtime": "never"},
    {"GNU.sparse.map": "0,x,9"},
    {"GNU.sparse.map": "0,9", "GNU.sparse.size": "99999999999"},
    {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99999999999"},
    {"GNU.sparse.name": "../../../../../outside.jpg"},
    {"hdrcharset": "BINARY"},
    {"comment": "x" * 100_000},
)

STRANGE: list[Any] = [
    *(None, True, -1, 0, 1, 2, 0.5, 1e308, 2**53, MAX_INT, MAX_INT + 1, 10**400, float("nan"), float("-inf")),
    *("", "..", "../x", "a/b", "\0", "\x1b[2J", "\ud800", "x" * 10_000, "2026-01-01T00:00:00+00:00"),
    *("standard", "full", "torch", "cuda", "tuned", "bf16", "failed", "tune", "probe", "synthetic"),
    *([], {}, [[]], {"x": {}}),
]
DEPTH = 100_000  # deeper than every parser of JSON can recurse


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return the content after a few random changes: truncated, or with bytes flipped, inserted, removed or moved."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, MAX_CHANGES)):
        start = rng.randrange(len(changed) + 1)
        end = min(len(changed), start + rng.choice([1, 1, 2, 8, 100]))
        match rng.randrange(5):
            case 0:
                del changed[start:]
            case 1:
                for place in range(start, end):
                    changed[place] ^= 1 << rng.randrange(8)
            case 2:
                changed[start:start] = rng.choice([b"\r\n", b"\0", b"-1", b"9" * 20, rng.randbytes(5)])
            case 3:
                del changed[start:end]
            case _:
                place = rng.randrange(len(changed) + 1)
                changed[place:place] = changed[start:end]
    return bytes(changed)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Return all parts of a document: the object or list that holds it, and its name or index there."""
    found = []
    if isinstance(document, dict | list):
        for name in document if isinstance(document, dict) else range(len(document)):
            found += [(document, name), *places(document[name])]
    return found


def damage_json(content: bytes, rng: random.Random) -> bytes:
    """Return a JSON document after damage: of its bytes, of the types and places of its values, or with what parsers
    rarely meet: deep nesting, huge numbers, names that occur twice, and bytes that are not UTF-8."""
    place = rng.randrange(len(content) + 1)
    numbers = [match.span() for match in re.finditer(rb"(?<=: )-?[0-9.]+", content)] or [(place, place)]
    match rng.randrange(7):
        case 0:
            return mutate(content, rng)
        case 1:
            opening, closing = rng.choice([(b"[", b"]"), (b'{"schema":', b"}")])
            depth = rng.choice([DEPTH, rng.randrange(800, 1000)])  # a parser may just reach the second one
            start, end = rng.choice([(0, len(content)), *numbers])
            return content[:start] + opening * depth + b"1" + closing * depth + content[end:]
        case 2:
            number = rng.choice([b"9" * 5_000, b"1e999", b"-1e400", b"1" + b"0" * 400, b"9007199254740993", b"-0.0"])
            start, end = rng.choice(numbers)
            return content[:start] + number + content[end:]
        case 3:
            name = rng.choice(list(re.finditer(rb'"\w+": ', content)))
            again = name[0] + rng.choice([b"1, ", b"{}, ", b"null, "])
            return content[: name.start()] + again + content[name.start() :]
        case 4:
            odd = rng.choice([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\0", b"\\ud800"])
            return content[:place] + odd + content[place:]
        case 5:
            return content.decode().encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7"]))
        case _:
            return _change_values(content, rng)


def _change_values(content: bytes, rng: random.Random) -> bytes:
    document = json.loads(content)
    for _ in range(rng.randint(1, MAX_CHANGES)):
        found = places(document)
        if not found:
            break
        holder, name = rng.choice(found)
        match rng.randrange(4):
            case 0:
                holder[name] = rng.choice(STRANGE)
            case 1:
                source, source_name = rng.choice(found)
                holder[name] = json.loads(json.dumps(source[source_name]))
            case 2:
                del holder[name]
            case _:
                holder.append(holder[name]) if isinstance(holder, list) else holder.update(surprise=1)
    return json.dumps(document).encode()


def add_hostile_archive(folder: Path, seed: int) -> str:
    """Add a hostile archive as a data set. Return the outcome: "added", or the class of the error that the user sees.

    Fail if there is another error, or if anything remains except a whole data set. The caller has set KIT_DATA_DIR to
    `folder/data`, and the limits of `kit.datasets.unpack` to less than BOMB_BYTES.
    """
    suffix, content = hostile_archive(_photo(), folder / "outside", random.Random(seed))
    archive = folder / f"archive{suffix}"
    archive.write_bytes(content)
    try:
        service.add("cats-dogs", archive, Silent())
        outcome = "added"
    except (DataError, DiskError, UsageError) as error:
        outcome = type(error).__name__
    archive.unlink()
    if service.status("cats-dogs").prepared:
        service.verify("cats-dogs")
    data = folder / "data"
    found = {path for path in folder.rglob("*") if not path.is_relative_to(data / "sets" / "cats-dogs")}
    assert found <= {data, data / "sets", data / "work", data / ".cats-dogs.lock"}
    return outcome


@cache
def _photo() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
    return buffer.getvalue()


def hostile_archive(photo: bytes, outside: Path, rng: random.Random) -> tuple[str, bytes]:
    """Return the suffix and the content of an archive: a tree of photos, hostile members and random damage.

    Some archives are valid, so that every part of the code that reads them is reached. outside: the beginning of the
    absolute names.
    """
    members = [Member(f"{part}/{name}/{n}.jpg", photo) for part in PARTS for name in CLASSES for n in range(2)]
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        members.insert(rng.randrange(len(members) + 1), _hostile_member(photo, outside, rng))
    if rng.random() < 0.4:
        return ".zip", _zip(members, rng)
    content = _tar(members, rng)
    match rng.randrange(4):
        case 0:
            return ".tar", content
        case 1:
            return ".tar.gz", _damage(gzip.compress(content, 1), rng)
        case 2:
            return ".tar.bz2", _damage(bz2.compress(content, 1), rng)
        case _:
            return ".tar.xz", _damage(lzma.compress(content, preset=0), rng)


@dataclass(frozen=True)
class Member:
    """One member of an archive. kind: type of a tar member. size: size that its header states, None for the true one.
    headers: its PAX headers."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    size: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def _hostile_member(photo: bytes, outside: Path, rng: random.Random) -> Member:
    name, kind = rng.choice(NAMES).replace("OUTSIDE", str(outside)), rng.choice(KINDS)
    match rng.randrange(7):
        case 0:
            return Member(name, photo)
        case 1:
            return Member(name, b"", kind)
        case 2:
            return Member(name, bytes(BOMB_BYTES))
        case 3:
            return Member(name, photo, size=rng.choice([0, 7, len(photo) + 600, 1 << 32, 1 << 40, -1, 8**11]))
        case 4:
            return Member("nested.jpg", zip_of([Member("train/cats/0.jpg", photo)]))
        case 5:
            return Member("train/cats/9.jpg", mutate(photo, rng))
        case _:
            return Member(name, photo, rng.choice([kind, tarfile.REGTYPE]), headers=rng.choice(HEADERS))


def zip_of(members: Sequence[Member], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip file of regular files and links."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # about names that occur twice
        for member in members:
            info = zipfile.ZipInfo(member.name.encode("utf-8", "replace").decode())
            info.compress_type = method
            if member.kind == tarfile.SYMTYPE:
                info.external_attr = 0o120777 << 16
            archive.writestr(info, member.content)
    return buffer.getvalue()


def _zip(members: Sequence[Member], rng: random.Random) -> bytes:
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    content = bytearray(zip_of(members, method))
    if rng.random() < 0.4:  # harm the header of one member: flags, method, checksum, sizes, lengths
        signature = rng.choice([b"PK\1\2", b"PK\3\4", b"PK\5\6"])
        places = [match.start() for match in re.finditer(re.escape(signature), content)]
        place = rng.choice(places) + rng.randrange(4, 46)
        content[place : place + 2] = rng.choice([b"\xff\xff", b"\0\0", b"\x01\x08", rng.randbytes(2)])
    return _damage(bytes(content), rng)


def _tar(members: Sequence[Member], rng: random.Random) -> bytes:
    """Return a tar file. Its damaged headers get a valid checksum, because a wrong one would hide the damage."""
    form = rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    blocks = bytearray()
    for member in members:
        info = tarfile.TarInfo(member.name)
        info.type, info.size = member.kind, len(member.content) if member.size is None else member.size
        info.pax_headers = dict(member.headers)
        if member.kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info.linkname = rng.choice(["/etc/passwd", "../../../../../../..", "train/cats/0.jpg"])
        try:
            header = info.tobuf(form, "utf-8", "surrogateescape")
        except (ValueError, OverflowError):  # not possible in this format
            continue
        if rng.random() < 0.1:
            header = _with_checksum(mutate(header, rng))
        blocks += header + member.content + bytes(-len(member.content) % tarfile.BLOCKSIZE)
    blocks += bytes(2 * tarfile.BLOCKSIZE)
    return _damage(bytes(blocks), rng)


def _with_checksum(header: bytes) -> bytes:
    block = bytearray(header.ljust(tarfile.BLOCKSIZE, b"\0")[-tarfile.BLOCKSIZE :])
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return header[: -tarfile.BLOCKSIZE] + bytes(block)


def _damage(content: bytes, rng: random.Random) -> bytes:
    return mutate(content, rng) if rng.random() < 0.25 else content
