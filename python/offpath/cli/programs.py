"""Commands that run programs: an agent, its slow path, and unmodified programs over its TCP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from .. import sockets
from ..agent import find_agent
from ..agent_group import group_asked, run_group
from ..agent_http import default_sockets, fetch_status, find_agent_address, find_http
from ..errors import AgentError, Error
from ..sockets_policy import Policy, check_option, is_ring, read_policy
from .options import AgentOption, HttpOption, JsonFlag
from .output import make_console, os_errors, print_json

app = typer.Typer()


def required_agent(given: str | None) -> str:
    """The agent's address, given or found. Raises AgentError that says how to name one."""
    if where := find_agent_address(given):
        return where
    raise AgentError(f"no agent given, and none at {' or '.join(map(str, default_sockets()))}, where agents listen by "
                     "default: start one with `offpath agent`, or name it by --agent or OFFPATH_AGENT")  # fmt: skip


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def agent(context: typer.Context) -> None:
    """Runs an agent; every argument is offpath-agent's own (offpath agent --help). With --group N: N agents, which form
    a group."""
    count, options = group_asked(context.args)
    if count is not None:
        raise typer.Exit(run_group(count, options))
    program = find_agent()
    command = ["offpath agent", *options]  # shown in its usage
    if {"-h", "--help"} & set(options):
        status = subprocess.run(command, executable=program, check=False).returncode
        print("  --group N                   N agents of this machine that form a group, for trials; {index} in their "
              "options is each one's number")  # fmt: skip
        raise typer.Exit(status)
    os.execv(program, command)


@app.command("slow-path")
def slow_path(agent: AgentOption = None) -> None:
    """Does handshakes, ARP, refusals and TIME-WAIT for an agent's TCP on this host (tcp.slow_path = "host"), until it
    is stopped."""
    where = required_agent(agent)
    program = Path(find_agent()).with_name("offpath-slow-path")
    with os_errors():
        os.execv(program, [str(program), "--agent", where])


@app.command("sockets")
def sockets_command(command: Annotated[
                        list[str], typer.Argument(help="-- PROGRAM ARGUMENTS…; or ss", show_default=False)
                    ],
                    agent: AgentOption = None,
                    address: Annotated[
                        str | None, typer.Option(help="The agent's addresses, which programs may bind: 10.9.0.2,…")
                    ] = None,
                    listen: Annotated[
                        str | None, typer.Option(help="Ports to offload, such as 80,8000; else all.")
                    ] = None,
                    to: Annotated[
                        str | None, typer.Option("--connect", help="Networks to connect to: 10.9.0.0/24,…; else all.")
                    ] = None,
                    fallback: Annotated[
                        bool | None,
                        typer.Option("--fallback/--no-fallback",
                                     help="Leave sockets that no agent serves to the kernel, or fail.",
                                     show_default=False)
                    ] = None,
                    report: Annotated[
                        bool | None,
                        typer.Option("--report/--no-report", show_default=False,
                                     help="Print at exit which sockets were left to the kernel, and why.")
                    ] = None,
                    most: Annotated[
                        int | None,
                        typer.Option("--sockets", min=16, max=1 << 20, help="Most sockets at a time; else 1024.",
                                     show_default=False)
                    ] = None,
                    ring: Annotated[
                        int | None,
                        typer.Option(min=4096, max=4 << 20, show_default=False,
                                     help="Bytes of a socket's first ring, a power of two; else 16384.")
                    ] = None,
                    supervise: Annotated[
                        bool | None,
                        typer.Option("--supervise/--preload", show_default=False,
                                     help="For Go, static and other programs that a preloaded library cannot reach.")
                    ] = None,
                    policy: Annotated[
                        Path | None, typer.Option(help="A file with any of these; options override it.")
                    ] = None,
                    http: HttpOption = None,
                    as_json: JsonFlag = False,
                    ) -> None:  # fmt: skip
    """Runs an unmodified program whose TCP connections go over the agent (docs/guides/sockets.md);
    `offpath sockets ss` lists the connections that the agent has."""
    if command == ["ss"] and "--" not in sys.argv:
        rows = sockets.connections_in(fetch_status(find_http(http, agent)))
        if as_json:
            print_json(rows)
        else:
            make_console().print(sockets.table_of(rows))
        return
    if ring is not None and not is_ring(ring):
        raise Error(f"--ring {ring}: expected a power of two from 4096 to 4194304")
    for key, given in (("address", address), ("connect", to)):
        if given is not None:
            check_option(key, given)
    said = read_policy(policy) if policy is not None else Policy()
    own = ",".join(said.address) if isinstance(said.address, list) else said.address
    where = required_agent(agent or said.agent)
    if not where.startswith("unix:"):
        relay = sockets.relay_to(where)  # ends with this object until the program has taken this one's place
        where = relay.address
    supervised = bool(said.supervise if supervise is None else supervise)
    if supervised:
        command = [str(sockets.find_supervisor()), "--", *command]
    environment = sockets.environment(
        where,
        address=address or own,
        listen=listen if listen is not None or said.listen is None else ",".join(map(str, said.listen)),
        connect=to if to is not None or said.connect is None else ",".join(said.connect),
        fallback=bool(said.fallback if fallback is None else fallback),
        report=bool(said.report if report is None else report),
        most=said.sockets if most is None else most,
        ring=said.ring if ring is None else ring,
        preload=not supervised,
    )
    with os_errors():
        os.execvpe(command[0], command, environment)
