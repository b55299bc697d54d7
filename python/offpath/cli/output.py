"""The output of commands: tables, JSON, files written, and errors of files in one line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from ..errors import Error
from ..frame import Frame
from ..object_file import check_new_file, write_tables
from ..sizes import size_text

TABLE_ROWS_SHOWN = 40
OBJECT_ROWS_SHOWN = 10


def make_console() -> Console:
    """The terminal, or wide lines without a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=240)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Reports a full disk, and a missing or invalid file, in one line, as the agent's errors are."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, Error):
            raise
        raise Error(str(error)) from None


def show_table(table: pa.Table, out: Path | None, as_json: bool) -> None:
    """Prints a table's first rows, writes all of it to a file, or prints all of it as JSON."""
    if out is not None:
        with os_errors():
            write_tables([table], out)
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
        print(f"and {table.num_rows - most} more rows; --out FILE writes all of them")


def show_frame(frame: Frame, told: dict[str, Any], out: Path | None, as_json: bool, *, force: bool) -> None:
    """Prints an object's description and first rows, or writes all of it to a file in the form of the file's suffix."""
    told |= {"nbytes": frame.nbytes, "rows": frame.rows, "arrow": frame.is_arrow, "mapped": frame.mapped}
    if frame.is_arrow:
        told["schema"] = {field.name: str(field.type) for field in frame.reader().schema}
    if out is not None:
        check_new_file(out, force=force, table=frame.is_arrow)
    table = whole_table(frame) if frame.is_arrow and (out is not None or not as_json) else None
    if out is not None:
        with os_errors():
            if table is not None:
                write_tables([table], out)
            else:
                out.write_bytes(frame.buffer())
    if as_json:
        print_json(told)
    elif out is not None:
        print(f"{f'{frame.rows} rows' if frame.is_arrow else size_text(frame.nbytes)} written to {out}")
    elif table is not None:
        print_rows(table, OBJECT_ROWS_SHOWN)
    else:
        print(f"{size_text(frame.nbytes)} that are not Arrow data; --out FILE writes them")


def whole_table(frame: Frame) -> pa.Table:
    """Its bytes may be a program's own: values that are not there would end who only reads them."""
    with os_errors():
        table = frame.table()
        table.validate(full=True)
    return table


def progress_bar(console: Console, text: str) -> tuple[Progress, Callable[[int, int | None], None]]:
    """A bar on standard error, which does not mix with the output."""
    columns = (TextColumn(text), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(text, total=None)
    return bar, lambda done, total: bar.update(task, completed=done, total=total)
