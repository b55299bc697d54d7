"""The Debian packages in a bare Debian 12 with its own init: installed, used, upgraded, removed.

Run by `./dev test --long` (tools/suite.py), after `./dev package`. The tests are the life of one machine and run in
the order in which they stand here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from agent_modules import check_modules
from container import ROOT, Container, make_base, why_not

DEBIAN = ROOT / "build" / "package" / "debian"
SOCKET = "unix:/run/offpath/agent.sock"
LATER = "0.1.0+later"
FLIGHT_CLIENT = Path(__file__).parent / "flight_client.py"
DURABLE, SPILLED = "local:/durable?spill=durable", "local:/spilled?spill=on"  # both are there after a restart

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(offpath 0.1 REQUIRED)
add_executable(particles particles.c)
target_link_libraries(particles PRIVATE offpath::offpath)
"""


def make_of_another_build(tree: Path) -> None:
    """The files that an agent loads are named for its build."""
    modules = sorted((tree / "usr/lib/offpath").glob("liboffpath_*-*.so"))
    for own in {file.stem.rpartition("-")[2] for file in modules}:
        other = own[::-1]
        for file in (tree / "usr/bin/offpath-agent", *modules):
            file.write_bytes(file.read_bytes().replace(own.encode(), other.encode()))
            file.rename(file.with_name(file.name.replace(own, other)))


def repack(package: Path, folder: Path) -> Path:
    """The same package with a later version and of another build, as an upgrade brings it."""
    tree = folder / package.stem
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    text = control.read_text()
    version = re.search(r"^Version: (.*)$", text, re.MULTILINE)
    assert version is not None
    control.write_text(text.replace(f"Version: {version[1]}", f"Version: {LATER}").replace(
        f"(= {version[1]})", f"(= {LATER})"))  # fmt: skip
    make_of_another_build(tree)
    made = folder / f"{package.name.split('_')[0]}_later.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, capture_output=True)
    return made


