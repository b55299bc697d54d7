"""The answers to Flight SQL's requests for catalogs, schemas, tables and server information.

One catalog has one schema, and its tables are the pools that the user may read and the tracks of sift pools. A table's
name is the pool's, and ``offpath.sql`` finds the pool by it: ``SELECT … FROM offpath.pools."hash:/particles"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from .. import __version__
from ..errors import Error, Invalid
from ..session import Session
from ..sql import CATALOG, SCHEMA, dataset_of

TABLE = "TABLE"
SCHEMAS_MAX = 1000  # of tables, in one answer: each is a question to agents
TEXT = pa.string()
TYPES_OF_INFO = {
    "string_value": pa.string(),
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": pa.int32(),
    "string_list": pa.list_(pa.field("string_data", pa.string())),
    "int32_to_int32_list_map": pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32()))),
}
# Bits of answers that are sets of numbers.
ALL_GROUPS, ALL_OUTER_JOINS, ALL_SUBQUERIES, ALL_UNIONS, CORE_GRAMMAR, ENTRY_LEVEL, FORWARD_ONLY = 3, 6, 15, 3, 3, 1, 2
READ_ONLY_ROWS = 2
INFO: dict[int, tuple[str, str | bool | int | list[Any]]] = {
    0: ("string_value", "Offpath"),
    1: ("string_value", __version__),
    2: ("string_value", pa.__version__),
    3: ("bool_value", True),  # read only
    4: ("bool_value", True),  # SQL
    5: ("bool_value", False),  # Substrait
    8: ("int32_bitmask", 0),  # no transactions
    9: ("bool_value", False),  # queries are cancelled by their streams
    500: ("bool_value", False),  # catalogs, schemas and tables are not made or dropped
    501: ("bool_value", False),
    502: ("bool_value", False),
    503: ("bigint_value", 1),  # identifiers are case-insensitive
    504: ("string_value", '"'),
    506: ("bool_value", True),  # every table can be selected
    507: ("bigint_value", 3),  # null comes last
    514: ("string_value", ""),  # no further characters in names
    515: ("bool_value", True),  # columns have aliases
    516: ("bool_value", True),  # null with anything is null
    517: ("int32_to_int32_list_map", []),  # no function CONVERT
    518: ("bool_value", True),  # tables have aliases, of any names
    519: ("bool_value", False),
    520: ("bool_value", True),  # expressions in ORDER BY, and columns that are not selected
    521: ("bool_value", True),
    522: ("int32_bitmask", ALL_GROUPS),
    523: ("bool_value", True),  # LIKE … ESCAPE
    524: ("bool_value", True),  # columns that have no null
    525: ("int32_bitmask", CORE_GRAMMAR),
    526: ("int32_bitmask", ENTRY_LEVEL),
    527: ("bool_value", False),  # no constraints
    528: ("int32_bitmask", ALL_OUTER_JOINS),
    529: ("string_value", "schema"),
    530: ("string_value", "procedure"),
    531: ("string_value", "catalog"),
    532: ("bool_value", True),  # the catalog is the first part of a name
    533: ("int32_bitmask", 0),  # no procedures, indexes and privileges
    534: ("int32_bitmask", 0),
    535: ("int32_bitmask", 0),  # no positioned changes
    536: ("bool_value", False),
    537: ("bool_value", False),  # no stored procedures
    538: ("int32_bitmask", ALL_SUBQUERIES),
    539: ("bool_value", True),
    540: ("int32_bitmask", ALL_UNIONS),
    # Largest numbers and lengths; 0: none that is known.
    **dict.fromkeys([*range(541, 556), *range(557, 562)], ("bigint_value", 0)),
    556: ("bool_value", True),
    562: ("bigint_value", 0),  # no transactions, so no isolation of them
    563: ("bool_value", False),
    564: ("int32_bitmask", 1),
    565: ("bool_value", False),
    566: ("bool_value", False),
    567: ("int32_bitmask", FORWARD_ONLY),
    568: ("int32_bitmask", 0),
    569: ("int32_bitmask", READ_ONLY_ROWS),
    570: ("int32_bitmask", 0),
    571: ("int32_bitmask", 0),
    572: ("bool_value", False),  # no batches of changes, savepoints, named parameters, locators
    573: ("bool_value", False),
    574: ("bool_value", False),
    575: ("bool_value", False),
    576: ("bool_value", False),
}


def required(name: str, kind: pa.DataType = TEXT) -> pa.Field:
    return pa.field(name, kind, nullable=False)


CATALOGS = pa.schema([required("catalog_name")])
DB_SCHEMAS = pa.schema([pa.field("catalog_name", TEXT), required("db_schema_name")])
TABLES = pa.schema([*(pa.field(f"{each}_name", TEXT) for each in ("catalog", "db_schema")), required("table_name"),
                    required("table_type")])  # fmt: skip
TABLES_WITH_SCHEMAS = TABLES.append(required("table_schema", pa.binary()))
TABLE_TYPES = pa.schema([required("table_type")])
PRIMARY_KEYS = pa.schema([
    pa.field("catalog_name", TEXT), pa.field("db_schema_name", TEXT), required("table_name"), required("column_name"),
    pa.field("key_name", TEXT), required("key_sequence", pa.int32()),
])  # fmt: skip
FOREIGN_KEYS = pa.schema([
    *(field for side in ("pk", "fk") for field in (
        pa.field(f"{side}_catalog_name", TEXT), pa.field(f"{side}_db_schema_name", TEXT),
        required(f"{side}_table_name"), required(f"{side}_column_name"))),
    required("key_sequence", pa.int32()), pa.field("fk_key_name", TEXT), pa.field("pk_key_name", TEXT),
    required("update_rule", pa.uint8()), required("delete_rule", pa.uint8()),
])  # fmt: skip
SQL_INFO = pa.schema([
    required("info_name", pa.uint32()),
    required("value", pa.dense_union([pa.field(*each) for each in TYPES_OF_INFO.items()])),
])  # fmt: skip

Value = int | bytes
# The fields of a message by number: numbers, and bytes of texts and messages.
Fields = dict[int, list[Value]]


def text_in(fields: Fields, number: int) -> str | None:
    """Raises Invalid if it is not text."""
    if number not in fields:
        return None
    try:
        return bytes(fields[number][-1]).decode() if isinstance(fields[number][-1], bytes) else ""
    except UnicodeDecodeError as error:
        raise Invalid(f"field {number} is not UTF-8: {error}") from None


def matches(pattern: str | None, name: str) -> bool:
    """As of SQL's LIKE: ``%`` is any text, ``_`` any character. None: no condition. Takes at most as many steps as the
    product of both lengths."""
    if pattern is None:
        return True
    at, of, after_any, tried = 0, 0, -1, 0  # only the last % can need another try
    while of < len(name):
        if at < len(pattern) and pattern[at] == "%":
            at += 1
            after_any, tried = at, of
        elif at < len(pattern) and pattern[at] in ("_", name[of]):
            at, of = at + 1, of + 1
        elif after_any >= 0:
            tried += 1
            at, of = after_any, tried
        else:
            return False
    return all(each == "%" for each in pattern[at:])


def is_ours(fields: Fields) -> bool:
    """The catalog and the pattern of schemas, fields 1 and 2, select entries."""
    return text_in(fields, 1) in (None, CATALOG) and matches(text_in(fields, 2), SCHEMA)


def names_of(session: Session) -> list[str]:
    """Of pools that this session can read, in order, and of sift pools whose members agree."""
    own = session.info.agent_name
    names = set()
    for each in session.directory("/pools"):
        name = each.path.removeprefix("/pools/")
        if not name.startswith("local:/") or own in each.members:
            names.add(name)
    for each in session.directory("/sift"):
        if each.properties.get("state") == "ready":
            names.add("sift:/" + each.path.removeprefix("/sift/"))
    return sorted(names)


def schema_of(session: Session, name: str) -> bytes:
    """As an IPC message; without columns if the pool has no Arrow objects now, or has gone."""
    try:
        schema = dataset_of(session, name).schema
    except Error:
        schema = pa.schema([])
    return bytes(schema.serialize())


def catalogs(_: Session, __: Fields) -> pa.Table:
    return pa.table({"catalog_name": [CATALOG]}, schema=CATALOGS)


def db_schemas(_: Session, fields: Fields) -> pa.Table:
    rows = [{"catalog_name": CATALOG, "db_schema_name": SCHEMA}] if is_ours(fields) else []
    return pa.Table.from_pylist(rows, schema=DB_SCHEMAS)


def table_types(_: Session, __: Fields) -> pa.Table:
    return pa.table({"table_type": [TABLE]}, schema=TABLE_TYPES)


def tables(session: Session, fields: Fields) -> pa.Table:
    """Raises Invalid if too many tables are to be described at a time."""
    pattern, described = text_in(fields, 3), bool(fields.get(5, [0])[-1])
    wanted = is_ours(fields) and (4 not in fields or TABLE.encode() in fields[4])
    names = [name for name in names_of(session) if matches(pattern, name)] if wanted else []
    rows: list[dict[str, Any]] = [
        {"catalog_name": CATALOG, "db_schema_name": SCHEMA, "table_name": name, "table_type": TABLE} for name in names
    ]
    if not described:
        return pa.Table.from_pylist(rows, schema=TABLES)
    if len(rows) > SCHEMAS_MAX:
        raise Invalid(f"{len(rows)} tables match, and at most {SCHEMAS_MAX} are described at a time: name a pattern")
    for row in rows:
        row["table_schema"] = schema_of(session, row["table_name"])
    return pa.Table.from_pylist(rows, schema=TABLES_WITH_SCHEMAS)


def numbers_in(values: Iterable[Value]) -> set[int]:
    """Of a repeated field, packed or not."""
    found: set[int] = set()
    for value in values:
        if isinstance(value, int):
            found.add(value)
            continue
        number = shift = 0
        for byte in value:
            number |= (byte & 127) << shift
            shift = shift + 7 if byte & 128 else 0
            if shift > 63:
                raise Invalid("a number of a message of Flight SQL is too long")
            if not byte & 128:
                found.add(number)
                number = 0
    return found


def sql_info(_: Session, fields: Fields) -> pa.Table:
    """The requested entries of those known here; all if none was named."""
    asked = numbers_in(fields.get(1, []))
    codes = [code for code in INFO if not asked or code in asked]
    kinds = [INFO[code][0] for code in codes]
    children = [[INFO[code][1] for code in codes if INFO[code][0] == kind] for kind in TYPES_OF_INFO]
    order = list(TYPES_OF_INFO)
    union = pa.UnionArray.from_dense(
        pa.array([order.index(kind) for kind in kinds], pa.int8()),
        pa.array([kinds[:at].count(kind) for at, kind in enumerate(kinds)], pa.int32()),
        [pa.array(child, kind) for child, kind in zip(children, TYPES_OF_INFO.values(), strict=True)],
        order,
    )
    return pa.table([pa.array(codes, pa.uint32()), union], schema=SQL_INFO)


def primary_keys(_: Session, __: Fields) -> pa.Table:
    """Pools have none, but database tools ask for them."""
    return PRIMARY_KEYS.empty_table()


def foreign_keys(_: Session, __: Fields) -> pa.Table:
    return FOREIGN_KEYS.empty_table()


ANSWERS: dict[str, Callable[[Session, Fields], pa.Table]] = {
    "CommandGetCatalogs": catalogs,
    "CommandGetDbSchemas": db_schemas,
    "CommandGetTables": tables,
    "CommandGetTableTypes": table_types,
    "CommandGetSqlInfo": sql_info,
    "CommandGetPrimaryKeys": primary_keys,
    "CommandGetImportedKeys": foreign_keys,
    "CommandGetExportedKeys": foreign_keys,
    "CommandGetCrossReference": foreign_keys,
}


def schema_of_answer(name: str, fields: Fields) -> pa.Schema:
    if name == "CommandGetTables":
        return TABLES_WITH_SCHEMAS if fields.get(5, [0])[-1] else TABLES
    return {"CommandGetCatalogs": CATALOGS, "CommandGetDbSchemas": DB_SCHEMAS, "CommandGetTableTypes": TABLE_TYPES,
            "CommandGetSqlInfo": SQL_INFO, "CommandGetPrimaryKeys": PRIMARY_KEYS}.get(name, FOREIGN_KEYS)  # fmt: skip
