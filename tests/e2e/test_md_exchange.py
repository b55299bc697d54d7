"""offpath-md --exchange: agents of several ranks exchange positions and forces by messages between their lanes, beside
the way through the hosts. Tests the results of each way, the choice between them, and the death of an agent."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_group import Group, new_group
from agent_process import AgentProcess, until
from agent_process import agent as start_agent
from md_program import (
    CELL,
    PROGRAM,
    address_of,
    crystal_file,
    ended,
    on_ranks,
    processes_of,
    rows,
    rows_of,
    settings_of_plugin,
)

PATIENCE_S = 100.0
STEPS = 300
RUN = ("-s", "10", "-n", str(STEPS), "--every", "5", "--offload", "force")
# Longer than any test waits.
LONG = ("-s", "10", "-n", "1000000", "--every", "5", "--offload", "force", "--exchange", "agent")
# A function that waits for a message in vain would wait for longer than any test does.
FOR_EVER = 'deadline = "1800s"\n'


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with start_agent(tmp_path, *settings_of_plugin(tmp_path, f"workers = 8\n{FOR_EVER}")) as process:
        yield process


def messages(agent: AgentProcess) -> dict[str, float]:
    counters: dict[str, float] = agent.status()["tasks"]["messages"]
    return counters


def dumped(path: Path, exchange: str, ranks: int) -> str:
    """Positions, velocities and forces of all atoms to the last bit, every 50 steps."""
    words = (*RUN, "--exchange", exchange, "--dump", str(path), "--dump_every", "50")
    done = ended(*words, launcher=on_ranks(ranks) if ranks > 1 else ())
    assert "continued without the agent" not in done.stderr
    assert f"forces of {STEPS // 5} steps" in done.stdout
    return path.read_text()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_every_atom_has_the_same_bits_either_way(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: int
):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    by_hosts = dumped(tmp_path / "host", "host", ranks)
    assert messages(agent)["received"] == 0
    assert dumped(tmp_path / "agent", "agent", ranks) == by_hosts
    # Each rank's part has two neighbours at least along one axis, to whom positions and forces go.
    assert messages(agent)["received"] >= (3 * STEPS // 5 * ranks if ranks > 1 else 0)


@pytest.mark.parametrize("shape", [("--precision", "mixed"), ("-t", "2", "--agent_threads", "3"), ("--safe_exchange",)])
def test_precisions_threads_and_farther_exchanges(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, shape: tuple[str, ...]
):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # more threads than cores: they sleep while they wait
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    words = ("-s", "8", "-n", "100", "--every", "5", "--offload", "force", *shape)
    by_hosts = rows(*words, launcher=on_ranks(2))
    assert rows(*words, "--exchange", "agent", launcher=on_ranks(2)) == by_hosts
    assert messages(agent)["received"] > 100


METAL = """a metal
of no element
metal
none
eam
1 1
6 6 6
60
0.005
900
0.0857
5
3 1.0
20
"""


def table_of_metal() -> str:
    """F(rho) = -sqrt(rho), rho(r) = (r - 3)^2 / 4, Z(r) = 3 - r: smooth at the cut-off of 3."""
    embedding = [-math.sqrt(0.2 * k) for k in range(200)]
    charge = [3 - 0.01 * k for k in range(301)]
    density = [(0.01 * k - 3) ** 2 / 4 for k in range(301)]
    values = "\n".join(f"{value:.8g}" for value in (*embedding, *charge, *density))
    return f"a metal\n 1 60.0 2.5 FCC\n 200 0.2 301 0.01 3.0\n{values}\n"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_agents_compute_the_embedded_atom_method(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: int
):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    table, path = tmp_path / "metal.eam", tmp_path / "in.metal"
    table.write_text(table_of_metal())
    path.write_text(METAL)
    words = ("-i", str(path), "--potential_file", str(table))
    alone = rows(*words)
    done = ended(*words, "--offload", "force", "--exchange", "agent", launcher=on_ranks(ranks) if ranks > 1 else ())
    assert "forces of 12 steps" in done.stdout
    assert "continued without the agent" not in done.stderr
    for step, figures in rows_of(done.stdout).items():
        assert figures == pytest.approx(alone[step], rel=5e-7), step


def test_the_faster_way_is_kept_and_named(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    done = ended(*RUN, "--exchange", "auto", launcher=on_ranks(2))
    kept, host, by_agent = re.findall(
        r"^# exchange: (\w+) \(ms of a step with lists: host (\S+), agent (\S+)\)$", done.stdout, re.M
    )[0]
    if by_agent != host:  # to the four digits that it prints
        assert kept == ("agent" if float(by_agent) < float(host) else "host")
    assert messages(agent)["received"] > 0
    assert f"forces of {STEPS // 5} steps" in done.stdout


def test_agents_without_a_worker_for_each_rank_are_named_or_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    with start_agent(tmp_path, *settings_of_plugin(tmp_path)) as agent:
        monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
        command = [*on_ranks(2), PROGRAM, *RUN, "--exchange", "agent"]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert refused.returncode != 0
        assert "as many workers of the plug-in as it has ranks of the run (plugin.workers)" in refused.stderr
        done = ended(*RUN, "--exchange", "auto", launcher=on_ranks(2))
        assert re.search(r"^# exchange: host \(", done.stdout, re.M), done.stdout
        assert f"forces of {STEPS // 5} steps" in done.stdout


def test_an_agent_that_stops_while_agents_meet_is_refused_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with start_agent(tmp_path, *settings_of_plugin(tmp_path)) as agent:  # one worker: they wait for each other
        monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
        running = started(*RUN, "--exchange", "agent", launcher=on_ranks(2))
        try:
            assert until(lambda: messages(agent)["sent"] >= 1, PATIENCE_S)
            os.kill(agent.process.pid, signal.SIGSTOP)
            _, err = running.communicate(timeout=PATIENCE_S)
            assert running.returncode != 0
            assert "the agent has not answered" in err
        finally:
            running.kill()
            os.kill(agent.process.pid, signal.SIGCONT)


def test_a_rank_without_atoms_exchanges(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A slab of three cells at the end of a box of 24 by 6 by 6, which four ranks share along its length."""
    data = tmp_path / "data"
    crystal_file(data, (6, 6, 24), lambda x: x[2] < -9 * CELL)
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    words = ("-f", str(data), "-n", "100", "--every", "1", "--offload", "force")
    by_hosts = rows(*words, launcher=on_ranks(4))
    done = ended(*words, "--exchange", "agent", launcher=on_ranks(4))
    assert "continued without the agent" not in done.stderr
    assert rows_of(done.stdout) == by_hosts


