"""The source package for Fedora, built by Debian's rpmbuild: its packages own every file, and their agent runs.

Run by `./dev test --long` (tools/suite.py), after `./dev package rpm`. The test supplies the parts that Debian lacks:
systemd's macros, and the CMake files of Arrow's C++ library, here for the libarrow of pyarrow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from agent_modules import check_modules

HERE = Path(__file__).parent
ROOT = HERE.resolve().parents[1]
ARROW = Path(pa.get_library_dirs()[0])
SONAME = "".join(f"{int(each):02}" for each in pa.__version__.split(".")[:2])

pytestmark = pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="no rpmbuild: ./dev package installs it")

MACROS = {
    "_lib": "lib64",
    "_libdir": "%{_prefix}/lib64",
    "_unitdir": "/usr/lib/systemd/system",
    "_sysusersdir": "/usr/lib/sysusers.d",
    **{f"systemd_{each}()": ":" for each in ("post", "preun", "postun", "postun_with_restart")},
}
CONFIG = """
add_library({package}::{name}_shared SHARED IMPORTED)
set_target_properties({package}::{name}_shared PROPERTIES IMPORTED_LOCATION {file} IMPORTED_SONAME {soname}
                      INTERFACE_INCLUDE_DIRECTORIES {include} INTERFACE_LINK_LIBRARIES "{needs}")
"""


def arrow_of_a_system(folder: Path) -> Path:
    """CMake files as Arrow's C++ package has them."""
    for part in ("", "compute", "acero", "flight"):
        package, name = f"Arrow{part.capitalize()}", f"arrow_{part}" if part else "arrow"
        soname = f"lib{name}.so.{SONAME}"
        place = folder / "lib/cmake" / package
        place.mkdir(parents=True)
        (place / f"{package}Config.cmake").write_text(CONFIG.format(
            package=package, name=name, soname=soname, file=ARROW / soname, include=pa.get_include(),
            needs="Arrow::arrow_shared" if part else ""))  # fmt: skip
    return folder


def source_package() -> Path:
    (source,) = (ROOT / "build" / "package" / "rpm").glob("offpath-*.src.rpm")
    return source


@pytest.mark.skipif(shutil.which("rpmlint") is None, reason="no rpmlint: ./dev package installs it")
def test_rpmlint_has_nothing_to_say_of_the_source_package() -> None:
    said = subprocess.run(["rpmlint", "-c", ROOT / "packaging/rpm/rpmlint.toml", source_package()],
                          capture_output=True, text=True)  # fmt: skip
    assert "0 errors, 0 warnings" in said.stdout, said.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The .rpm files by name. rpmbuild fails if a file of the installation belongs to none of them."""
    top = tmp_path_factory.mktemp("rpm")
    defined = [word for name, value in (MACROS | {"_topdir": top}).items() for word in ("--define", f"{name} {value}")]
    environment = {**os.environ, "CMAKE_PREFIX_PATH": str(arrow_of_a_system(top / "arrow"))}
    command = ["rpmbuild", "--rebuild", "--nodeps", *defined, source_package()]
    built = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    return {file.name.partition("-0.")[0]: file for file in top.glob("RPMS/*/*.rpm")}


@pytest.fixture(scope="module")
def root(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    for package in packages.values():
        archive = subprocess.run(["rpm2archive", "-"], stdin=package.open("rb"), capture_output=True, check=True).stdout
        subprocess.run(["tar", "-xz", "-C", root], input=archive, check=True)
    return root


def test_each_package_has_its_part(packages: dict[str, Path]) -> None:
    listed = {name: set(asked("--list", file)) for name, file in packages.items()}
    assert {"offpath-agent", "offpath-sampler", "offpath-libs", "offpath-devel"} <= listed.keys()
    modules = {Path(each).name.partition("-")[0] for each in listed["offpath-agent"] if "/lib64/offpath/" in each}
    assert modules == {"liboffpath_arrow", "liboffpath_flight"}
    assert {"/usr/lib64/liboffpath.so.0", "/usr/lib64/liboffpath_openssl.so.0"} <= listed["offpath-libs"]
    assert "/usr/lib64/liboffpath.so" in listed["offpath-devel"]


def asked(about: str, package: Path) -> list[str]:
    done = subprocess.run(["rpm", "--query", "--package", about, package], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_what_the_agent_alone_loads_is_offered_to_nobody(packages: dict[str, Path]) -> None:
    provided = asked("--provides", packages["offpath-agent"])
    assert [each for each in provided if "liboffpath_arrow" in each or "liboffpath_flight" in each] == []
    assert any(each.startswith("liboffpath.so.0") for each in asked("--provides", packages["offpath-libs"]))
    required = asked("--requires", packages["offpath-agent"])
    assert any(each.startswith(f"libarrow_acero.so.{SONAME}") for each in required)


def test_the_agent_sends_and_queries(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = root / "usr/bin/offpath-agent"
    check_modules(program, root / "usr/lib64/offpath")
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", str(program))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{ARROW}:{root / 'usr/lib64'}")  # as the system's
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        out = session.stream("s", pa.schema([("id", pa.int64())]), rows_max=1000)
        out.send({"id": np.arange(1000)}, "step0").wait_stored(60)
        pool = session.pool("local:/s")
        assert pool.query("id >= 10", aggregates={"n": "count"}, timeout=60)["n"].to_pylist() == [990]
        assert str(root / "usr/lib64/offpath/liboffpath_arrow-") in Path(f"/proc/{agent.pid}/maps").read_text()
