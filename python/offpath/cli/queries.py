"""Commands for queries of pools and tracks: SQL here and as a service, and particles through time."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from ..errors import Invalid
from ..object_file import check_new_file
from .options import OLD_NAMES, AgentOption, ForceFlag, JsonFlag, OutOption, open_session
from .output import os_errors, show_table

app = typer.Typer()


@app.command("sql")
def sql_command(query: Annotated[str, typer.Argument(help="Such as \"SELECT id FROM pool('hash:/p', 'step*') WHERE "
                                                     "x < 1\": pool(NAME) or pool(NAME, ROWS) are tables.")],
                out: OutOption = None, force: ForceFlag = False,
                agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Queries pools and tracks in SQL. DuckDB computes; agents read the columns it needs, and filter their rows.

    Needs the extra 'sql' (DuckDB).
    """
    from ..sql import run_sql

    if out is not None:
        check_new_file(out, force=force, table=True)
    with open_session(agent) as session:
        show_table(run_sql(session, query), out, as_json)


@app.command("flight-sql")
def flight_sql(
    token_file: Annotated[Path, typer.Option(help="File with the token that every call must send; mode 600.")],
    listen: Annotated[str, typer.Option(help="tcp:HOST:PORT, or tls:HOST:PORT.")] = "tcp:127.0.0.1:32010",
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file, for tls.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file, for tls.")] = None,
    memory: Annotated[str, typer.Option(help="Memory that DuckDB may use for a query.")] = "1GiB",
    agent: AgentOption = None,
) -> None:
    """Serves the pools of an agent to clients of Flight SQL (ADBC, JDBC) until Ctrl-C.

    Queries have the syntax of `offpath sql`.

    Needs the extra 'sql' (DuckDB).
    """
    from ..flight_sql import FlightSqlServer, read_token

    kind, _, place = listen.partition(":")
    if kind not in ("tcp", "tls") or (kind == "tls") != (tls_certificate is not None and tls_key is not None):
        raise Invalid(f"--listen {listen}: tcp:HOST:PORT, or tls:HOST:PORT with --tls-certificate and --tls-key")
    with os_errors():
        token = read_token(token_file)
        certificate = (tls_certificate.read_bytes(), tls_key.read_bytes()) if tls_certificate and tls_key else None
    with open_session(agent):  # it is there
        server = FlightSqlServer(f"grpc+{kind}://{place}", token, agent=agent, memory=memory, certificate=certificate)
    host = place.rpartition(":")[0]
    print(f"grpc+{kind}://{host}:{server.port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()


@app.command("track", context_settings=OLD_NAMES)
def track(pool: Annotated[str, typer.Argument(help="Such as sift:/tracks.")],
          identifiers: Annotated[
              list[str] | None, typer.Argument(help="The particles' identifiers, as in a condition: 7, 1.5, b'\\xff'.")
          ] = None,
          where: Annotated[str, typer.Option(help="A condition on rows, such as 'x < 0.5 and step > 100'.")] = "",
          select: Annotated[list[str] | None, typer.Option(help="A column, or NAME=EXPRESSION; any number.")] = None,
          first: Annotated[int | None, typer.Option(help="The first step.")] = None,
          last: Annotated[int | None, typer.Option(help="The last step.")] = None,
          whole: Annotated[bool, typer.Option("--whole", help="All rows of the particles that match.")] = False,
          key: Annotated[str, typer.Option(help="The column with identifiers.")] = "id",
          out: OutOption = None, force: ForceFlag = False,
          timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 60.0,
          agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Particles through time, ordered by identifier and step: some, or the rows for which an expression holds."""
    from ..query_text import parse_expression, parse_query
    from ..tracks import STEP_MAX, STEP_MIN

    asked = parse_query(where, select or [], [])
    if identifiers:
        ours = parse_expression(f'column("{key}") in ({", ".join(identifiers)},)')
        asked["filter"] = ours if asked["filter"] is None else asked["filter"] & ours
    steps = (STEP_MIN if first is None else first, STEP_MAX if last is None else last)
    if out is not None:
        check_new_file(out, force=force, table=True)
    with open_session(agent) as session:
        tables = session.tracks(pool, key).select(
            asked["filter"], *steps, timeout, columns=asked["columns"], whole=whole
        )
        show_table(pa.concat_tables(tables), out, as_json)
