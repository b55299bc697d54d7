"""A pool's objects as a directory, and back: Arrow files and plain ones, and a manifest that says which is which.

The directory appears when it is whole: it is written under another name beside its place, and its manifest last.
Files have numbers for names, so keys may be any text.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import Error, Invalid, NotFound

if TYPE_CHECKING:
    from .pool import Pool

MANIFEST = "manifest.json"
FORMAT = "offpath pool snapshot"
VERSION = 1
PIECE_BYTES = 4 << 20

# Called with the bytes that are done and those there are.
Progress = Callable[[int, int], None]


def write_snapshot(pool: Pool, directory: str | os.PathLike[str], progress: Progress | None = None) -> dict[str, Any]:
    """Writes all objects of the pool, over all members, as of now: one that is dropped meanwhile is left out. Returns
    the manifest.

    Raises FileExistsError if the directory exists, NotFound if the pool does not, and OSError, such as for a full disk;
    nothing is left then.
    """
    place = Path(directory)
    if place.exists():
        raise FileExistsError(f"{place} exists already")
    entries = pool.list()
    total, done = sum(entry.nbytes for entry in entries), 0
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        objects = []
        for number, entry in enumerate(entries):
            try:
                frame = pool.get_frame(entry.row, entry.column)
            except NotFound:
                total -= entry.nbytes
                continue
            name = f"{number:08}.{'arrow' if frame.is_arrow else 'bytes'}"
            digest = write_file(part / name, memoryview(frame.buffer()))
            objects.append(
                {"file": name, "row": entry.row, "column": entry.column, "arrow": frame.is_arrow, "rows": frame.rows,
                 "bytes": frame.nbytes, "sha256": digest}
            )  # fmt: skip
            done += frame.nbytes
            if progress:
                progress(done, max(total, done))
        manifest = {"format": FORMAT, "version": VERSION, "pool": pool.name, "objects": objects}
        with (part / MANIFEST).open("w") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, place)
        sync_directory(place.absolute().parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return manifest


def write_file(path: Path, data: memoryview) -> str:
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a whole snapshot: every file exists, with its number of bytes. Raises Invalid, which names the
    missing part."""
    place = Path(directory)
    try:
        manifest = json.loads((place / MANIFEST).read_text())
    except FileNotFoundError:
        raise Invalid(f"{place} has no {MANIFEST}: it is not a complete snapshot") from None
    except ValueError as error:
        raise Invalid(f"{place / MANIFEST}: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Invalid(f"{place / MANIFEST} is not a manifest of a snapshot")
    if manifest.get("version") != VERSION:
        raise Invalid(f"{place} is a snapshot of version {manifest.get('version')}, this reads version {VERSION}")
    try:
        for each in manifest["objects"]:
            check_entry(place, each)
    except (KeyError, TypeError) as error:
        raise Invalid(f"{place / MANIFEST}: an object's entry is incomplete: {error!r}") from None
    return manifest


def check_entry(place: Path, each: dict[str, Any]) -> None:
    name = each["file"]
    if name != os.path.basename(name) or name in ("", ".", ".."):
        raise Invalid(f"{place / MANIFEST} names the file {name!r}, which is not in the directory")
    path = place / name
    if not path.is_file():
        raise Invalid(f"{path} is missing: object ({each['row']}, {each['column']})")
    if (size := path.stat().st_size) != each["bytes"]:
        raise Invalid(f"{path} has {size} bytes, the manifest says {each['bytes']}")


def restore_snapshot(pool: Pool, directory: str | os.PathLike[str], progress: Progress | None = None) -> int:
    """Puts all objects of a snapshot into the pool, in storing order, replacing those with the same keys. Returns how
    many.

    Raises Invalid for a directory that is not whole, before anything is put, and for a file whose checksum is wrong,
    when its turn comes; and like ``Pool.put``.
    """
    place, manifest = Path(directory), read_manifest(directory)
    total, done = sum(each["bytes"] for each in manifest["objects"]), 0
    for count, each in enumerate(manifest["objects"]):
        path = place / each["file"]
        data = path.read_bytes()
        if (digest := hashlib.sha256(data).hexdigest()) != each["sha256"]:
            why = f"its checksum is {digest}, the manifest says {each['sha256']}"
            raise Invalid(f"{path} is corrupt: {why}; {count} objects were put")
        try:
            pool.put_object(data, each["row"], each["column"], arrow=each["arrow"])
        except Error as error:
            where = f"{path}: object ({each['row'][:80]}, {each['column'][:80]})"
            error.args = (f"{where}: {error}; {count} objects were put", *error.args[1:])
            raise
        done += len(data)
        if progress:
            progress(done, total)
    return len(manifest["objects"])
