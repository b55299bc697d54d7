"""Pools as a data source of Spark: each member's part is read by Flight from that member, all parts at the same time.

Agents need a Flight address (``flight.listen``), the nodes of Spark this package and the file with the token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
from pyarrow import types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from .errors import Invalid
from .expression import encode_query, flight_command
from .query_text import parse_expression

# Types that Spark does not have, and those of its own that hold every value of theirs.
WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def read_pool(
    spark: SparkSession,
    name: str,
    columns: list[str] | None = None,
    filter: str | None = None,
    *,
    flight: str,
    token_file: str,
    rows: str | None = None,
    tls_ca_file: str | None = None,
) -> DataFrame:
    """The objects of a pool as a dataframe of Spark with a partition for each member's part. Agents read the named
    columns, compute the filter (as of ``offpath pool query``), and send the chosen rows.

    ``flight``: the Flight address of any member; ``token_file``, ``tls_ca_file``: files that every node has.

    >>> read_pool(spark, "hash:/particles", ["id", "x"], "x < 0.5", flight=address, token_file="flight.token")
    """
    spark.dataSource.register(PoolDataSource)
    given = {"columns": None if columns is None else json.dumps(columns), "filter": filter, "flight": flight,
             "token_file": token_file, "rows": rows, "tls_ca_file": tls_ca_file}  # fmt: skip
    options = {option: value for option, value in given.items() if value is not None}
    return spark.read.format(PoolDataSource.name()).options(**options).load(name)


class Place:
    """Where a pool is asked for, and what is asked: the options of the data source."""

    def __init__(self, options: dict[str, str]) -> None:
        for needed in ("path", "flight", "token_file"):
            if needed not in options:
                raise Invalid(f"data source offpath: the option {needed} is missing")
        self.flight, self._token_file = options["flight"], options["token_file"]
        self._tls_ca_file = options.get("tls_ca_file")
        columns = json.loads(options["columns"]) if "columns" in options else None
        filter = parse_expression(options["filter"]) if "filter" in options else None
        self._command = flight_command(options["path"], options.get("rows", "*"), query=encode_query(filter, columns))

    def info(self) -> Any:
        with self.connect(self.flight) as client:
            return client.get_flight_info(fl.FlightDescriptor.for_command(self._command), self.options())

    def connect(self, location: str) -> Any:
        """Spark may run this in any process, which reads the files itself: Spark's plans do not have the token."""
        roots = Path(self._tls_ca_file).read_bytes() if self._tls_ca_file else None
        return fl.connect(location, tls_root_certs=roots)

    def options(self) -> Any:
        token = Path(self._token_file).read_text(encoding="utf-8").strip()
        return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


class PoolDataSource(DataSource):
    """The data source ``offpath``, for ``spark.dataSource.register`` and for SQL (``USING offpath``). Its options are
    the arguments of ``read_pool``, with the pool's name as ``path`` and the columns as a list of JSON."""

    @classmethod
    def name(cls) -> str:
        return "offpath"

    def schema(self) -> StructType:
        columns = Place(dict(self.options)).info().schema
        made: StructType = from_arrow_schema(pa.schema([field.with_type(known(field.type)) for field in columns]))
        return made

    def reader(self, schema: StructType) -> PoolReader:
        return PoolReader(Place(dict(self.options)), schema)


class Part(InputPartition):
    """An endpoint of the pool's flight: the address of the member that has the part, and its ticket."""

    def __init__(self, location: str, ticket: bytes) -> None:
        self.location, self.ticket = location, ticket


class PoolReader(DataSourceReader):
    def __init__(self, place: Place, schema: StructType) -> None:
        self._place, self._schema = place, schema

    def partitions(self) -> list[Part]:
        return [Part(endpoint.locations[0].uri.decode(), endpoint.ticket.ticket)
                for endpoint in self._place.info().endpoints]  # fmt: skip

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        began = False
        try:
            for batch in self._batches(partition.location, partition.ticket):
                began = True
                yield batch
            return
        except fl.FlightUnavailableError:
            if began:
                raise
        # The ticket also holds at the agent that issued it, which names a member that is lost.
        yield from self._batches(self._place.flight, partition.ticket)

    def _batches(self, location: str, ticket: bytes) -> Iterator[pa.RecordBatch]:
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        with self._place.connect(location) as client:
            for chunk in client.do_get(fl.Ticket(ticket), self._place.options()):
                yield from pa.Table.from_batches([chunk.data]).cast(wanted).to_batches()


def known(kind: pa.DataType) -> pa.DataType:
    """The type by which Spark knows a column."""
    if types.is_dictionary(kind):
        return known(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(known(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(known(field.type)) for field in kind])
    return WIDER.get(kind, kind)
