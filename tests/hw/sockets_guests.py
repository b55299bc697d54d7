"""Programs in one guest whose sockets are those of an agent in another, over RDMA, beside a third with the kernel's.

    guest 1: program, library, relay  == RoCE ==  guest 2: agent  -- its second card --  guest 3: peers

Guest 1 has no way to the network of guest 3 but the agent. The checks run in this order: the last ones kill guests.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checks import chosen
from guest import HERE, ROOT, Guest, GuestError, Machine
from two_guests import (
    ADDRESS,
    AGENT,
    AGENT_PROGRAM,
    HOST,
    NOTICED_S,
    SETTLED_S,
    SILENCE,
    SILENCE_S,
    Pair,
    expect,
    joined,
    results_of,
    starting,
)

PEER = 3
AGENTS_ADDRESS, PEERS_ADDRESS = "10.78.0.2", f"10.78.0.{PEER}"
DEVICE = ("tcp.device=eth1", f"tcp.address={AGENTS_ADDRESS}/24")  # settings of the agent
SOCKETS = 64  # of an offloaded program: all their rings are pinned
PROGRAMS = ROOT / "build" / "programs" / "usr"  # of packages/programs.txt
FILE_BYTES = 300_000
PACKETS = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
PACKET_BYTES_MAX = 4096  # the largest MTU of RoCE


def path_of(program: str) -> str | None:
    places = [f"{PROGRAMS}/bin", f"{PROGRAMS}/sbin", os.environ.get("PATH", ""), "/usr/sbin"]
    return shutil.which(program, path=os.pathsep.join(places))


def command_of(program: str, *words: str) -> str:
    """With the libraries that were unpacked beside it."""
    libraries = next(PROGRAMS.glob("lib/*-linux-gnu*"), PROGRAMS)
    found = path_of(program)
    expect(found is not None, f"there is no {program}")
    return shlex.join(["env", f"LD_LIBRARY_PATH={libraries}", str(found), *words])


def own_program(*words: object) -> str:
    """Of sockets_programs.py."""
    return shlex.join([sys.executable, str(ROOT / "tests/hw/sockets_programs.py"), *map(str, words)])


def offloading(command: str) -> str:
    """The command with its sockets offloaded, in the guest of the program."""
    offpath = [sys.executable, "-m", "offpath", "sockets", "--agent", ADDRESS, "--sockets", str(SOCKETS), "--report"]
    return f"cd {ROOT} && export OFFPATH_KEY_FILE=/tmp/key && exec {shlex.join(offpath)} -- {command}"


@dataclass
class Trio(Pair):
    """A pair, and peers in the network of the agent's second card."""

    peer: Guest
    stream_mib: int = 64  # each way

    @property
    def guests(self) -> tuple[Guest, ...]:
        return *super().guests, self.peer

    def start_agent(self, starting: str) -> None:
        super().start_agent(f"ip link set eth1 mtu 9000 up\n{starting}")

    def start_peer(self) -> None:
        self.peer.start()
        self.peer.run(f"ip address add {PEERS_ADDRESS}/24 dev eth0", 120)

    @contextmanager
    def offloaded(self, name: str, command: str) -> Iterator[None]:
        """A program over the agent, which may not be listening when this returns. It is asked to end with the block, if
        it has not ended."""
        script = shlex.quote(f"echo $$ >/tmp/{name}.pid; {offloading(command)}")
        self.host.run(f"""
rm -f /tmp/{name}.exit
( sh -c {script} >/run/out/{name}.log 2>&1; echo $? >/tmp/{name}.exit ) &
""", 30)  # fmt: skip
        log = self.host.out / f"{name}.log"
        try:
            yield
        except GuestError as error:
            raise GuestError(f"{error}; {name} said: {log.read_text(errors='replace')[-500:]}") from None
        self.host.run(f"""
[ -e /tmp/{name}.exit ] || kill $(cat /tmp/{name}.pid)
for try in $(seq 300); do [ -e /tmp/{name}.exit ] && exit $(cat /tmp/{name}.exit); sleep 0.1; done
exit 1
""", 60)  # fmt: skip
        said = log.read_text(errors="replace")
        expect(any(map(int, re.findall(r"offpath sockets: (\d+) offloaded", said))), f"{name} said: {said[-500:]}")

    def packets(self) -> int:
        """RDMA packets that the program's card has sent."""
        return int(self.host.run(PACKETS, 20))