def test_modes_and_ways_to_exchange_are_chosen_in_one_run(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    words = ("-s", "10", "-n", "300", "--every", "5", "--offload", "auto", "--exchange", "auto")
    done = ended(*words, launcher=on_ranks(2))
    assert re.search(r"^# auto: \w+ \(", done.stdout, re.M), done.stdout
    assert re.search(r"^# exchange: (host|agent) \(", done.stdout, re.M), done.stdout
    assert "continued without the agent" not in done.stderr


def started(*options: str, launcher: tuple[str, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen([*launcher, PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(running: subprocess.Popen[str]) -> None:
    """With all ranks."""
    running.terminate()
    try:
        running.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        running.kill()


def goes_on_without(running: subprocess.Popen[str]) -> None:
    """Says so, and prints rows of later steps. It need not come to its end."""
    assert running.stdout is not None and running.stderr is not None
    too_late = threading.Timer(5 * PATIENCE_S, running.terminate)
    too_late.start()
    try:
        said = next((line for line in running.stderr if "continued without the agent" in line), "nothing")
        lost_at = re.search(r"continued without the agent from step (\d+) on", said)
        assert lost_at is not None, said
        assert any(int(line.split()[0]) > int(lost_at[1]) + 100 for line in running.stdout if line[:1].isdigit())
    finally:
        too_late.cancel()


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_run_goes_on_when_a_worker_dies_in_the_middle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: int):
    """The worker of one rank stops, until nothing goes on without it, and is killed. Nothing is lost if it then ran
    `hold`, which only keeps lists, or had yet to begin it: so this is repeated until forces were lost."""
    with start_agent(tmp_path, *settings_of_plugin(tmp_path, f"workers = {ranks}\n{FOR_EVER}")) as agent:
        monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
        running = started(*LONG, launcher=on_ranks(ranks))

        def done() -> int:
            return int(agent.status()["tasks"]["done"])

        try:
            assert until(lambda: done() >= 20 * ranks, PATIENCE_S)
            ends = time.monotonic() + 5 * PATIENCE_S
            while running.poll() is None and messages(agent)["lanes"] > 0:
                assert time.monotonic() < ends, "no worker that died had forces to compute"
                victim = processes_of(agent)[-1]
                with contextlib.suppress(ProcessLookupError):  # the agent ends a worker whose call it has cancelled,
                    os.kill(victim, signal.SIGSTOP)
                    before = -1
                    while exists(victim) and before != done():  # and then tasks go on
                        before = done()
                        time.sleep(0.2)
                    os.kill(victim, signal.SIGKILL)
                time.sleep(0.1)
            goes_on_without(running)
        finally:
            end(running)


NAMES = ["one", "other"]


@contextlib.contextmanager
def two_agents(folder: Path, settings: str = "") -> Iterator[Group]:
    words = settings_of_plugin(folder, f"{settings}{FOR_EVER}")
    with new_group(folder, "local") as group:
        for name in NAMES:
            joins = [] if name == "one" else ["--join", group.address("one")]
            group.start(name, *words, *joins)
        assert until(lambda: group.all_know(NAMES, dict.fromkeys(NAMES, "alive")), PATIENCE_S)
        yield group


def by_turns(group: Group, ranks: int, *options: str) -> list[str]:
    """A command whose ranks have the two agents by turns."""
    words = [*on_ranks(1)[:-2]]
    for rank in range(ranks):
        address = group.address(NAMES[rank % len(NAMES)])
        words += [*([":"] if rank else []), "-np", "1", "env", f"OFFPATH_AGENT={address}", PROGRAM, *options]
    return words


def test_an_agent_needs_workers_for_its_own_ranks_alone(tmp_path: Path):
    """Ranks 0 and 2 have one agent, 1 and 3 the other, with two workers each."""
    with two_agents(tmp_path, "workers = 2\n") as group:
        words = ("-s", "10", "-n", "50", "--every", "5", "--offload", "force", "--exchange")
        by_hosts, by_agents = (
            subprocess.run(by_turns(group, 4, *words, way), capture_output=True, text=True, check=True, timeout=300)
            for way in ("host", "agent")
        )
        assert "continued without the agent" not in by_agents.stderr
        assert rows_of(by_agents.stdout) == rows_of(by_hosts.stdout)
        assert group.running["one"].status()["tasks"]["messages"]["from_members"] > 10


def test_two_agents_exchange_and_one_of_them_dies(tmp_path: Path):
    """Each rank has an agent of its own, of one group."""
    with two_agents(tmp_path) as group:

        def command(*options: str) -> list[str]:
            return by_turns(group, 2, *options)

        by_hosts = subprocess.run(command(*RUN), capture_output=True, text=True, check=True, timeout=300)
        by_agents = subprocess.run(
            command(*RUN, "--exchange", "agent"), capture_output=True, text=True, check=True, timeout=300
        )
        assert rows_of(by_agents.stdout) == rows_of(by_hosts.stdout)
        assert messages(group.running["one"])["from_members"] > 100
        running = subprocess.Popen(command(*LONG), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            before = group.running["one"].status()["tasks"]["done"]
            assert until(lambda: group.running["one"].status()["tasks"]["done"] >= before + 20, PATIENCE_S)
            group.running["other"].process.kill()
            goes_on_without(running)
        finally:
            end(running)


def test_agents_do_not_wait_for_a_rank_that_died(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    """MPI ends the run; the agent ends what its functions waited for, and serves the next one."""
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    running = started(*LONG, launcher=on_ranks(4))
    try:
        assert until(lambda: agent.status()["tasks"]["done"] >= 80, PATIENCE_S)
        ranks = subprocess.run(
            ["pgrep", "-P", str(running.pid), "-f", PROGRAM], capture_output=True, text=True, check=True
        )
        os.kill(int(ranks.stdout.split()[-1]), signal.SIGKILL)
        running.communicate(timeout=PATIENCE_S)
        assert running.returncode != 0
    finally:
        running.kill()
    assert until(lambda: messages(agent)["lanes"] == 0, PATIENCE_S)
    done = ended(*RUN, "--exchange", "agent", launcher=on_ranks(4))
    assert f"forces of {STEPS // 5} steps" in done.stdout
    assert "continued without the agent" not in done.stderr
