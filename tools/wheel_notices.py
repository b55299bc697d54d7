"""The licences of others in a wheel: of code compiled into its files, and of libraries beside them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from building import PackageError

# Debian's packages of linked and header-only libraries. The second list also has libseccomp, which auditwheel adds to
# wheels with an agent; to a wheel for this system alone it adds its whole last line.
IN_THE_CLIENT = ("libfmt-dev", "libexpected-dev", "libtomlplusplus-dev", "libflatbuffers-dev")
IN_THE_AGENT = (
    *(*IN_THE_CLIENT, "libspdlog-dev", "libcli11-dev"),
    *("libcpp-httplib-dev", "libbrotli-dev", "zlib1g-dev", "liblz4-dev", "libzstd-dev", "libseccomp-dev"),
)
BINDINGS = "nanobind"  # from PyPI
DOCUMENTATION = Path("/usr/share/doc")


def of_debian(packages: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """(its name below `licenses`, file) for each package."""
    for package in packages:
        notice = DOCUMENTATION / package / "copyright"
        if not notice.exists():
            raise PackageError(f"{notice} is missing: the wheel has code of {package}")
        yield f"{package}/copyright.txt", notice


def of_bindings() -> Iterator[tuple[str, Path]]:
    """The same for code compiled into every module for Python."""
    found = [file for file in metadata.files(BINDINGS) or [] if file.parent.name == "licenses"]
    if not found:
        raise PackageError(f"{BINDINGS} has no licence, and the wheel has code of it")
    for file in found:
        yield f"{BINDINGS}/{file.name}", Path(str(file.locate()))


def of_client() -> list[tuple[str, Path]]:
    """Those of the client's wheels."""
    return [*of_debian(IN_THE_CLIENT), *of_bindings()]


def of_whole() -> list[tuple[str, Path]]:
    """Also those of the wheel that contains an agent."""
    return [*of_debian(IN_THE_AGENT), *of_bindings()]


def entry(name: str, mode: int) -> zipfile.ZipInfo:
    """A file of a wheel. It has no time, so that the same files make the same wheel."""
    made = zipfile.ZipInfo(name)
    made.compress_type, made.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
    return made


def record_line(name: str, data: bytes) -> str:
    """A file's line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def add(wheel: Path, notices: Iterable[tuple[str, Path]]) -> None:
    """Adds them to the wheel, beside the licence of its own."""
    info = "-".join(wheel.stem.split("-")[:2]) + ".dist-info"
    added = {f"{info}/licenses/{name}": file.read_bytes() for name, file in notices}
    record, unfinished = f"{info}/RECORD", wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as made:
        for each in before.infolist():
            if each.filename != record:
                made.writestr(each, before.read(each))
        for name, data in added.items():
            made.writestr(entry(name, 0o644), data)
        lines = "".join(record_line(name, data) for name, data in added.items())
        made.writestr(entry(record, 0o644), lines + before.read(record).decode())
    unfinished.replace(wheel)
