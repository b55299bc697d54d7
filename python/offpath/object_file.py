"""Files that the command line reads objects from and writes tables to: what they are is told by their names."""

from __future__ import annotations

from collections.abc import Callable
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
    """Before anything is asked for. Raises Invalid: the file is there already, or its name says no form of a table."""
    if table and path.suffix not in TABLE_FILES:
        raise Invalid(f"{path}: its name says no form of a table; one of {', '.join(TABLE_FILES)} does")
    if path.is_file() and not force:  # a pipe or a device has nothing to lose
        raise Invalid(f"{path} is there already; --force replaces it")


def write_table(table: pa.Table, path: Path) -> None:
    """As Parquet (.parquet), text (.csv), an Arrow stream (.arrows) or an Arrow file (.arrow, .feather).

    Raises Invalid, and writes nothing, if the file has no form for a column: unions in Parquet, lists in text.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet

        check_types(table, path, pyarrow.parquet.write_table)
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        import pyarrow.csv

        check_types(table, path, pyarrow.csv.write_csv)
        pyarrow.csv.write_csv(table, path)
    else:
        make = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table)


def check_types(table: pa.Table, path: Path, write: Callable[[pa.Table, pa.BufferOutputStream], None]) -> None:
    """Writes each column without rows, because errors of pyarrow's writers name no column."""
    for place, field in enumerate(table.schema):
        try:
            write(table.select([place]).slice(0, 0), pa.BufferOutputStream())
        except pa.ArrowException:
            raise Invalid(
                f"{path}: column '{field.name}' has the type {field.type}, for which {path.suffix} files have no form; "
                "Arrow's have one (.arrow, .arrows)"
            ) from None