def sockets_nginx(trio: Trio) -> str:
    """A web server with two processes."""
    site = trio.host.out / "site"
    site.mkdir(exist_ok=True)
    file = secrets.token_bytes(FILE_BYTES)
    (site / "file").write_bytes(file)
    temporary = " ".join(f"{kind}_temp_path /tmp/{kind};" for kind in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
    (trio.host.out / "nginx.conf").write_text(
        "daemon off; worker_processes 2; error_log stderr; pid /tmp/nginx; user root;\n"
        "events { worker_connections 100; }\n"
        f"http {{ access_log off; sendfile on; {temporary} server {{\n"
        "listen 0.0.0.0:8000; root /run/out/site; } }\n"
    )
    before = trio.packets()
    with trio.offloaded("nginx", command_of("nginx", "-p", "/tmp", "-e", "stderr", "-c", "/run/out/nginx.conf")):
        asked = own_program("site", AGENTS_ADDRESS, 8000, hashlib.sha256(file).hexdigest())
        said = trio.peer.run(asked, 300).strip()
        sent = trio.packets() - before
    expect(sent > 0, "no RDMA packet was sent")
    return f"nginx: {said}; {sent} RDMA packets of the program's card"


def sockets_redis(trio: Trio) -> str:
    """A database: its own benchmark, and values that are compared."""
    server = command_of("redis-server", *"--port 6379 --bind 0.0.0.0 --protected-mode no --save".split(), "",
                        *"--appendonly no --dir /tmp".split())  # fmt: skip
    with trio.offloaded("redis", server):
        said = trio.peer.run(own_program("values", AGENTS_ADDRESS, 6379), 300).strip()
        words = f"-h {AGENTS_ADDRESS} -p 6379 -n 2000 -c 8 -d 100 -t set,get --csv".split()
        measured = trio.peer.run(command_of("redis-benchmark", *words), 200)
    rows = [line.replace('"', "").split(",") for line in measured.splitlines()]
    rates = {name: float(rate) for name, rate, *_ in rows if name in ("SET", "GET")}
    expect(rates.keys() == {"SET", "GET"} and all(rates.values()), f"redis-benchmark said: {measured[-500:]}")
    return f"redis: {said}; {rates['SET']:.0f} SET and {rates['GET']:.0f} GET a second"


def sockets_stream(trio: Trio) -> str:
    """Bytes both ways at once, compared by their hashes; each has crossed as RDMA."""
    before = trio.packets()
    with trio.offloaded("stream", own_program("serve", 7000, trio.stream_mib)):
        began = time.monotonic()
        said = trio.peer.run(own_program("stream", AGENTS_ADDRESS, 7000, trio.stream_mib), 300).strip()
        seconds = time.monotonic() - began
    sent, least = trio.packets() - before, (trio.stream_mib << 20) // PACKET_BYTES_MAX
    expect(sent >= least, f"{sent} RDMA packets sent, {least} are needed")
    return f"{said}, {2 * trio.stream_mib / seconds:.0f} MiB/s; {sent} RDMA packets of the program's card"


def await_end(guest: Guest, number: int, ends: tuple[str, ...]) -> str:
    """How and when, from now, the connection of a program that waits for a byte has ended."""
    began = time.monotonic()
    code, said = guest.finish(number, SETTLED_S)
    seconds = time.monotonic() - began
    seen = next((end for end in ends if end in said), None)
    expect(code == 0 and seen is not None, f"the waiting program ended with {code} and saw: {said[-500:]}")
    expect(seconds < NOTICED_S, f"it saw {seen} after {seconds:.1f} s, limits.silence is {SILENCE_S} s")
    return f"{seen} after {seconds:.1f} s, limits.silence is {SILENCE_S} s"


def sockets_host_dies(trio: Trio) -> str:
    """The program's machine is gone at once: the agent ends its connections, and peers see that."""
    trio.host.begin(offloading(own_program("hold", 7002)))
    number = trio.peer.begin(own_program("wait", AGENTS_ADDRESS, 7002))
    trio.peer.await_word(number, "connected", 120)
    trio.host.kill()
    ended = await_end(trio.peer, number, ("ConnectionResetError", "received b''"))
    trio.start_host()
    return f"the peer saw {ended}"


def sockets_agent_dies(trio: Trio) -> str:
    """The agent's machine is gone at once: the connections of programs that sleep end with ECONNRESET."""
    trio.peer.run(f"{own_program('hold', 7001)} >/run/out/hold.log 2>&1 &", 20)
    number = trio.host.begin(offloading(own_program("wait", PEERS_ADDRESS, 7001)))
    trio.host.await_word(number, "connected", 120)
    trio.agent.kill()
    return f"the program saw {await_end(trio.host, number, ('ConnectionResetError',))}"


CHECKS: tuple[Callable[[Trio], str], ...] = (
    sockets_nginx, sockets_redis, sockets_stream, sockets_host_dies, sockets_agent_dies,
)  # fmt: skip
NEEDS = {sockets_nginx: "nginx", sockets_redis: "redis-server"}


def possible(checks: tuple[Callable[[Trio], str], ...]) -> list[Callable[[Trio], str]]:
    """Those whose programs are there. Says which are not."""
    missing = {check: NEEDS[check] for check in checks if check in NEEDS and path_of(NEEDS[check]) is None}
    for check, program in missing.items():
        print(f"hw: {check.__name__} is left out, there is no {program}")
    return [check for check in checks if check not in missing]


def trio_of(
    folder: Path, kernel: Path, machine: Machine = HERE, kernel_of_agent: Path | None = None, stream_mib: int = 64
) -> Trio:
    """Guests below `folder`, none of which has been started. `machine`: the agent's."""
    folder.mkdir(parents=True, exist_ok=True)
    link = joined(folder / "network")
    wire = joined(folder / "network-of-peers")
    cores = 1 if machine is HERE else 2
    return Trio(
        Guest(folder, number=HOST, network=link[HOST], cores=1, kernel=kernel),
        Guest(folder, number=AGENT, network=link[AGENT], second_network=wire[AGENT], cores=cores, machine=machine,
              kernel=kernel_of_agent or kernel),
        secrets.token_hex(32),
        Guest(folder, number=PEER, network=wire[HOST], cores=1, memory_mb=1024, kernel=kernel),
        stream_mib,
    )  # fmt: skip


def check_sockets(folder: Path, only: str) -> list[dict[str, object]]:
    """The results of all checks whose names match."""
    trio = trio_of(folder / "sockets", folder)

    def start() -> None:
        trio.start_agent(starting(AGENT_PROGRAM, SILENCE, *DEVICE))
        trio.start_host()
        trio.start_peer()

    return results_of("sockets_guests", trio, start, possible(tuple(chosen(CHECKS, only))))
