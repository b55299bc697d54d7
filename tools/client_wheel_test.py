"""Wheels of the client: their Pythons, their metadata, and their packages."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import client_wheel
import pytest
import pythons
from building import PackageError
from client_wheel import Machine
from debian_packages import listed
from pythons import Python

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()


def python(minor: int) -> Python:
    return Python(Path(f"/opt/python3.{minor}"), (3, minor), Path(f"/opt/include/python3.{minor}"))


def test_one_wheel_serves_all_pythons_from_3_12_on() -> None:
    there = tuple(map(python, (13, 10, 12, 11, 14)))
    assert [(each.version[1], each.tags) for each in pythons.builders(there)] == [
        (10, "cp310-cp310"), (11, "cp311-cp311"), (12, "cp312-abi3"),
    ]  # fmt: skip
    assert [each.tags for each in pythons.builders((python(11),))] == ["cp311-cp311"]


def test_this_python_is_among_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OFFPATH_PYTHONS", raising=False)
    pythons.installed.cache_clear()
    own = [each for each in pythons.installed() if each.version == sys.version_info[:2]]
    assert [each.program for each in own] == [Path(sys.executable)]  # it has what builds the package


def test_other_pythons_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Python that does not run, or is not one, is left out."""
    silent = tmp_path / "python3"
    silent.write_text("#!/bin/sh\nexit 127\n")
    silent.chmod(0o755)
    monkeypatch.setenv("OFFPATH_PYTHONS", f"{silent}:/nonexistent:{sys.executable}")
    assert [each.program for each in filter(None, map(pythons.probe, pythons.candidates()))] == [Path(sys.executable)]


def test_the_client_needs_numpy_and_pyarrow_alone() -> None:
    whole, client = tomllib.loads(PROJECT), tomllib.loads(client_wheel.changed(PROJECT))
    assert client["project"]["dependencies"] == ["pyarrow>=16", "numpy>=1.26"]
    assert client["project"]["requires-python"] == f">={'.'.join(map(str, pythons.OLDEST))}"
    assert client["project"]["scripts"] == {"offpath": whole["project"]["scripts"]["offpath"]}
    assert client["project"]["optional-dependencies"] == whole["project"]["optional-dependencies"]
    assert [each for each in client["build-system"]["requires"] if "pyarrow" in each] == []
    with pytest.raises(PackageError, match="requires-python"):
        client_wheel.changed(PROJECT.replace("requires-python", "requires"))


def test_a_machine_is_named_as_wheels_and_compilers_name_it() -> None:
    arm = Machine("aarch64", Path("/arm"))
    assert (arm.platform, arm.target) == ("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28")
    environment = client_wheel.environment_for(arm, python(10))
    assert environment["_PYTHON_HOST_PLATFORM"] == "linux-aarch64"
    assert environment["SETUPTOOLS_EXT_SUFFIX"] == ".cpython-310-aarch64-linux-gnu.so"
    assert not any("PYTHON" in name for name in client_wheel.environment_for(Machine(client_wheel.HOST, Path("/")),
                                                                            python(11)))  # fmt: skip


def test_programs_for_another_machine_are_made_by_its_tools() -> None:
    """An archive that this machine's own ar writes has no index of another processor's symbols."""
    arm, here = Machine("aarch64", Path("/arm")), Machine(client_wheel.HOST, Path("/"))
    assert (arm.tool("ar"), here.tool("ar")) == ("aarch64-linux-gnu-ar", "ar")
    assert arm.compiler("g++") == ["aarch64-linux-gnu-g++", "--sysroot=/arm"] and here.compiler("gcc") == ["gcc"]


@pytest.mark.parametrize("processor", [client_wheel.HOST, "riscv64"])
def test_a_wheel_that_auditwheel_takes_for_another_platform_is_refused(processor: str, tmp_path: Path) -> None:
    machine = Machine(processor, Path("/other"))
    program, said = tmp_path / "auditwheel", tmp_path / "said"
    program.write_text(f'#!/bin/sh\necho "$@" >{said}\ntouch "{tmp_path}/$MADE"\n')
    program.chmod(0o755)
    wheel = tmp_path / f"offpath-0.1.0-cp310-cp310-linux_{processor}.whl"

    def repaired(made: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MADE", f"offpath-0.1.0-cp310-cp310-{made}_{processor}.whl")
            client_wheel.repair(wheel, machine, tmp_path, program, ("libssl.so.3",), Path("/other/lib"))
        return said.read_text()

    with pytest.raises(PackageError, match="manylinux_2_28"):
        repaired("manylinux_2_34")
    command = repaired("manylinux_2_28")
    assert "--exclude libssl.so.3" in command
    assert ("--plat auto" in command) == ("--ldpaths /other/lib" in command) == (not machine.is_host)


def test_headers_of_the_systems_python_are_those_of_the_other_system() -> None:
    arm = Machine("aarch64", Path("/arm"))
    system = Python(Path("/usr/bin/python3"), (3, 11), Path("/usr/include/python3.11"))
    assert client_wheel.headers_of(system, arm) == Path("/arm/usr/include/python3.11")
    assert client_wheel.headers_of(python(12), arm) == python(12).headers


def test_every_python_has_the_builders_of_the_environment() -> None:
    """packages/client.txt has the pins of packages/python.txt."""
    pinned = dict(line.split("==") for line in listed(ROOT / "packages/python.txt"))
    builders = dict(line.partition(";")[0].split("==") for line in listed(client_wheel.BUILD_PACKAGES))
    assert {"nanobind", "scikit-build-core"} <= builders.keys()
    assert {name: wanted for name, wanted in builders.items() if name in pinned} == {
        name: pinned[name] for name in builders if name in pinned
    }
