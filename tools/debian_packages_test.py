"""Packages are fetched by the real apt, from package sources of the tests' own: no network is asked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from debian_packages import PackagesError, fetch_source

NEEDED = ("apt-get", "dpkg-source", "dpkg-scansources")
MISSING = [program for program in NEEDED if shutil.which(program) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)}")

CHANGELOG = """probe ({version}) unstable; urgency=low

  * None.

 -- Nobody <nobody@example>  Sat, 01 Jan 2000 00:00:00 +0000
"""
# A program of the suite: apt takes no notice of an empty list.
PROGRAM = "Package: other\nVersion: 1\nArchitecture: all\nFilename: other.deb\nSize: 1\nSHA256: 0\n"
CONTROL = """Source: probe
Maintainer: Nobody <nobody@example>

Package: probe
Architecture: all
Description: nothing
"""


def make_source(version: str, pool: Path, scratch: Path) -> None:
    """The source package probe, whose one file says its version."""
    tree = scratch / version / "probe"
    (tree / "debian/source").mkdir(parents=True)
    (tree / "debian/source/format").write_text("3.0 (native)\n")
    (tree / "debian/control").write_text(CONTROL)
    (tree / "debian/changelog").write_text(CHANGELOG.format(version=version))
    (tree / "said").write_text(version)
    pool.mkdir(parents=True)
    subprocess.run(["dpkg-source", "--build", tree], cwd=pool, check=True, capture_output=True)


def make_suite(repository: Path, suite: str, version: str, scratch: Path) -> None:
    """A suite of Debian's form that has this version of probe, and no others."""
    pool, place = f"pool/{suite}", repository / "dists" / suite
    make_source(version, repository / pool, scratch)
    sources = subprocess.run(["dpkg-scansources", pool], cwd=repository, check=True, capture_output=True, text=True)
    release = f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nComponents: main\nArchitectures: amd64\n"
    release += "Date: Sat, 01 Jan 2000 00:00:00 UTC\nSHA256:\n"
    for name, text in (("main/source/Sources", sources.stdout), ("main/binary-amd64/Packages", PROGRAM)):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(text)
        release += f" {hashlib.sha256(text.encode()).hexdigest()} {len(text)} {name}\n"
    (place / "Release").write_text(release)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of a release, its updates and its security, as an apt knows them. The file says which version of probe
    is installed."""
    repository, lists = tmp_path / "repository", tmp_path / "sources.list"
    suites = {"old": "1.0", "old-updates": "1.1", "old-security": "1.2"}
    for suite, version in suites.items():
        make_suite(repository, suite, version, tmp_path / "scratch")
    lists.write_text("".join(f"deb file:{repository} {suite} main\n" for suite in suites))
    settings = {
        "Dir::Etc::sourcelist": lists,
        "Dir::Etc::sourceparts": "-",
        "Dir::State": tmp_path / "apt",
        "Dir::Cache": tmp_path / "cache",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::AllowInsecureRepositories": "true",
        "APT::Get::AllowUnauthenticated": "true",
    }
    for folder in ("apt/lists/partial", "cache/archives/partial"):
        (tmp_path / folder).mkdir(parents=True)
    config, version = tmp_path / "apt.conf", tmp_path / "version"
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    monkeypatch.setenv("APT_CONFIG", str(config))
    subprocess.run(["apt-get", "-q", "update"], check=True, capture_output=True)
    query = tmp_path / "bin/dpkg-query"
    query.parent.mkdir()
    query.write_text(f"#!/bin/sh\ncat {version}\n")
    query.chmod(0o755)
    monkeypatch.setenv("PATH", f"{query.parent}:/usr/bin:/bin")
    return version


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_source_of_a_release_of_an_update_and_of_a_security_fix(
    version: str, installed: Path, tmp_path: Path
) -> None:
    installed.write_text(version)
    (tmp_path / "fetched").mkdir()
    assert (fetch_source("probe", "probe", tmp_path / "fetched") / "said").read_text() == version


def test_a_machine_whose_lists_were_removed_is_asked_anew(installed: Path, tmp_path: Path) -> None:
    """As Debian's container images are: the sources are known, and nothing that is in them."""
    shutil.rmtree(tmp_path / "apt/lists")
    (tmp_path / "apt/lists/partial").mkdir(parents=True)
    installed.write_text("1.1")
    (tmp_path / "fetched").mkdir()
    assert (fetch_source("probe", "probe", tmp_path / "fetched") / "said").read_text() == "1.1"
    assert [file for file in (tmp_path / "apt/lists").iterdir() if "dists" in file.name] == []  # the machine's own stay


def test_a_version_that_no_source_has_is_named(installed: Path, tmp_path: Path) -> None:
    installed.write_text("0.9")
    (tmp_path / "fetched").mkdir()
    with pytest.raises(PackagesError, match=r"0\.9"):
        fetch_source("probe", "probe", tmp_path / "fetched")
