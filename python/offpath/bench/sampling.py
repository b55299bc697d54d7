"""``offpath bench exchange``: the cost of sampling a host, with the paper's values.

The values are those of the SmartNIC data exchange framework's sample application: processor time in each state,
running and blocked tasks, context switches, and InfiniBand's received and sent data, or the network's where there is no
InfiniBand.
"""

from __future__ import annotations

import re
import select
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from . import figures, sampling_peers
from .agent_process import quota_words, write_key
from .process_cost import on_core
from .programs import ProgramError, default_cores, empty_report, find_program, run_program
from .report import Report


def paper_sources() -> str:
    """TOML of the paper's values on this machine."""
    device = "infiniband" if any(Path("/sys/class/infiniband").glob("*")) else "network"
    return f'[[source]]\nset = "cpu"\n[[source]]\nset = "{device}"\n'


@contextmanager
def running_sampler(folder: Path, core: int) -> Iterator[list[str]]:
    """A sampler on ``core``; the arguments for the benchmark programs."""
    key = write_key(folder)
    with sampler_with_key(folder, key, core) as (address, pid):
        yield ["--sampler", address, "--key-file", str(key), "--pid", str(pid)]


@contextmanager
def sampler_with_key(folder: Path, key: Path, core: int) -> Iterator[tuple[str, int]]:
    """The address and process of a sampler on ``core``."""
    configuration = folder / f"sampler{core}.toml"
    configuration.write_text(f'[sampler]\nlisten = "127.0.0.1:0"\nkey_file = "{key}"\n{paper_sources()}')
    process = subprocess.Popen(
        [find_program("offpath-sampler"), configuration], stderr=subprocess.PIPE, text=True, preexec_fn=on_core(core)
    )
    try:
        readable, _, _ = select.select([process.stderr], [], [], 10)
        line = process.stderr.readline() if readable else ""
        found = re.search(r"port (\d+)$", line)
        if not found:
            raise ProgramError(f"offpath-sampler does not start: {line.strip()}")
        yield f"127.0.0.1:{found[1]}", process.pid
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


PARTS = ("samples", "peers", "overhead", "region")


def run(out: Path, quick: bool, console: Console, parts: Sequence[str] = PARTS,
        peer_program: str = "") -> Report:  # fmt: skip
    """Measures sampling and draws a computation's loss to it into ``out``."""
    report = empty_report("exchange")
    core, other_core = default_cores()
    # As in the paper the agent has the first core, the host's work the second.
    agent_core, host_core = core, other_core
    common = ["--host-core", str(host_core), "--agent-core", str(agent_core), *(["--quick"] if quick else [])]

    def programs(part: str, *others: str, launcher: Sequence[str] = ()) -> None:
        report.absorb(run_program("bench_exchange_sample", [*common, *others, "--part", part], launcher=launcher))

    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        folder = Path(directory)
        with running_sampler(folder, host_core) as sampler:
            if "samples" in parts:
                with console.status("samples over UDP"):
                    programs("udp", *sampler, launcher=quota_words())  # the asking side is an agent's
            if "peers" in parts:
                with console.status("beside node_exporter and ldmsd"):
                    sampling_peers.measure(report, [*common, *sampler], host_core, agent_core, quick, peer_program)
            if "overhead" in parts:
                with console.status("a computation and the sampler on one core"):
                    programs("overhead", *sampler, "--place", "one core for both")
    if "overhead" in parts:
        with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
            with running_sampler(Path(directory), agent_core) as sampler, console.status("the sampler on another core"):
                programs("overhead", *sampler, "--place", "a core for the sampler")
    if "region" in parts:
        with console.status("samples read one-sided"):
            programs("region")
    report.conclude(console, quick=quick)
    if (path := figures.draw_overhead(report, out)) is not None:
        console.print(f"drawn: {path}")
    return report
