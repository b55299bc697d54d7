"""``offpath pool``: objects of pools, one by one and all of them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..agent_http import fetch_status, find_http, without_members
from ..errors import Error, NoMembersWarning
from ..object_file import check_new_file, read_object
from ..sizes import size_text
from ..status_view import pools_table, rows_text
from .options import (
    OLD_NAMES,
    AgentOption,
    ArrowOnlyFlag,
    ColumnOption,
    ForceFlag,
    HttpOption,
    JsonFlag,
    OutOption,
    PoolArgument,
    RowOption,
    open_session,
)
from .output import make_console, os_errors, print_json, progress_bar, show_frame, show_table

app = typer.Typer(no_args_is_help=True,
                  help="Objects on an agent: list, get, put, query, compute, write, drop; snapshots.")  # fmt: skip


@app.command("ls")
def pool_list(pool: Annotated[str, typer.Argument(help="Such as local:/particles; without it: all pools.")] = "",
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


@app.command("get", context_settings=OLD_NAMES)
def pool_get(pool: PoolArgument, row: str, column: Annotated[str, typer.Argument()] = "",
             out: OutOption = None, force: ForceFlag = False,
             timeout: Annotated[float, typer.Option(help="Seconds to wait for the object.")] = 0.0,
             agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """One object: its first rows, or all of it in a file; an object of plain bytes as they are."""
    with open_session(agent) as session:
        if out is not None:
            check_new_file(out, force=force, table=False)
        frame = session.pool(pool).get_frame(row, column, timeout)
        show_frame(frame, {"row": row, "column": column}, out, as_json, force=force)


@app.command("query", context_settings=OLD_NAMES)
def pool_query(pool: PoolArgument,
               where: Annotated[str, typer.Option(help="A condition, such as '0 <= x < 1 and type == 2'.")] = "",
               select: Annotated[list[str] | None, typer.Option(help="A column, or NAME=EXPRESSION; any number of "
                                                                "times. All columns are the default.")] = None,
               aggregate: Annotated[list[str] | None, typer.Option(help="NAME=sum|min|max|mean|count(EXPRESSION), or "
                                                                   "NAME=count; any number of times.")] = None,
               row: RowOption = "*", column: ColumnOption = "*",
               out: OutOption = None, force: ForceFlag = False,
               timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 60.0,
               partial: Annotated[bool, typer.Option("--partial", help="Leave out lost members' rows.")] = False,
               arrow_only: ArrowOnlyFlag = False,
               agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Queries the rows of a pool's objects: returns matching rows, or aggregates over them."""
    from ..query_text import parse_query

    asked = parse_query(where, select or [], aggregate or [])
    if out is not None:
        check_new_file(out, force=force, table=True)
    with open_session(agent) as session:
        table = session.pool(pool).query(**asked, rows=row, columns_glob=column, timeout=timeout, partial=partial,
                                         arrow_only=arrow_only)  # fmt: skip
        show_table(table, out, as_json)