def test_the_agents_package_has_what_the_agent_loads(tmp_path: Path) -> None:
    (package,) = DEBIAN.glob("offpath-agent_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path], check=True)
    libraries = tmp_path / "usr/lib/offpath"
    check_modules(tmp_path / "usr/bin/offpath-agent", libraries, libraries)
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    if reason := why_not() or make_base():
        pytest.skip(reason)
    packages = sorted(DEBIAN.glob("*.deb"))
    names = [package.name.split("_")[0] for package in packages]
    assert names == ["liboffpath-dev", "liboffpath0", "offpath-agent", "offpath-sampler"]
    folder = tmp_path_factory.mktemp("debian")
    container = Container(folder)
    for place in ("first", "later", "programs"):
        (container.root / place).mkdir()
    for package in packages:
        shutil.copy(package, container.root / "first")
        shutil.copy(repack(package, folder), container.root / "later")
    shutil.copy(ROOT / "examples/01_c/particles.c", container.root / "programs")
    shutil.copy(Path(__file__).parent / "lasting_program.c", container.root / "programs")
    (container.root / "programs/CMakeLists.txt").write_text(PROJECT)
    container.fetch("/first/*.deb")
    try:
        container.boot()
        yield container
    finally:
        container.stop()
        shutil.rmtree(container.root, ignore_errors=True)


def agent_pid(machine: Container) -> str:
    return machine.run("systemctl", "show", "--property=MainPID", "--value", "offpath-agent")


def loaded_by_the_agent(machine: Container) -> set[str]:
    """The files of its package in its memory, without versions."""
    maps = machine.run("cat", f"/proc/{agent_pid(machine)}/maps").splitlines()
    files = {Path(line.split()[-1]) for line in maps if "/usr/lib/offpath/" in line}
    return {re.split("[.-]", file.name)[0] for file in files}


@contextmanager
def more_settings(machine: Container, lines: str) -> Iterator[None]:
    """Restarts the agent with more lines in its configuration; at the end with those from before."""
    file = machine.root / "etc/offpath/agent.toml"
    before = file.read_text()
    file.write_text(before + lines)
    try:
        machine.run("systemctl", "restart", "offpath-agent")
        yield
    finally:
        file.write_text(before)
        machine.attempt("systemctl", "reset-failed", "offpath-agent")
        machine.run("systemctl", "restart", "offpath-agent")


class LastingProgram:
    """lasting_program.c, connected as user alice."""

    def __init__(self, machine: Container, *arguments: str) -> None:
        command = machine.words("env", f"OFFPATH_AGENT={SOCKET}", "/programs/lasting", *arguments, user="alice")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.connected = self.stdout.readline().strip()

    def do(self, line: str) -> str:
        self.stdin.write(line + "\n")
        self.stdin.flush()
        return self.stdout.readline().strip()

    def end(self) -> None:
        self.stdin.close()
        self.process.wait(30)


def test_the_agent_is_installed_and_runs_as_its_own_user(machine: Container) -> None:
    machine.install("/first/*.deb")
    assert machine.run("systemctl", "is-active", "offpath-agent") == "active"
    assert machine.run("systemctl", "is-enabled", "offpath-agent") == "enabled"
    pid = agent_pid(machine)
    assert machine.run("stat", "--format=%U", f"/proc/{pid}") == "offpath"
    status = machine.run("cat", f"/proc/{pid}/status")
    ptrace_alone = f"{1 << 19:016x}"
    assert re.search(rf"^CapEff:\s+{ptrace_alone}$", status, re.MULTILINE), status
    assert machine.run("curl", "--silent", "--fail", "http://127.0.0.1:9477/healthz") == "ok"
    assert "listening at" in machine.run("journalctl", "--unit=offpath-agent", "--no-pager")


def test_the_unit_is_well_formed_and_exposes_little(machine: Container) -> None:
    for unit in ("offpath-agent.service", "offpath-sampler.service"):
        assert machine.run("systemd-analyze", "verify", unit) == ""
        verdict = machine.run("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
        exposure = re.search(r"service: ([\d.]+)", verdict)
        assert exposure is not None and float(exposure[1]) <= 3.0, verdict


def test_the_sampler_starts_when_it_has_a_key(machine: Container) -> None:
    unit = "offpath-sampler"
    assert machine.run("sh", "-c", f"systemctl is-active {unit} || true") == "inactive"
    machine.run("sh", "-c", "umask 077; head -c 32 /dev/urandom | base64 > /etc/offpath/sampler.key")
    machine.run("systemctl", "start", unit)
    log = f"journalctl --no-pager --unit={unit}"
    machine.until(f"{log} | grep -q 'listening at port 7480'", log)
    pid = machine.run("systemctl", "show", "--property=MainPID", "--value", unit)
    # A user of systemd's own making; without libnss-systemd it has no name here.
    assert 61184 <= int(machine.run("stat", "--format=%u", f"/proc/{pid}")) <= 65519
    machine.run("systemctl", "reload", unit)
    assert machine.run("systemctl", "show", "--property=MainPID", "--value", unit) == pid
    assert machine.run("systemctl", "is-active", unit) == "active"


def test_programs_are_built_by_pkg_config_and_by_find_package(machine: Container) -> None:
    compile_c = "cc -std=c11 -O1 /programs/{0}.c -o /programs/{1} $(pkg-config --cflags --libs offpath)"
    machine.run("sh", "-c", compile_c.format("particles", "by_pkg_config"))
    machine.run("sh", "-c", compile_c.format("lasting_program", "lasting"))
    machine.run("cmake", "-S", "/programs", "-B", "/programs/build")
    machine.run("cmake", "--build", "/programs/build")
    for program in ("/programs/by_pkg_config", "/programs/build/particles"):
        assert "step4: 10000 rows" in machine.run("env", f"OFFPATH_AGENT={SOCKET}", program)


def test_other_users_come_in_when_the_configuration_names_them(machine: Container) -> None:
    machine.run("useradd", "alice")
    command = ("env", f"OFFPATH_AGENT={SOCKET}", "/programs/by_pkg_config")
    refused = machine.attempt(*command, user="alice")
    assert refused.returncode == 1 and "connect:" in refused.stderr
    machine.run("sed", "-i", 's/^allow_uids = .*/allow_uids = ["alice"]/', "/etc/offpath/agent.toml")
    machine.run("systemctl", "restart", "offpath-agent")
    assert "step4: 10000 rows" in machine.run(*command, user="alice")


def test_the_first_query_loads_what_the_package_has_for_it(machine: Container) -> None:
    """Under the rules of the unit, which forbids to make memory executable."""
    assert loaded_by_the_agent(machine) == set()
    program = LastingProgram(machine)
    for line in ("send queried", "query queried"):
        assert program.do(line) == "ok", line
    program.end()
    assert loaded_by_the_agent(machine) == {"liboffpath_arrow", "libarrow", "libarrow_compute", "libarrow_acero"}


def test_an_agent_of_the_unit_serves_flight(machine: Container) -> None:
    token, token_file, port = "a-token-of-the-tests", "/etc/offpath/flight.token", 9478
    machine.run("sh", "-c", f"umask 077; echo {token} > {token_file}; chown offpath {token_file}")
    settings = f'\n[flight]\nlisten = "tcp:127.0.0.1:{port}"\ntoken_file = "{token_file}"\n'
    with more_settings(machine, settings):
        assert {"liboffpath_flight", "libarrow_flight"} <= loaded_by_the_agent(machine)
        own_network = ["nsenter", f"--target={machine.leader}", "--net", "--"]  # of this machine's Python
        client = [sys.executable, FLIGHT_CLIENT, f"grpc+tcp://127.0.0.1:{port}", token]
        done = subprocess.run([*own_network, *client], capture_output=True, text=True)
        assert done.stdout.strip() == "[1.0, 2.0]", done.stderr
    machine.run("rm", token_file)


def do_once(machine: Container, pool: str, line: str) -> str:
    program = LastingProgram(machine, pool)
    assert program.connected == "ok"
    try:
        return program.do(line)
    finally:
        program.end()


def test_pools_on_disk_lie_where_the_unit_lets_the_agent_write(machine: Container) -> None:
    machine.run("sed", "-i", "s/^# spill_directory = /spill_directory = /", "/etc/offpath/agent.toml")
    machine.run("systemctl", "restart", "offpath-agent")
    for pool in (DURABLE, SPILLED):
        assert do_once(machine, pool, "send kept") == "ok"
    spill = "/var/lib/offpath/spill"
    assert machine.run("stat", "--format=%U %a", spill) == "offpath 700"
    assert len(machine.run("find", spill, "-name", "*.arrow").splitlines()) == 1  # the other is in memory
    assert machine.attempt("ls", spill, user="alice").returncode != 0


def test_the_agent_has_an_interface_for_tcp_when_the_unit_lets_it(machine: Container) -> None:
    """Not at an address that the kernel has, too: these containers allow no bpf()."""
    configuration, drop_in = "/etc/offpath/agent.toml", "/etc/systemd/system/offpath-agent.service.d"
    machine.run("cp", configuration, "/var/tmp/agent.toml")
    machine.run("sh", "-c", f'printf \'[tcp]\\ndevice = "lo"\\naddress = "10.77.0.2/24"\\n\' >> {configuration}')
    try:
        assert machine.attempt("systemctl", "restart", "offpath-agent").returncode != 0
        said = machine.run("journalctl", "--unit=offpath-agent", "--no-pager")
        assert re.search(r"tcp\.device lo: .*cp -r (/usr/share/offpath/offpath-agent\.service\.d) ", said), said
        machine.run("systemctl", "stop", "offpath-agent")  # it would be started again and again
        machine.attempt("systemctl", "reset-failed", "offpath-agent")
        machine.run("cp", "-r", "/usr/share/offpath/offpath-agent.service.d", "/etc/systemd/system/")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "offpath-agent")
        assert '"address":"10.77.0.2"' in machine.run("curl", "--silent", "--fail", "http://127.0.0.1:9477/status.json")
        kept = re.search(r"^CapEff:\s+(\w+)$", machine.run("cat", f"/proc/{agent_pid(machine)}/status"), re.MULTILINE)
        assert kept is not None and int(kept[1], 16) == 1 << 19  # CAP_SYS_PTRACE alone, again
    finally:  # later checks have the former agent
        machine.run("cp", "/var/tmp/agent.toml", configuration)
        machine.run("rm", "-rf", drop_in)
        machine.run("systemctl", "daemon-reload")
        machine.attempt("systemctl", "reset-failed", "offpath-agent")
        machine.run("systemctl", "restart", "offpath-agent")


def test_an_upgrade_leaves_the_agent_its_frames_and_its_programs(machine: Container) -> None:
    program = LastingProgram(machine)
    assert (program.connected, program.do("send before")) == ("ok", "ok")
    pid = agent_pid(machine)
    said = machine.install("/later/*.deb")
    assert LATER in machine.run("dpkg-query", "-W", "offpath-agent")
    assert "the agent that runs is still that of" in said and "systemctl restart offpath-agent" in said
    assert agent_pid(machine) == pid
    assert "alice" in machine.run("cat", "/etc/offpath/agent.toml")  # the administrator's own words stay
    for line in ("get before", "send after", "get after"):
        assert program.do(line) == "ok", line
    # It has loaded no libarrow so far; that of the other build is not for it.
    refused = program.do("query before")
    assert refused.startswith("unsupported: queries need Arrow, loaded from /usr/lib/offpath/liboffpath_arrow"), refused
    assert refused.endswith("or start it again after an upgrade"), refused

    # When the administrator restarts it, programs get an error, and connect again.
    machine.run("systemctl", "restart", "offpath-agent")
    assert agent_pid(machine) != pid
    assert program.do("send later") == "peer_lost: the agent ended, or closed the channel"
    program.end()
    again = LastingProgram(machine)
    assert again.connected == "ok"
    for line in ("send anew", "get anew", "query anew"):
        assert again.do(line) == "ok", line
    again.end()


def test_the_agent_of_the_later_package_has_what_was_put_into_pools_on_disk(machine: Container) -> None:
    for pool in (DURABLE, SPILLED):
        assert do_once(machine, pool, "get kept") == "ok"
    pid = agent_pid(machine)
    machine.run("systemctl", "kill", "--signal=SIGKILL", "offpath-agent")
    now = "systemctl show --property=MainPID --value offpath-agent"
    machine.until(f'curl --silent --fail http://127.0.0.1:9477/healthz && [ "$({now})" != {pid} ]')
    assert do_once(machine, DURABLE, "get kept") == "ok"


def test_a_reload_is_heard(machine: Container) -> None:
    machine.run("systemctl", "reload", "offpath-agent")
    machine.until("journalctl --unit=offpath-agent | grep -q 'SIGHUP: .*keys and certificate were read again'")


def test_removing_and_purging_leaves_nothing(machine: Container) -> None:
    pid = agent_pid(machine)
    machine.run("apt-get", "-q", "-y", "remove", "offpath-agent")
    assert machine.attempt("kill", "-0", pid).returncode != 0
    for stays in ("/etc/offpath/agent.toml", "/var/lib/offpath/spill"):
        assert machine.attempt("test", "-e", stays).returncode == 0
    machine.run("rm", "/etc/offpath/sampler.key")  # the administrator's own
    machine.run("apt-get", "-q", "-y", "purge", "offpath-agent", "offpath-sampler", "liboffpath0", "liboffpath-dev")
    folders = ("/etc", "/usr", "/var/lib", "/run")
    left = machine.run("find", *folders, "-name", "*offpath*", "-not", "-path", "/var/lib/apt/*")
    assert left == ""
