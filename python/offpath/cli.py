"""The command line: ``offpath COMMAND``. ``--json`` prints what a script would read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from . import __version__, sockets
from .agent import find_agent
from .agent_group import group_asked, run_group
from .agent_http import default_sockets, fetch, fetch_status, find_agent_address, find_http
from .errors import AgentError, Error
from .group_view import look, render_group, watch_group
from .object_file import check_new_file, read_object, write_table
from .pool import Frame
from .session import Session, connect
from .sockets_policy import Policy, read_policy
from .status_view import (
    events_tables,
    look_twice,
    members_table,
    pools_table,
    rows_text,
    schemas_table,
    size_text,
    watch,
)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Moves a program's arrays to an agent, where they become Arrow.")  # fmt: skip
pool_app = typer.Typer(no_args_is_help=True,
                       help="Objects on an agent: list, get, put, query, compute, write, drop; snapshots.")  # fmt: skip
app.add_typer(pool_app, name="pool")
exchange_app = typer.Typer(no_args_is_help=True, help="Exchanges of agents.")
app.add_typer(exchange_app, name="exchange")

AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        help="unix:/path, tcp:, tls:, verbs: or doca:HOST:PORT; else OFFPATH_AGENT, else the "
        "agent that listens by default.",
    ),
]
HttpOption = Annotated[
    str | None, typer.Option("--http", help="HOST:PORT or unix:/path of the agent's pages; else OFFPATH_AGENT_HTTP.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PoolArgument = Annotated[str, typer.Argument(help="Such as local:/particles.")]
RowOption = Annotated[str, typer.Option("--row", "--rows", help="Objects of these rows, as a pattern.")]
ColumnOption = Annotated[str, typer.Option("--column", "--columns", help="Objects of these columns, as a pattern.")]
OutOption = Annotated[Path | None, typer.Option(help="Write all of it there: .parquet, .csv, .arrow or .arrows.")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]
ArrowOnlyFlag = Annotated[bool, typer.Option("--arrow-only", help="Leave out objects that are not Arrow.")]

RATES_OVER_S = 0.5
TABLE_ROWS_SHOWN = 40
OBJECT_ROWS_SHOWN = 10


def make_console() -> Console:
    """The terminal, or wide lines where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=240)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def open_session(agent: str | None) -> Session:
    return connect(agent, name="offpath-cli")


def required_agent(given: str | None) -> str:
    """The agent's address, given or found. Raises AgentError that says how to name one."""
    if where := find_agent_address(given):
        return where
    raise AgentError(f"no agent given, and none at {' or '.join(map(str, default_sockets()))}, where agents listen by "
                     "default: start one with `offpath agent`, or name it by --agent or OFFPATH_AGENT")  # fmt: skip


def print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Moves a program's arrays to an agent, where they become Arrow."""


