"""Commands that show an agent's activity, and how a program reaches it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..agent_http import fetch, fetch_status, find_agent_address, find_http
from ..directory import Change
from ..group_view import look, render_group, watch_group
from ..sizes import size_text
from ..status_view import events_tables, look_twice, members_table, schemas_table, table_of, watch
from .options import OLD_NAMES, AgentOption, HttpOption, JsonFlag, open_session
from .output import make_console, print_json

app = typer.Typer()
RATES_OVER_S = 0.5


@app.command()
def status(agent: AgentOption = None, http: HttpOption = None, as_json: JsonFlag = False,
           metrics: Annotated[bool, typer.Option(help="Print /metrics unchanged.")] = False,
           events: Annotated[bool, typer.Option("--events", help="The last requests that failed, and why, and the "
                                                "last lines of the log.")] = False,
           schemas: Annotated[bool, typer.Option("--schemas", help="The columns of each stream.")] = False,
           ) -> None:  # fmt: skip
    """Shows the agent's activity: programs, streams, pools, memory, and waiting requests with their reasons."""
    where = find_http(http, agent)
    if metrics:
        print(fetch(where, "/metrics"), end="")
    elif schemas:
        columns = json.loads(fetch(where, "/schemas.json"))
        if as_json:
            print_json(columns)
        else:
            make_console().print(schemas_table(columns))
    elif events and not as_json:
        make_console().print(events_tables(fetch_status(where)))
    elif as_json:
        print_json(fetch_status(where))
    else:
        make_console().print(look_twice(where, RATES_OVER_S))


@app.command()
def members(agent: AgentOption = None, http: HttpOption = None, as_json: JsonFlag = False) -> None:
    """The agents of the group, as this one knows them."""
    known = fetch_status(find_http(http, agent))["members"]
    if as_json:
        print_json(known)
    else:
        make_console().print(members_table(known))


@app.command("ls", context_settings=OLD_NAMES)
def list_directory(path: Annotated[str, typer.Argument(help="Such as /pools or /racks/r1; without it: all.")] = "/",
                   watched: Annotated[bool, typer.Option("--watch", help="Print the present resources, and then each "
                                                         "change, until Ctrl-C.")] = False,
                   timeout: Annotated[float | None, typer.Option(min=0, help="Stop watching after this many "
                                                                 "seconds.")] = None,
                   agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Lists the resources of the group's agents, by path: members, racks, roles, exchanges, functions, pools and sift
    pools."""
    with open_session(agent) as session:
        if watched:
            with contextlib.suppress(KeyboardInterrupt):
                for change in session.watch_directory(path, timeout):
                    print(change_text(change, as_json), flush=True)
            return
        found = session.directory(path)
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        rows = [[each.path, ", ".join(each.members), each.about] for each in found]
        make_console().print(table_of("", ["path", "members", "about"], rows, ["members"]))


def change_text(change: Change, as_json: bool) -> str:
    """A line."""
    if as_json:
        return json.dumps({"what": change.what, **change.resource._asdict()})
    mark = {"added": "+", "removed": "-", "changed": "~"}[change.what]
    return f"{mark} {change.resource.path}  {', '.join(change.resource.members)}  {change.resource.about}".rstrip()


@app.command("wait")
def wait_for_members(count: Annotated[int, typer.Option("--members", min=1, help="How many members must be alive.")],
                     role: Annotated[str | None, typer.Option(help="Count those of this role: host or dpu.")] = None,
                     rack: Annotated[str | None, typer.Option(help="Count those in this rack.")] = None,
                     timeout: Annotated[float | None, typer.Option(min=0, help="Seconds; then it fails. Without it: "
                                                                   "forever.")] = None,
                     agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Waits until at least this many members are alive, and prints their names."""
    with open_session(agent) as session:
        names = session.wait_members(count, role=role, rack=rack, timeout=timeout)
    if as_json:
        print_json(names)
    else:
        print(*names, sep="\n")


@app.command()
def top(agent: AgentOption = None, http: HttpOption = None,
        interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
        details: Annotated[bool, typer.Option("--details",
                                              help="Show only the agent that is asked, in full.")] = False,
        once: Annotated[bool, typer.Option("--once", help="Print one table and exit.")] = False,
        ) -> None:  # fmt: skip
    """Shows all agents of the group and the hosts they sample, and updates every second."""
    where = find_http(http, agent)
    try:
        if details and once:
            make_console().print(look_twice(where, interval))
        elif details:
            watch(where, interval, Console())
        elif once:
            before = look(where)
            time.sleep(interval)
            make_console().print(render_group(look(where), before))
        else:
            watch_group(where, interval, Console())
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command("view")
def view_command(agent: AgentOption = None, http: HttpOption = None,
                 port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0: any.")] = 0,
                 show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
                 ) -> None:  # fmt: skip
    """Serves a page that draws the newest step of a pool, and all agents, until Ctrl-C."""
    import webbrowser

    from ..view import Pictures, ViewServer

    with open_session(agent) as session, ViewServer(Pictures(session, find_http(http, agent)), port) as server:
        print(server.url, flush=True)
        if show:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@app.command()
def doctor(
    agent: AgentOption = None,
    machine: Annotated[bool, typer.Option("--machine", help="Check only this machine; no agent is asked.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Shows how this machine's programs reach an agent, proves it, and recommends changes.

    Exits with 1 if something should be changed that is not optional.
    """
    from ..doctor import diagnose, diagnose_machine

    address = find_agent_address(agent)
    if machine:
        diagnosis = diagnose_machine()
    elif address:
        diagnosis = diagnose(address)
    else:
        from ..agent import Agent

        with Agent.start() as own:
            diagnosis = diagnose(own.address)
            diagnosis.agent = "one started for this"
    if as_json:
        print_json(diagnosis.as_dict())
    else:
        table = Table(title=f"agent: {diagnosis.agent}", title_justify="left", header_style="bold")
        for column in ("", "what", "found", "what to change"):
            table.add_column(column)
        for finding in diagnosis.findings:
            mark = "[green]ok[/green]" if finding.good else "[yellow]![/yellow]"
            table.add_row(mark, finding.name, str(finding.value), finding.advice)
        make_console().print(table)
    if any(not finding.good and not finding.advice.startswith("optional") for finding in diagnosis.findings):
        raise typer.Exit(1)


@app.command()
def info(agent: AgentOption = None, as_json: JsonFlag = False) -> None:
    """The link a program on this machine gets, and the agent behind it."""
    with open_session(agent) as session:
        values = dataclasses.asdict(session.info)
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        print(f"{name:20} {size_text(value) if 'bytes' in name else value}")
