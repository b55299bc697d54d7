"""Files that the command line reads objects from and writes tables to: what they are is told by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa


def read_object(path: Path) -> Any:
    """A file as ``Pool.put`` takes it: a table if its name says that it is one, otherwise its bytes."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)
    if path.suffix == ".arrows":
        return pa.ipc.open_stream(path.read_bytes()).read_all()
    if path.suffix in (".arrow", ".feather"):
        return pa.ipc.open_file(path.read_bytes()).read_all()
    return path.read_bytes()


def write_table(table: pa.Table, path: Path) -> None:
    """As Parquet (.parquet), as text (.csv), as an Arrow stream (.arrows), else as an Arrow file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path)
    else:
        make = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table)