def mount_others() -> None:
    """``run`` and ``bench``, which bring more imports with them: only when they are asked for."""
    asked = sys.argv[1:2]
    if asked in (["bench"], ["--help"], []):
        from .bench import app as bench_app

        app.add_typer(bench_app, name="bench")
    if asked in (["run"], ["--help"], []):
        from .run import run_command

        app.command("run")(run_command)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def agent(context: typer.Context) -> None:
    """Runs an agent; every argument is offpath-agent's own (offpath agent --help). With --group N: N agents, which form
    a group."""
    count, options = group_asked(context.args)
    if count is not None:
        raise typer.Exit(run_group(count, options))
    program = find_agent()
    command = ["offpath agent", *options]  # its usage says what was typed
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
                        str | None, typer.Option(help="The agent's own (tcp.address), for programs that bind to it.")
                    ] = None,
                    listen: Annotated[
                        str | None, typer.Option(help="Ports to offload, such as 80,8000; else all.")
                    ] = None,
                    to: Annotated[
                        str | None, typer.Option("--connect", help="Networks to offload: 10.9.0.0/24,…; else all.")
                    ] = None,
                    fallback: Annotated[
                        bool | None,
                        typer.Option("--fallback/--no-fallback",
                                     help="What no agent serves is the kernel's; else it fails.", show_default=False)
                    ] = None,
                    report: Annotated[
                        bool | None,
                        typer.Option("--report/--no-report", help="At exit: what was left to the kernel, and why.",
                                     show_default=False)
                    ] = None,
                    most: Annotated[
                        int | None,
                        typer.Option("--sockets", min=16, max=65536, help="Offloaded at a time; else 1024.",
                                     show_default=False)
                    ] = None,
                    policy: Annotated[
                        Path | None, typer.Option(help="A file with any of these; options win over it.")
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
    said = read_policy(policy) if policy is not None else Policy()
    where = required_agent(agent or said.agent)
    if not where.startswith("unix:"):
        relay = sockets.relay_to(where)  # ends with this object until the program has taken this one's place
        where = relay.address
    environment = sockets.environment(
        where,
        address=address or said.address,
        listen=listen if listen is not None or said.listen is None else ",".join(map(str, said.listen)),
        connect=to if to is not None or said.connect is None else ",".join(said.connect),
        fallback=bool(said.fallback if fallback is None else fallback),
        report=bool(said.report if report is None else report),
        most=said.sockets if most is None else most,
    )
    with os_errors():
        os.execvpe(command[0], command, environment)


@app.command()
def version(as_json: JsonFlag = False) -> None:
    """The version of the package and its library."""
    if as_json:
        print_json({"version": __version__})
    else:
        print(__version__)


@app.command()
def status(agent: AgentOption = None, http: HttpOption = None, as_json: JsonFlag = False,
           metrics: Annotated[bool, typer.Option(help="Print /metrics as it is.")] = False,
           events: Annotated[bool, typer.Option("--events", help="The last requests that failed, and why, and the "
                                                "last lines of the log.")] = False,
           schemas: Annotated[bool, typer.Option("--schemas", help="The columns of each stream.")] = False,
           ) -> None:  # fmt: skip
    """What the agent is doing: programs, streams, pools, memory; who waits for what."""
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


@app.command()
def top(agent: AgentOption = None, http: HttpOption = None,
        interval: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 1.0,
        details: Annotated[bool, typer.Option("--details",
                                              help="The agent that is asked alone, with all it does.")] = False,
        once: Annotated[bool, typer.Option("--once", help="Two looks, one table, and no more.")] = False,
        ) -> None:  # fmt: skip
    """All agents of the group and the hosts they sample, drawn anew every second."""
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
                 port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any.")] = 0,
                 show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
                 ) -> None:  # fmt: skip
    """A page on this machine that draws the newest step of a pool, and all agents. Until Ctrl-C."""
    import webbrowser

    from .view import Pictures, ViewServer

    with open_session(agent) as session, ViewServer(Pictures(session, find_http(http, agent)), port) as server:
        print(server.url, flush=True)
        if show:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@exchange_app.command("topology")
def exchange_topology(
    shape: Annotated[str, typer.Argument(help="allgather, neighbourhoods(SIZE) or hybrid(SIZE, DEPTH).")] = "",
    members: Annotated[int, typer.Argument(min=1, help="How many.")] = 8,
    file: Annotated[Path | None, typer.Option(help="A tree's text instead.")] = None,
) -> None:
    """What a topology does: who leads whom, and how many parcels a round takes. Needs no agent."""
    if (shape == "") == (file is None):
        raise typer.BadParameter("either a shape, such as 'neighbourhoods(4)', or --file")
    program = str(Path(find_agent()).with_name("offpath-topology"))
    arguments = [shape, str(members)] if file is None else ["--file", str(file)]
    raise typer.Exit(subprocess.run([program, *arguments], check=False).returncode)


