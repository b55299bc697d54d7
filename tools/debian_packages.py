"""Fetches Debian packages for a processor and unpacks them into a folder: nothing of them runs, nothing is installed.

The packages come from this machine's package sources, by an apt with a state of its own: neither the packages nor the
architecture become known to the machine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MERGED = ("bin", "sbin", "lib")  # since Debian 12 these are links into usr; packages still use the names


class PackagesError(RuntimeError):
    """The package that could not be fetched or unpacked, and the reason."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PackagesError(f"{' '.join(map(str, command[:3]))} …: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def listed(path: Path) -> list[str]:
    """The names in a file of packages/, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def apt(program: str, state: Path, architecture: str, present: tuple[str, ...] = ()) -> list[str | Path]:
    """apt-get or apt-cache as on a machine of this architecture that has the packages `present` and no others."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    said = "Status: install ok installed\nVersion: 999\nArchitecture: all\nMulti-Arch: foreign\n"
    (state / "status").write_text("".join(f"Package: {name}\n{said}\n" for name in present))
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",  # apt's own user may have no access here
        "Dir::State": state / "state",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Acquire::Retries": "3",
    }
    return [program, "-q", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]


def places_of_debian(state: Path) -> list[tuple[str, str]]:
    """(address, suite) of each of this machine's package sources of Debian: its release, updates and security."""
    asked = ("indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages", "Origin: Debian",
             "Component: main")  # fmt: skip
    told = run("apt-get", *asked)
    if not told.strip():  # apt knows only a source's address until it has read the source's lists
        own = apt("apt-get", state / "places", run("dpkg", "--print-architecture").strip())
        run(*own, "update")
        told = run(*own, *asked)
    places = dict.fromkeys((address, suite) for address, suite in map(str.split, told.splitlines()))
    if not any("-" not in suite for _, suite in places):
        raise PackagesError("this machine's package sources have no release of Debian")
    return list(places)


def known_alone(lines: list[str], state: Path) -> list[str | Path]:
    """Options by which apt knows these package sources and no others."""
    (state / "sources.list").write_text("".join(f"{line}\n" for line in lines))
    return ["-o", f"Dir::Etc::sourcelist={state / 'sources.list'}", "-o", "Dir::Etc::sourceparts=-"]


def fetch_packages(
    names: list[str], state: Path, architecture: str, present: tuple[str, ...] = (), suite: str | None = None
) -> list[Path]:
    """The .deb files of the packages and of their dependencies. A name may be the path of a .deb file, which is not
    among the results. `suite`: another release of Debian than this machine's."""
    get = apt("apt-get", state, architecture, present)
    if suite:
        address = next(address for address, own in places_of_debian(state) if "-" not in own)
        get += known_alone([f"deb {address} {suite} main"], state)
    run(*get, "update")
    archives = state / "cache" / "archives"
    for old in archives.glob("*.deb"):
        old.unlink()
    # Debian's container images remove downloads after each installation; here they are needed.
    keep = ("-o", "APT::Keep-Downloaded-Packages=true", "-o", "DPkg::Post-Invoke=", "-o", "APT::Update::Post-Invoke=")
    run(*get, *keep, "install", "-y", "--no-install-recommends", "--download-only", *names)
    return sorted(archives.glob("*.deb"))


def fetch_source(name: str, installed: str, folder: Path) -> Path:
    """The unpacked source package that a package of this machine was built from: its release's, or a later update's."""
    version = run("dpkg-query", "-W", "-f=${source:Version}", installed)
    state = folder / "apt"
    get = apt("apt-get", state, "amd64")
    get += known_alone([f"deb-src {address} {suite} main" for address, suite in places_of_debian(state)], state)
    run(*get, "update")
    run(*get, "source", "--download-only", f"{name}={version}", cwd=folder)
    (description,) = folder.glob("*.dsc")
    run("dpkg-source", "--no-check", "-x", description, folder / name)
    return folder / name


WITHOUT = ("./usr/share/doc", "./usr/share/man", "./usr/share/locale")


def unpack(package: Path, target: Path, without: tuple[str, ...] = WITHOUT) -> None:
    """Keeps links into usr: dpkg-deb -x would replace them by folders."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as archive:
        done = subprocess.run(
            ["tar", "-x", "-C", target, "--keep-directory-symlink", "--no-same-owner",
             *(f"--exclude={each}" for each in without)],
            stdin=archive.stdout, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0 or archive.returncode != 0:
        raise PackagesError(f"{package.name} cannot be unpacked: {done.stderr.strip()}")


def make_links_relative(tree: Path) -> None:
    """A link to /etc would lead out of the tree."""
    for folder, names, files in os.walk(tree):
        for name in names + files:
            link = Path(folder) / name
            if link.is_symlink() and (target := os.readlink(link)).startswith("/"):
                link.unlink()
                link.symlink_to(os.path.relpath(tree / target[1:], folder))


def unpack_packages(packages: list[Path], target: Path, without: tuple[str, ...] = WITHOUT) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in MERGED:
        (target / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (target / name).is_symlink():
            (target / name).symlink_to(f"usr/{name}")
    for package in packages:
        unpack(package, target, without)
    make_links_relative(target)
