"""A program in one guest, its agent in another, and a network between them that can be cut.

Each check names the events that both sides have to notice. They run in this order, because the last ones kill guests.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from checks import chosen
from guest import Guest, GuestError

ROOT = Path(__file__).resolve().parents[2]
HOST, AGENT = 1, 2  # their numbers
ADDRESS = f"verbs:10.77.0.{AGENT}:7700"
SILENCE_S = 5  # limits.silence
NOTICED_S = 2 * SILENCE_S  # an emulated machine is late with everything
SETTLED_S = 100
TOLD = f"no answer from the other machine for {SILENCE_S} s"
# The agent may hear of it from its RDMA device before.
TOLD_BY_DEVICE = "the program's RDMA device does not answer"

AGENT_PROGRAM = f"{Path(sys.executable).parent}/offpath-agent"
SILENCE = f"limits.silence={SILENCE_S}s"


def starting(agent: str, *settings: str) -> str:
    """The command that starts a pair's agent in its guest, and ends when that serves."""
    options = " ".join(f"--set {each}" for each in settings)
    return f"""
cp /run/out/key /tmp/key && chmod 600 /tmp/key
{agent} --listen {ADDRESS} --http unix:/tmp/http.sock --key-file /tmp/key --insecure-network {options} \\
  >/run/out/agent.log 2>&1 &
for try in $(seq 900); do [ -S /tmp/http.sock ] && exit 0; sleep 0.1; done
exit 1
"""


@dataclass
class Pair:
    """Both guests, joined by a stream of frames, so that none is lost but by a cut: as datagrams, the answer to one
    large read overruns a socket's buffer. The agent's end listens, so the host's guest may be killed and started again.
    """

    host: Guest
    agent: Guest
    key: str

    @property
    def guests(self) -> tuple[Guest, ...]:
        return self.host, self.agent

    def start_agent(self, starting: str) -> None:
        """First of the guests: its end of the network is there once it runs commands."""
        self.agent.start()
        (self.agent.out / "key").write_text(self.key)
        self.agent.run(starting, 210)

    def start_host(self) -> None:
        self.host.start()
        (self.host.out / "key").write_text(self.key)
        self.host.run("cp /run/out/key /tmp/key && chmod 600 /tmp/key", 60)

    def program(self, *arguments: object) -> str:
        words = " ".join(map(str, arguments[1:]))
        script = ROOT / "tests/hw/host_program.py"
        return f"cd {ROOT} && exec {sys.executable} {script} {arguments[0]} {ADDRESS} /tmp/key {words}"

    def begin_sending(self, *arguments: object) -> int:
        """Starts a program on the host and waits until its first batch has come back."""
        number = self.host.begin(self.program(*arguments))
        self.host.await_word(number, "sending", 120)
        return number

    def agent_log(self) -> str:
        return (self.agent.out / "agent.log").read_text(errors="replace")


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise GuestError(what)


def await_agent(pair: Pair, before: int, began: float) -> float:
    """Seconds from `began` until the agent ended one channel more than the `before` ones, and said why."""
    while pair.agent_log().count("endure ended") == before:
        expect(time.monotonic() - began < SETTLED_S, f"the agent did not notice: {pair.agent_log()[-500:]}")
        time.sleep(0.1)
    seconds = time.monotonic() - began
    line = [line for line in pair.agent_log().splitlines() if "endure ended" in line][-1]
    expect(TOLD in line or TOLD_BY_DEVICE in line, f"the agent said: {line}")
    expect(seconds < NOTICED_S, f"the agent noticed after {seconds:.1f} s, limits.silence is {SILENCE_S} s")
    return seconds


def await_program(pair: Pair, number: int, began: float) -> str:
    """The time, from `began`, at which the program learnt of it, and the message."""
    code, said = pair.host.finish(number, SETTLED_S)
    seconds = time.monotonic() - began
    last = said.strip().splitlines()[-1]
    expect(code == 0 and last.startswith("PeerLost"), f"the program did not learn of it: {last}")
    expect(TOLD in last, f"the program was told: {last}")
    expect(seconds < NOTICED_S, f"the program noticed after {seconds:.1f} s, limits.silence is {SILENCE_S} s")
    return f"the program noticed after {seconds:.1f} s: {last}"


def await_both(pair: Pair, number: int, before: int, began: float) -> str:
    agent = await_agent(pair, before, began)
    return f"the agent noticed after {agent:.1f} s, {await_program(pair, number, began)}"


def across(pair: Pair) -> str:
    """The move service between two machines."""
    return pair.host.run(pair.program("move"), 200).strip()


