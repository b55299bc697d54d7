"""A budget that real agents share by decisions, each with a real cgroup whose limit it sets, while their network is cut
and joined, and agents are killed, started again and stopped. The sum of all limits is never above the budget.

``OFFPATH_SIM_SEED=K`` draws other events. ``tests/sim/decision_sim_test.cc`` runs the same function in virtual time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import offpath
import pytest
from agent_process import AgentProcess, until
from switched_network import AGENT, PROGRAM, Network, switched_network

SOURCES = Path(__file__).resolve().parents[3]
SIDES = {"node-0": "agent", "node-1": "agent", "node-2": "agent", "node-3": "program", "node-4": "program"}
NAMES = list(SIDES)
HOSTS = {"agent": AGENT, "program": PROGRAM}
FLOOR, SHARED = 100, 500  # thousandths of a core: of each node always, and of all together to be granted
BUDGET = FLOOR * len(NAMES) + SHARED
PERIOD_US = 100_000
EARLY_MS = 1200  # a busy machine's keepers are as late
ACTS = 300 if "OFFPATH_LONG" in os.environ else 15  # ./dev test --long
PATIENCE_S = 60.0
CONFIG = f"""
[sampling]
interval = "50ms"

[actuators]
cgroups = "{{cgroups}}"

[[plugin]]
name = "budget"
path = "{{plugin}}"

[[actuator]]
name = "cpu"
kind = "cpu"
where = "node-{{{{index}}}}"
min = {FLOOR}
max = {BUDGET}

[[exchange]]
name = "cpu"
topology = "neighbourhoods(2)"
members = {NAMES}
interval = "100ms"
deadline = "80ms"
fields = ["wanted:u64"]
grant_total = {SHARED}
grant_ttl = "2500ms"
grant_lease = "3s"
decide = "budget/share"
arguments = "{FLOOR} {EARLY_MS}"
actuators = ["cpu"]
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plugin") / "cpu_budget_plugin.so"
    source = SOURCES / "examples/12_cpu_budget/cpu_budget_plugin.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{SOURCES}/include", source, "-o", made], check=True)
    return made


