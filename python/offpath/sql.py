"""SQL over pools: ``offpath sql``, by DuckDB, which hands columns and filters down to the agents."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from .dataset import AgentDataset
from .errors import Error, Invalid
from .session import Session

CATALOG, SCHEMA = "offpath", "pools"  # prefixes of a pool's name
QUOTED = re.compile(r'"((?:[^"]|"")*)"')
NAME_OF_POOL = re.compile(r"(local|hash|rank|tag|sift):/.")


def run_sql(session: Session, text: str) -> pa.Table:
    """The answer of a query in DuckDB's SQL, in which ``pool('NAME')`` and ``pool('NAME', 'ROWS')`` are tables:
    the objects of a pool whose rows match the pattern, or the tracks of a pool whose name begins with ``sift:``. The
    name in double quotes, such as ``"hash:/particles"``, is the same as ``pool('hash:/particles')``.

    Raises Invalid for queries that DuckDB does not understand or compute, and the errors of ``Pool.dataset`` and its
    scans.
    """
    with open_query(session, text) as answer:
        return answer.to_arrow_table()


@contextlib.contextmanager
def open_query(
    session: Session, text: str, settings: Mapping[str, str | bool] | None = None
) -> Iterator[duckdb.DuckDBPyRelation]:
    """The answer of such a query, to be read before this ends; errors as of ``run_sql``. ``settings`` are DuckDB's, and
    the query cannot change them."""
    failed: list[Error] = []  # of scans: DuckDB has only their texts
    with duckdb.connect() as connection:
        connection.execute("SET python_enable_replacements = false")  # names are pools, never Python's variables
        tables: dict[tuple[str, ...], str] = {}
        query = with_tables(text, tables)
        try:
            for (pool, *rows), table in tables.items():
                connection.register(table, keeping_errors(dataset_of(session, pool, *rows), failed))
            for name, value in (settings or {}).items():
                connection.execute(f"SET {name} = ?", [value])
            if settings:
                connection.execute("SET lock_configuration = true")
            answer = connection.sql(query)
            if answer is None:
                raise Invalid("the text has no query that returns rows")
            yield answer
        except duckdb.Error as error:
            raise failed[0] if failed else Invalid(f"DuckDB: {error}") from None


def dataset_of(session: Session, pool: str, rows: str | None = None) -> AgentDataset:
    if not pool.startswith("sift:"):
        return session.pool(pool).dataset(rows)
    if rows is not None:
        raise Invalid(f"pool('{pool}', '{rows}'): tracks have no rows to choose by a pattern; write WHERE step = …")
    return session.tracks(pool).dataset()


def keeping_errors(dataset: AgentDataset, failed: list[Error]) -> AgentDataset:
    """The same dataset; errors of its scans are also added to ``failed``. DuckDB scans in threads of its own, where
    context variables are still those of the caller."""
    caller = contextvars.copy_context()

    def ask(*asked: Any) -> Iterator[pa.Table]:
        context = caller.copy()  # a context is entered by one thread at a time
        tables = dataset._ask(*asked)
        try:
            while (table := context.run(next, tables, None)) is not None:
                yield table
        except Error as error:
            failed.append(error)
            raise

    return AgentDataset(dataset.name, dataset.schema, ask)


def with_tables(text: str, tables: dict[tuple[str, ...], str]) -> str:
    """The text with the name of a table for each ``pool(…)`` and each name of a pool in double quotes. ``tables`` gets
    these names, by the calls' arguments."""
    whole = text.encode()  # DuckDB counts bytes
    tokens = duckdb.tokenize(text)
    kinds = [kind for _, kind in tokens]
    bounds = [*(start for start, _ in tokens), len(whole)]
    words = [whole[start:end].decode().strip() for start, end in itertools.pairwise(bounds)]
    made, taken, at = b"", 0, 0
    while at < len(words):
        if kinds[at] == duckdb.token_type.identifier and (quoted := QUOTED.match(words[at])):
            if NAME_OF_POOL.match(quoted[1]):
                table = tables.setdefault((quoted[1].replace('""', '"'),), f"pool {len(tables)}")
                made += whole[taken : tokens[at - qualifiers(words[:at])][0]] + f'"{table}"'.encode()
                taken = tokens[at][0] + len(quoted[0].encode())
            at += 1
            continue
        if words[at].lower() != "pool" or kinds[at] != duckdb.token_type.identifier or words[at + 1 : at + 2] != ["("]:
            at += 1
            continue
        end = at + 2
        while end < len(words) and (kinds[end] == duckdb.token_type.string_const or words[end] == ","):
            end += 1
        arguments, commas = words[at + 2 : end : 2], words[at + 3 : end : 2]
        if words[end : end + 1] != [")"] or len(arguments) not in (1, 2) or commas != [","] * (len(arguments) - 1):
            raise Invalid(
                "pool(…) in SQL takes the name of a pool and a pattern of rows, as texts: pool('hash:/p', 's*')"
            )
        key = tuple(each[1:-1].replace("''", "'") for each in arguments)
        table = tables.setdefault(key, f"pool {len(tables)}")
        made += whole[taken : tokens[at][0]] + f'"{table}" '.encode()
        taken = tokens[end][0] + 1
        at = end + 1
    return (made + whole[taken:]).decode()


def qualifiers(words: list[str]) -> int:
    """How many of the last words are the schema of pools, or its catalog and it, each with its point."""
    count = 0
    for expected in (SCHEMA, CATALOG):
        name, point = ["", "", *words][len(words) - count :][:2]
        if point != "." or name.strip('"').lower() != expected:
            break
        count += 2
    return count