def diagnose(guest: Guest, words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The result of `offpath doctor` in a guest: its exit code, and its findings by name."""
    command = f"cd {ROOT} && OFFPATH_KEY_FILE=/tmp/key {sys.executable} -m offpath doctor {words} --json"
    code, said = guest.finish(guest.begin(command), 90)
    expect(said.startswith("{"), f"doctor ended with exit code {code}: {said[-500:]}")
    return code, {each["name"]: each for each in json.loads(said)["findings"]}


def no_gid(pair: Pair) -> str:
    """A card whose interface lost its address has no GID that the link takes: doctor says so and what to do. An agent
    told to listen where no card is does not start."""
    place = f"10.77.0.{HOST}/24 dev eth0"
    pair.host.run(f"ip address del {place}", 20)
    code, findings = diagnose(pair.host, "--machine")
    gid = findings["GID of rxe0/1"]
    expect(code == 1 and not gid["good"], f"doctor ended with exit code {code} and said: {gid}")
    expect(gid["value"] == "none of RoCE v2 with an IPv4 address", f"doctor said: {gid['value']}")
    wanted = "give the interface an IPv4 address: ip address add ADDRESS/BITS dev eth0"
    expect(gid["advice"] == wanted, f"doctor advised: {gid['advice']}")
    pair.host.run(f"ip address add {place}", 20)
    code, findings = diagnose(pair.host, "--machine")
    gid = findings["GID of rxe0/1"]
    expect(code == 0 and gid["good"] and f"10.77.0.{HOST} on eth0" in gid["value"], f"with its address again: {gid}")
    agent = f"{AGENT_PROGRAM} --key-file /tmp/key --insecure-network --listen verbs:10.99.0.1:7701"
    code, said = pair.host.finish(pair.host.begin(f"ip address add 10.99.0.1/24 dev lo && timeout 30 {agent}"), 60)
    expect(code == 1 and "10.99.0.1:7701: no RDMA device has this address" in said, f"the agent said: {said[-500:]}")
    return f"without an address {wanted}; with it {gid['value']}"


def mtu_mismatch(pair: Pair) -> str:
    """One card takes smaller packets than the other: both send the smaller ones, whichever side it is, and everything
    arrives. Doctor names the MTU that costs rate."""
    narrow, wide = 1500, 9000
    said = []
    for side, other, words in ((pair.agent, pair.host, "--machine"), (pair.host, pair.agent, f"--agent {ADDRESS}")):
        side.run(f"ip link set eth0 mtu {narrow}", 20)
        other.run(f"ip link set eth0 mtu {wide}", 20)
        pair.host.run(pair.program("move"), 200)
        code, findings = diagnose(side, words)
        mtu = findings["MTU of eth0"]
        expect(code == 0 and not mtu["good"] and mtu["value"] == narrow, f"doctor ended with exit code {code}: {mtu}")
        expect(mtu["advice"].startswith("optional: RDMA packets of 4096 bytes need 4200"), f"it said: {mtu['advice']}")
        said.append(f"{narrow} at the {'agent' if side is pair.agent else 'host'}")
        side.run(f"ip link set eth0 mtu {wide}", 20)
    return f"{', then '.join(said)}: batches there and back, doctor names it"


def short_cut(pair: Pair) -> str:
    """The network is gone for a second: the cards repeat, and programs do not notice."""
    number = pair.begin_sending("stream", 8)
    pair.agent.set_cable(False)
    time.sleep(1.0)
    pair.agent.set_cable(True)
    code, said = pair.host.finish(number, 120)
    expect(code == 0, f"the program failed: {said[-500:]}")
    return said.strip().splitlines()[-1]


def long_cut(pair: Pair) -> str:
    """The network is gone for longer than cards repeat: both sides say so; afterwards the program connects again."""
    number = pair.begin_sending("endure")
    before = pair.agent_log().count("endure ended")
    pair.agent.set_cable(False)
    began = time.monotonic()
    noticed = await_both(pair, number, before, began)
    pair.agent.set_cable(True)
    pair.host.run(pair.program("move"), 200)
    return f"{noticed}; the next one moved its batches"


def host_dies(pair: Pair) -> str:
    """The program's machine is gone at once: the agent ends the channel and serves the next machine."""
    pair.begin_sending("endure")
    before = pair.agent_log().count("endure ended")
    pair.host.kill()
    began = time.monotonic()
    noticed = await_agent(pair, before, began)
    pair.start_host()
    pair.host.run(pair.program("move"), 200)
    return f"the agent noticed after {noticed:.1f} s; the next machine moved its batches"


def agent_dies(pair: Pair) -> str:
    """The agent's machine is gone at once: the program is told, its memory is its own, and it can end."""
    number = pair.begin_sending("endure")
    pair.agent.kill()
    began = time.monotonic()
    return await_program(pair, number, began)


CHECKS: tuple[Callable[[Pair], str], ...] = (
    across, no_gid, mtu_mismatch, short_cut, long_cut, host_dies, agent_dies,
)  # fmt: skip


def joined(place: Path) -> dict[int, str]:
    """The networks of both, by number: the file `place` is the cable between them."""
    place.unlink(missing_ok=True)
    network = f"addr.type=unix,addr.path={place}"
    return {HOST: f"stream,server=off,{network}", AGENT: f"stream,server=on,{network}"}


PairKind = TypeVar("PairKind", bound=Pair)


def results_of(
    name: str, pair: PairKind, start: Callable[[], None], checks: Iterable[Callable[[PairKind], str]]
) -> list[dict[str, object]]:
    """The results of checks in guests that `start` starts and that end here; one that fails ends those after it."""
    results: list[dict[str, object]] = []
    try:
        start()
        for check in checks:
            began = time.monotonic()
            try:
                passed, detail = True, check(pair)
            except GuestError as error:
                passed, detail = False, str(error)
            seconds = round(time.monotonic() - began, 1)
            results.append({"name": check.__name__, "passed": passed, "detail": detail, "seconds": seconds})
            if not passed:
                break
    except GuestError as error:
        results.append({"name": name, "passed": False, "detail": str(error), "seconds": 0.0})
    finally:
        for guest in pair.guests:
            guest.kill()
    return results


def check_pair(folder: Path, only: str) -> list[dict[str, object]]:
    """The results of all checks whose names match."""
    networks = joined(folder / "network")
    pair = Pair(*(Guest(folder, number=number, network=networks[number], cores=1) for number in (HOST, AGENT)),
                secrets.token_hex(32))  # fmt: skip

    def start() -> None:
        pair.start_agent(starting(AGENT_PROGRAM, SILENCE))
        pair.start_host()

    return results_of("two_guests", pair, start, chosen(CHECKS, only))