class Limits:
    """The limits of all nodes' cgroups, which a thread looks at all the time."""

    def __init__(self, root: Path, limit: str) -> None:
        if limit == "cpu.max":
            (root / "cgroup.subtree_control").write_text("+cpu")
        self.files = []
        for name in NAMES:
            (root / name).mkdir()
            self.files.append(root / name / limit)
            self.files[-1].write_text(str(FLOOR * PERIOD_US // 1000))
        self.above: list[int] = []
        self.looks, self.highest = 0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def now(self) -> list[int]:
        """Thousandths of a core. Two equal looks, one after the other: so they were at one moment."""
        while True:
            one, other = ([int(file.read_text().split()[0]) * 1000 // PERIOD_US for file in self.files] for _ in "12")
            if one == other:
                return one

    def _watch(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # the agents need the processors more
        while not self._over.is_set() and not self.above:
            limits = self.now()
            self.looks += 1
            self.highest = max(self.highest, sum(limits))
            if sum(limits) > BUDGET:
                self.above = limits

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class Nodes:
    """The agents, with a program beside each that says what its node demands."""

    def __init__(self, directory: Path, network: Network, config: Path, seed: int) -> None:
        self.directory, self.network, self.config = directory, network, config
        self.random = random.Random(seed)
        self.agents: dict[str, AgentProcess] = {}
        self.programs: dict[str, tuple[offpath.Session, offpath.Gauges]] = {}
        self.stopped: set[str] = set()
        self.is_cut = False
        key = directory / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        self.addresses = {name: f"tcp:{HOSTS[side]}:{7100 + i}" for i, (name, side) in enumerate(SIDES.items())}
        for name in NAMES:
            (directory / name).mkdir()
            self.start(name)

    def start(self, name: str) -> None:
        place, address = self.directory / name, self.addresses[name]
        (place / "agent.sock").unlink(missing_ok=True)
        arguments = [
            "--config", str(self.config), "--name", name, "--set", f"group.index={NAMES.index(name)}",
            "--listen", f"unix:{place}/agent.sock", "--listen", address, "--http", f"unix:{place}/http.sock",
            "--key-file", str(self.directory / "key"), "--insecure-network",
            "--set", "group.dead_after=1s", "--set", "limits.silence=2s", "--set", f"group.address={address}",
            "--set", f"group.members={','.join(self.addresses.values())}",
        ]  # fmt: skip
        # Not `ip netns exec`, whose /sys has no cgroups.
        launcher = ["nsenter", f"--net=/run/netns/{self.network.names[SIDES[name]]}"]
        self.agents[name] = AgentProcess(place, arguments, launcher)
        session = offpath.connect(f"unix:{place}/agent.sock")
        self.programs[name] = session, session.gauges("demand", ["wanted"])
        self.demand(name)

    def demand(self, name: str, wanted: int | None = None) -> None:
        _, gauges = self.programs[name]
        gauges["wanted"] = float(self.random.randrange(2 * BUDGET) if wanted is None else wanted)

    def kill(self, name: str) -> None:
        self.go_on(name)
        agent, (session, _) = self.agents.pop(name), self.programs.pop(name)
        agent.process.kill()
        agent.process.wait()
        with suppress(offpath.Error):
            session.close()

    def stop(self, name: str) -> None:
        os.kill(self.agents[name].pid, signal.SIGSTOP)
        self.stopped.add(name)

    def go_on(self, name: str) -> None:
        if name in self.stopped:
            os.kill(self.agents[name].pid, signal.SIGCONT)
            self.stopped.remove(name)

    def cut(self, is_cut: bool) -> None:
        self.network.set_cable(not is_cut)
        self.is_cut = is_cut

    def act(self) -> str:
        name = self.random.choice(NAMES)
        what = self.random.choice(["cut", "cut", "kill", "start", "start", "stop", "go on", "demand"])
        if what == "cut":
            self.cut(not self.is_cut)
            return "cut" if self.is_cut else "joined"
        if what == "start" and name not in self.agents:
            self.start(name)
        elif name not in self.agents:
            return "nothing"
        elif what == "kill":
            self.kill(name)
        elif what == "stop":
            self.stop(name)
        elif what == "go on":
            self.go_on(name)
        else:
            self.demand(name)
        return f"{what} {name}"

    def heal(self) -> None:
        self.cut(False)
        for name in list(self.stopped):
            self.go_on(name)
        for name in NAMES:
            if name not in self.agents:
                self.start(name)
            self.demand(name, BUDGET)

    def end(self) -> None:
        for name in list(self.agents):
            self.kill(name)


@pytest.fixture
def limits(cgroups: tuple[Path, str]) -> Iterator[Limits]:
    made = Limits(*cgroups)
    yield made
    made.stop()


@pytest.mark.timeout(1200 + 5 * ACTS)
def test_the_limits_are_never_above_the_budget_whatever_is_cut_and_killed(
    tmp_path: Path, plugin: Path, limits: Limits
) -> None:
    config, seed = tmp_path / "agent.toml", int(os.environ.get("OFFPATH_SIM_SEED", "1"))
    config.write_text(CONFIG.format(cgroups=limits.files[0].parents[1], plugin=plugin))
    history: list[str] = []
    with ExitStack() as stack:
        network = stack.enter_context(switched_network())
        nodes = Nodes(tmp_path, network, config, seed)
        stack.callback(nodes.end)

        def is_used() -> bool:
            """Everybody wants more than there is."""
            return sum(limits.now()) > BUDGET - SHARED // 10

        for name in NAMES:
            nodes.demand(name, BUDGET)
        assert until(is_used, PATIENCE_S), limits.now()
        for _ in range(ACTS):
            history.append(nodes.act())
            time.sleep(nodes.random.uniform(0, 2))
            assert not limits.above, f"{limits.above} are above {BUDGET}, seed {seed}: {', '.join(history)}"
        nodes.heal()
        assert until(is_used, PATIENCE_S), limits.now()
        assert not limits.above, f"{limits.above} are above {BUDGET}, seed {seed}: {', '.join(history)}"
    # With the agents, all limits return.
    assert until(lambda: limits.now() == [FLOOR] * len(NAMES), PATIENCE_S), limits.now()
    assert not limits.above, limits.above
    assert limits.looks > 10 * ACTS
