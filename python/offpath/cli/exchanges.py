"""``offpath exchange``: the shapes of topologies, and records in files."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from ..agent import find_agent
from .options import AgentOption, open_session
from .output import os_errors

app = typer.Typer(no_args_is_help=True, help="Exchanges of agents.")


@app.command("topology")
def exchange_topology(
    shape: Annotated[
        str, typer.Argument(help="allgather, neighbourhoods(SIZE), grouped_allgather(SIZE) or hybrid(SIZE, DEPTH).")
    ] = "",
    members: Annotated[int, typer.Argument(min=1, help="The number of members.")] = 8,
    file: Annotated[Path | None, typer.Option(help="A file with a tree, instead of a shape.")] = None,
) -> None:
    """Shows a topology: which members lead which, and how many parcels a round takes. Needs no agent."""
    if (shape == "") == (file is None):
        raise typer.BadParameter("either a shape, such as 'neighbourhoods(4)', or --file")
    program = str(Path(find_agent()).with_name("offpath-topology"))
    arguments = [shape, str(members)] if file is None else ["--file", str(file)]
    raise typer.Exit(subprocess.run([program, *arguments], check=False).returncode)


@app.command("store")
def exchange_store(
    name: Annotated[str, typer.Argument(help="The name of the exchange.")],
    directory: Annotated[Path, typer.Argument(help="The directory, which is made if it does not exist.")],
    minutes: Annotated[float, typer.Option(min=0.01, help="The period whose records go to one file.")] = 10.0,
    days: Annotated[float | None, typer.Option(min=0, help="How long files are kept; without it: forever.")] = None,
    mib: Annotated[int | None, typer.Option(min=1, help="Bound of all files together; the oldest are removed.")] = None,
    agent: AgentOption = None,
) -> None:
    """Stores the records of all members of an exchange as Parquet files, until Ctrl-C."""
    from datetime import datetime, timedelta, timezone

    from ..exchange_store import ExchangeStore

    keep = timedelta(days=days) if days is not None else None
    with os_errors(), open_session(agent) as session, session.exchange(name) as exchange:
        store = ExchangeStore(
            exchange, directory, period=timedelta(minutes=minutes), keep=keep, bytes_max=mib << 20 if mib else None
        )
        print(f"storing exchange {name} of {len(exchange.members)} members in {directory}", flush=True)
        with store, contextlib.suppress(KeyboardInterrupt):
            while True:
                store.add(exchange.view(), datetime.now(timezone.utc))