@app.command()
def doctor(
    agent: AgentOption = None,
    machine: Annotated[bool, typer.Option("--machine", help="This machine alone: no agent is asked.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Tells what this machine's programs get from an agent, proves it, and says what to change.

    Exits with 1 if something should be changed that is not optional.
    """
    from .doctor import diagnose, diagnose_machine

    address = find_agent_address(agent)
    if machine:
        diagnosis = diagnose_machine()
    elif address:
        diagnosis = diagnose(address)
    else:
        from .agent import Agent

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


@pool_app.command("ls")
def pool_list(pool: Annotated[str, typer.Argument(help="Such as local:/particles; none: all pools.")] = "",
              row: RowOption = "*", column: ColumnOption = "*",
              agent: AgentOption = None, http: HttpOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """The objects of a pool in the order of storing, or the pools that the agent has."""
    if not pool:
        pools = fetch_status(find_http(http, agent))["pools"]
        if as_json:
            print_json(pools)
        else:
            make_console().print(pools_table(pools))
        return
    with open_session(agent) as session:
        entries = session.pool(pool).list(row, column)
    if as_json:
        print_json([entry._asdict() for entry in entries])
        return
    table = Table(header_style="bold")
    for name in ("row", "column", "rows", "bytes"):
        table.add_column(name, justify="left" if name in ("row", "column") else "right")
    for entry in entries:
        table.add_row(Text(entry.row), Text(entry.column), rows_text(entry.rows), size_text(entry.nbytes))
    make_console().print(table)


@pool_app.command("get")
def pool_get(pool: PoolArgument, row: str, column: Annotated[str, typer.Argument()] = "",
             out: OutOption = None, force: ForceFlag = False,
             wait: Annotated[float, typer.Option(help="Seconds to wait for the object.")] = 0.0,
             agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """One object: its first rows, or all of it in a file; an object of plain bytes as they are."""
    with open_session(agent) as session:
        if out is not None:
            check_new_file(out, force=force, table=False)
        frame = session.pool(pool).get_frame(row, column, wait)
        show_frame(frame, {"row": row, "column": column}, out, as_json, force=force)


def show_frame(frame: Frame, told: dict[str, Any], out: Path | None, as_json: bool, *, force: bool) -> None:
    """What an object is, its first rows, or all of it in a file whose name says its form."""
    told |= {"nbytes": frame.nbytes, "rows": frame.rows, "arrow": frame.is_arrow, "mapped": frame.mapped}
    if frame.is_arrow:
        told["schema"] = {field.name: str(field.type) for field in frame.reader().schema}
    if out is not None:
        check_new_file(out, force=force, table=frame.is_arrow)
        with os_errors():
            if frame.is_arrow:
                write_table(frame.table(), out)
            else:
                out.write_bytes(frame.buffer())
    if as_json:
        print_json(told)
    elif out is not None:
        print(f"{f'{frame.rows} rows' if frame.is_arrow else size_text(frame.nbytes)} written to {out}")
    elif frame.is_arrow:
        print_rows(frame.table(), OBJECT_ROWS_SHOWN)
    else:
        print(f"{size_text(frame.nbytes)} that are no Arrow data; --out FILE takes them")


@pool_app.command("query")
def pool_query(pool: PoolArgument,
               where: Annotated[str, typer.Option(help="Which rows, such as '0 <= x < 1 and type == 2'.")] = "",
               select: Annotated[list[str] | None, typer.Option(help="A column, or NAME=EXPRESSION; any number of "
                                                                "times. All columns are the default.")] = None,
               aggregate: Annotated[list[str] | None, typer.Option(help="NAME=sum|min|max|mean|count(EXPRESSION), or "
                                                                   "NAME=count; any number of times.")] = None,
               row: RowOption = "*", column: ColumnOption = "*",
               out: OutOption = None, force: ForceFlag = False,
               wait: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
               partial: Annotated[bool, typer.Option("--partial", help="Without rows that lost members had.")] = False,
               arrow_only: ArrowOnlyFlag = False,
               agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Asks the agent about the rows of a pool's objects: some of them, or figures over them."""
    from .query_text import parse_query

    asked = parse_query(where, select or [], aggregate or [])
    if out is not None:
        check_new_file(out, force=force, table=True)
    with open_session(agent) as session:
        table = session.pool(pool).query(**asked, rows=row, columns_glob=column, timeout=wait, partial=partial,
                                         arrow_only=arrow_only)  # fmt: skip
        show_table(table, out, as_json)


@app.command("sql")
def sql_command(query: Annotated[str, typer.Argument(help="Such as \"SELECT id FROM pool('hash:/p', 'step*') WHERE "
                                                     "x < 1\": pool(NAME) or pool(NAME, ROWS) are tables.")],
                out: OutOption = None, force: ForceFlag = False,
                agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Asks pools and tracks in SQL. DuckDB computes it; agents read the columns it needs, and filter their rows.

    Needs the extra 'sql' (DuckDB).
    """
    from .sql import run_sql

    if out is not None:
        check_new_file(out, force=force, table=True)
    with open_session(agent) as session:
        show_table(run_sql(session, query), out, as_json)


def show_table(table: pa.Table, out: Path | None, as_json: bool) -> None:
    """Its first rows, all of it in a file, or all of it as JSON."""
    if out is not None:
        with os_errors():
            write_table(table, out)
    if as_json:
        print_json(table.to_pylist() if out is None else {"rows": table.num_rows, "file": str(out)})
    elif out is not None:
        print(f"{table.num_rows} rows written to {out}")
    else:
        print_rows(table, TABLE_ROWS_SHOWN)


def print_rows(table: pa.Table, most: int) -> None:
    """The first rows, and how many more there are."""
    shown = Table(header_style="bold")
    for field in table.schema:
        shown.add_column(field.name, justify="left" if field.type in (pa.string(), pa.binary()) else "right")
    for row in table.slice(0, most).to_pylist():
        shown.add_row(*(Text(str(value)) for value in row.values()))
    make_console().print(shown)
    if table.num_rows > most:
        print(f"and {table.num_rows - most} more rows; --out FILE takes all of them")


@app.command("track")
def track(pool: Annotated[str, typer.Argument(help="Such as sift:/tracks.")],
          identifiers: Annotated[list[int] | None, typer.Argument(help="Of these particles.")] = None,
          where: Annotated[str, typer.Option(help="Rows for which this holds, such as 'x < 0.5 and step > 100'.")] = "",
          select: Annotated[list[str] | None, typer.Option(help="A column, or NAME=EXPRESSION; any number.")] = None,
          first: Annotated[int | None, typer.Option(help="The first step.")] = None,
          last: Annotated[int | None, typer.Option(help="The last step.")] = None,
          whole: Annotated[bool, typer.Option("--whole", help="All rows of particles for which it holds.")] = False,
          key: Annotated[str, typer.Option(help="The column with identifiers.")] = "id",
          out: OutOption = None, force: ForceFlag = False,
          wait: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
          agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Particles through time, ordered by identifier and step: some, or the rows for which an expression holds."""
    from .query_text import parse_query
    from .tracks import STEP_MAX, STEP_MIN

    asked = parse_query(where, select or [], [])
    if identifiers:
        ours = pc.field(key).isin(identifiers)
        asked["filter"] = ours if asked["filter"] is None else asked["filter"] & ours
    steps = (STEP_MIN if first is None else first, STEP_MAX if last is None else last)
    if out is not None:
        check_new_file(out, force=force, table=True)
    with open_session(agent) as session:
        tables = session.tracks(pool, key).select(asked["filter"], *steps, wait, columns=asked["columns"], whole=whole)
        show_table(pa.concat_tables(tables), out, as_json)


@pool_app.command("compute")
def pool_compute(pool: PoolArgument, function: Annotated[str, typer.Argument(help="plugin.function")], row: str,
                 column: Annotated[str, typer.Argument(help="Empty: all of the row.")] = "",
                 arguments: Annotated[str, typer.Option(help="Text given to the function.")] = "",
                 arguments_file: Annotated[Path | None, typer.Option(help="Or the bytes of a file.")] = None,
                 result_row: Annotated[str | None, typer.Option(help="Put outputs under this row.")] = None,
                 result_column: Annotated[str | None, typer.Option(help="Put outputs under this column.")] = None,
                 out: OutOption = None, force: ForceFlag = False,
                 wait: Annotated[float, typer.Option(help="Seconds; 0: the plug-in's own.")] = 60.0,
                 agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Calls a function of a plug-in where the object lies."""
    with os_errors():
        given = arguments_file.read_bytes() if arguments_file is not None else arguments.encode()
    if out is not None:
        check_new_file(out, force=force, table=False)
    stores = result_row is not None or result_column is not None
    result = (row if result_row is None else result_row, result_column or "") if stores else None
    with open_session(agent) as session:
        frame = session.pool(pool).compute(function, row, column, given, result, wait)
        if frame is not None:
            show_frame(frame, {"function": function, "row": row, "column": column}, out, as_json, force=force)
        elif as_json:
            print_json({"function": function, "row": row, "column": column, "stored": stores})
        else:
            print("its outputs are in the pool" if stores else "no output")


@pool_app.command("create")
def pool_create(pool: PoolArgument, agent: AgentOption = None, http: HttpOption = None) -> None:
    """Makes a pool on all members, with the options in its name, such as 'hash:/particles?replicas=2&budget=4GiB'."""
    with open_session(agent) as session:
        session.pool(pool).create()
    print(f"{pool} is there")
    with contextlib.suppress(Error):  # an agent without status pages
        status = fetch_status(find_http(http, agent))
        here = next((each for each in status["pools"] if each["name"] == pool.split("?")[0]), None)
        if here is not None and here["members"] == 0:
            names = ", ".join(each["name"] for each in status["members"]) or status["name"]
            print(f"offpath: warning: no member's name matches {here['options']}; the members are {names}. Puts fail "
                  "until a member comes whose name does.", file=sys.stderr)  # fmt: skip


@pool_app.command("put")
def pool_put(pool: PoolArgument, row: str, file: Annotated[Path, typer.Argument(help="What to store; an Arrow, "
             "Parquet or CSV file (.arrow, .arrows, .feather, .parquet, .csv) becomes a table.")],
             column: Annotated[str, typer.Option(help="The object's column.")] = "",
             as_bytes: Annotated[bool, typer.Option("--bytes", help="Store the file's bytes, whatever it is.")] = False,
             agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Stores a file as one object."""
    with os_errors():
        data, size = read_object(file, as_bytes), file.stat().st_size
    with open_session(agent) as session:
        session.pool(pool).put(data, row, column)
    if as_json:
        print_json({"row": row, "column": column, "file_bytes": size})
    else:
        print(f"({row}, {column}): {size_text(size)}")


@pool_app.command("write")
def pool_write(pool: PoolArgument, path: Annotated[Path, typer.Argument(help="A file, which is replaced; or a pipe.")],
               arrow_only: ArrowOnlyFlag = False, agent: AgentOption = None,
               as_json: JsonFlag = False) -> None:  # fmt: skip
    """All objects, in the order of storing, as one Arrow IPC stream file."""
    with open_session(agent) as session, os_errors():
        written = session.pool(pool).write(path, arrow_only=arrow_only)
    if as_json:
        print_json({"path": str(path), "bytes": written})
    else:
        print(f"{path}: {size_text(written)}")


def progress_bar(console: Console, text: str) -> tuple[Progress, Callable[[int, int], None]]:
    """A bar on standard error, so that what is printed stays what it is."""
    columns = (TextColumn(text), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(text, total=None)
    return bar, lambda done, total: bar.update(task, completed=done, total=total)


@pool_app.command("snapshot")
def pool_snapshot(pool: PoolArgument, directory: Annotated[Path, typer.Argument(help="That is not there yet.")],
                  agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """All objects, of all members, into a directory of Arrow files and a manifest."""
    bar, progress = progress_bar(Console(stderr=True), "writing")
    with open_session(agent) as session, bar, os_errors():
        manifest = session.pool(pool).snapshot(directory, progress)
    objects, size = len(manifest["objects"]), sum(each["bytes"] for each in manifest["objects"])
    if as_json:
        print_json({"directory": str(directory), "objects": objects, "bytes": size})
    else:
        print(f"{directory}: {objects} objects, {size_text(size)}")


@pool_app.command("restore")
def pool_restore(pool: PoolArgument, directory: Annotated[Path, typer.Argument(help="That a snapshot made.")],
                 agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Puts the objects of a snapshot into a pool."""
    bar, progress = progress_bar(Console(stderr=True), "putting")
    with open_session(agent) as session, bar, os_errors():
        objects = session.pool(pool).restore(directory, progress)
    if as_json:
        print_json({"directory": str(directory), "objects": objects})
    else:
        print(f"{pool}: {objects} objects")


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """A full disk, a file that is missing or no table: one line, as the agent's errors."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, Error):
            raise
        raise Error(str(error)) from None


@pool_app.command("drop")
def pool_drop(pool: PoolArgument, row: RowOption = "*", column: ColumnOption = "*",
              agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Removes matching objects."""
    with open_session(agent) as session:
        dropped = session.pool(pool).drop(row, column)
    if as_json:
        print_json({"dropped": dropped})
    else:
        print(f"{dropped} objects dropped")


def main() -> None:
    """The program ``offpath``. Errors are one line, and status 1."""
    mount_others()
    try:
        app(prog_name="offpath")
    except Error as error:
        print(f"offpath: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