@app.command("compute", context_settings=OLD_NAMES)
def pool_compute(pool: PoolArgument, function: Annotated[str, typer.Argument(help="plugin/function")], row: str,
                 column: Annotated[str, typer.Argument(help="Empty: all objects of the row.")] = "",
                 arguments: Annotated[str, typer.Option(help="Text given to the function.")] = "",
                 arguments_file: Annotated[Path | None, typer.Option(help="A file with bytes to give instead.")] = None,
                 result_row: Annotated[str | None, typer.Option(help="Put outputs under this row.")] = None,
                 result_column: Annotated[str | None, typer.Option(help="Put outputs under this column.")] = None,
                 out: OutOption = None, force: ForceFlag = False,
                 timeout: Annotated[float, typer.Option(help="Seconds to wait; 0: the plug-in's own limit.")] = 60.0,
                 agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Calls a function of a plug-in where the object lies."""
    with os_errors():
        given = arguments_file.read_bytes() if arguments_file is not None else arguments.encode()
    if out is not None:
        check_new_file(out, force=force, table=False)
    stores = result_row is not None or result_column is not None
    result = (row if result_row is None else result_row, result_column or "") if stores else None
    with open_session(agent) as session:
        frame = session.pool(pool).compute(function, row, column, given, result, timeout)
        if frame is not None:
            show_frame(frame, {"function": function, "row": row, "column": column}, out, as_json, force=force)
        elif as_json:
            print_json({"function": function, "row": row, "column": column, "stored": stores})
        else:
            print("its outputs are in the pool" if stores else "no output")


@app.command("create")
def pool_create(pool: PoolArgument, agent: AgentOption = None, http: HttpOption = None) -> None:
    """Makes a pool on all members, with the options in its name, such as 'hash:/particles?replicas=2&budget=4GiB'."""
    with open_session(agent) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore", NoMembersWarning)  # said below, of the pages that --http names
        session.pool(pool).create()
    print(f"{pool} is there")
    with contextlib.suppress(Error):  # an agent without status pages
        if wrong := without_members(find_http(http, agent), pool):
            print(f"offpath: warning: {wrong}", file=sys.stderr)


@app.command("put")
def pool_put(pool: PoolArgument, row: str, file: Annotated[Path, typer.Argument(help="What to store; an Arrow, "
             "Parquet or CSV file (.arrow, .arrows, .feather, .parquet, .csv) becomes a table.")],
             column: Annotated[str, typer.Option(help="The object's column.")] = "",
             as_bytes: Annotated[bool, typer.Option("--bytes", help="Store the file's bytes unchanged.")] = False,
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


@app.command("write")
def pool_write(pool: PoolArgument, path: Annotated[Path, typer.Argument(help="A new file, or a pipe; of a sift pool a "
               "file of a table's form, or a directory, which its members write.")],
               force: ForceFlag = False, arrow_only: ArrowOnlyFlag = False, agent: AgentOption = None,
               as_json: JsonFlag = False) -> None:  # fmt: skip
    """All objects, in the order of storing, as one Arrow IPC stream file; or all tracks of a sift pool."""
    if pool.startswith("sift:/"):
        return write_tracks(pool, path, agent, as_json, force=force)
    check_new_file(path, force=force, table=False)
    with open_session(agent) as session, os_errors():
        written = session.pool(pool).write(path, arrow_only=arrow_only)
    if as_json:
        print_json({"path": str(path), "bytes": written})
    else:
        print(f"{path}: {size_text(written)}")


def write_tracks(pool: str, path: Path, agent: str | None, as_json: bool, *, force: bool) -> None:
    if path.suffix and not path.is_dir():
        check_new_file(path, force=force, table=True)
    bar, show = progress_bar(Console(stderr=True), "writing")
    with open_session(agent) as session, bar, os_errors():
        rows = session.tracks(pool).write(path, progress=lambda written: show(written.bytes, None))
    if as_json:
        print_json({"path": str(path), "rows": rows})
    else:
        print(f"{path}: {rows} rows")


@app.command("snapshot")
def pool_snapshot(pool: PoolArgument, directory: Annotated[Path, typer.Argument(help="A new directory.")],
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


@app.command("restore")
def pool_restore(pool: PoolArgument, directory: Annotated[Path, typer.Argument(help="The directory of a snapshot.")],
                 agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Puts the objects of a snapshot into a pool."""
    bar, progress = progress_bar(Console(stderr=True), "putting")
    with open_session(agent) as session, bar, os_errors():
        objects = session.pool(pool).restore(directory, progress)
    if as_json:
        print_json({"directory": str(directory), "objects": objects})
    else:
        print(f"{pool}: {objects} objects")


@app.command("drop")
def pool_drop(pool: PoolArgument, row: RowOption = "", column: ColumnOption = "",
              everything: Annotated[bool, typer.Option("--all", help="All objects of the pool.")] = False,
              agent: AgentOption = None, as_json: JsonFlag = False) -> None:  # fmt: skip
    """Removes the objects that match --row and --column, or --all."""
    if everything == bool(row or column):  # an empty pattern, such as a script's empty variable, names nothing
        raise typer.BadParameter("which objects: --row, --column or both, or --all")
    with open_session(agent) as session:
        dropped = session.pool(pool).drop(row or "*", column or "*")
    if as_json:
        print_json({"dropped": dropped})
    else:
        print(f"{dropped} objects dropped")
