"""Files that the command line reads objects from and writes tables to; their suffixes determine the form."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from .errors import Invalid

ARROW_FILES = (".arrow", ".feather")
TABLE_FILES = (".parquet", ".csv", ".arrows", *ARROW_FILES)


def read_object(path: Path, as_bytes: bool = False) -> Any:
    """A file as ``Pool.put`` takes it: a table if its name says that it is one, otherwise, or with ``as_bytes``, its
    bytes."""
    if as_bytes:
        return path.read_bytes()
    path.stat()  # raises an error that says more than pyarrow's, which is the file's name alone
    if path.suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.read_csv(path)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)
    if path.suffix == ".arrows":
        return pa.ipc.open_stream(path.read_bytes()).read_all()
    if path.suffix in ARROW_FILES:
        return pa.ipc.open_file(path.read_bytes()).read_all()
    return path.read_bytes()


def check_new_file(path: Path, *, force: bool, table: bool) -> None:
    """Called before any request. Raises Invalid: the file exists already, or its extension is not that of a table."""
    if table and path.suffix not in TABLE_FILES:
        raise Invalid(f"{path}: its extension is not that of a table; use one of {', '.join(TABLE_FILES)}")
    if path.is_file() and not force:  # a pipe or a device has nothing to lose
        raise Invalid(f"{path} exists already; --force replaces it")


def write_tables(tables: Iterable[pa.Table], path: Path) -> int:
    """As Parquet (.parquet), text (.csv), an Arrow stream (.arrows) or an Arrow file (any other name); a group or batch
    for each table, at least. Returns rows. Without tables nothing is written.

    The file appears when it is whole. Raises Invalid if it has no form for a column: unions in Parquet, lists in text.
    """
    rows = 0
    with contextlib.ExitStack() as open_files:
        writer = None
        for table in tables:
            if writer is None:
                check_types(table, path)
                part = open_files.enter_context(appears_whole(path))
                writer = open_files.enter_context(make_writer(path, part, table.schema))
            writer.write_table(table)
            rows += table.num_rows
    return rows


def make_writer(path: Path, sink: Path | pa.NativeFile, schema: pa.Schema) -> Any:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.ParquetWriter(sink, schema)
    if path.suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.CSVWriter(sink, schema)
    return pa.ipc.new_stream(sink, schema) if path.suffix == ".arrows" else pa.ipc.new_file(sink, schema)


@contextlib.contextmanager
def appears_whole(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes ``path`` in the end. Pipes and devices, and links to them, have their own."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield path
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def check_types(table: pa.Table, path: Path) -> None:
    """Writes the first row of each column, because errors of pyarrow's writers name no column."""
    if path.suffix not in (".parquet", ".csv"):
        return
    for place, field in enumerate(table.schema):
        column = table.select([place]).slice(0, 1)
        try:
            with make_writer(path, pa.BufferOutputStream(), column.schema) as writer:
                writer.write_table(column)
        except pa.ArrowException:
            raise Invalid(
                f"{path}: column '{field.name}' has the type {field.type}, for which {path.suffix} files have no form; "
                "Arrow's have one (.arrow, .arrows)"
            ) from None
