"""Pools and tracks as datasets of pyarrow, whose scanners hand columns and filters to the agents.

A filter is a conjunction. Each of its parts that agents compute exactly as Arrow does travels with the query; if any
part stays here, Arrow applies the whole filter again to the returned rows. So a part that does not travel costs bytes
and never a wrong row. ``Pushable`` decides which parts travel: comparisons, ``is_in``, ``is_null``, ``is_valid`` and
``is_nan`` of columns and values of one kind, joined by and, or, not and if_else. Arithmetic, casts and functions of
text stay here, because values travel as the widest of their kind and would overflow elsewhere.

Programs that read datasets (DuckDB, Polars, DataFusion, pandas) call ``scanner``, ``to_batches``, ``to_table`` or
``get_fragments``. Methods of pyarrow that read a dataset in C++ bypass these, and no Python class can serve them. The
base is therefore a dataset of a file in a file system that answers every call by an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from .errors import SchemaError, Unsupported
from .expression import Aggregates, Part, encode, parts_of

# Asks the agents: filter, columns and aggregates of a query; the answer table by table, one at least.
Ask = Callable[["Part | None", "list[str] | None", "Aggregates | None"], Iterator[pa.Table]]

COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
LOGIC = frozenset(("and_kleene", "or_kleene", "invert"))
# Below the bounds of one expression at the agent (src/wire/query/expression.h): larger filters are applied here.
DEPTH_MAX = 32
VALUES_MAX = 4096
BYTES_MAX = 64 * 1024
EXACT_MAX = 2**24  # whole numbers up to here are exact in float32


class Pushable:
    """Tells which predicates agents compute as Arrow does, given the types of the columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self.kinds: dict[str, str] = {}
        for field in schema:
            if schema.get_field_index(field.name) >= 0 and (kind := kind_of(field.type)):
                self.kinds[field.name] = kind

    def holds_for(self, part: Part) -> bool:
        """The part is a predicate that may travel."""
        return self._is_predicate(part, 0) and is_small(part)

    def _is_predicate(self, part: Part, depth: int) -> bool:
        if part.kind != "call":
            return self._kind(part) == "bool"
        if depth >= DEPTH_MAX:
            return False
        if part.value in LOGIC:
            return all(self._is_predicate(each, depth + 1) for each in part.parts)
        if part.value == "if_else":
            return all(is_null(each) or self._is_predicate(each, depth + 1) for each in part.parts)
        kinds = {self._kind(each) for each in part.parts}
        if part.value in COMPARISONS:
            return self._is_comparison(*part.parts)
        if None in kinds or len(kinds) != 1:
            return False
        if part.value == "is_null":
            return part.options is None or not part.options["nan_is_null"].as_py()
        if part.value == "is_in":
            values = part.options["value_set"].values
            nulls = part.options["null_matching_behavior"].as_py()
            return nulls in (0, 1) and kind_of(values.type) in kinds and len(values) <= VALUES_MAX
        return part.value == "is_valid" or (part.value == "is_nan" and kinds == {"float"})

    def _is_comparison(self, left: Part, right: Part) -> bool:
        kinds = self._kind(left), self._kind(right)
        if None in kinds:
            return False
        for kind, number in (kinds[0], right), (kinds[1], left):
            least = {"float": -EXACT_MAX, "unsigned": 0}.get(str(kind))
            if least is not None and is_number(number, least):
                return True
        return kinds[0] == kinds[1]

    def _kind(self, part: Part) -> str | None:
        if part.kind == "field_ref":
            return self.kinds.get(part.value)
        return kind_of(part.value.type) if part.kind == "literal" and part.value.is_valid else None


def kind_of(type_: pa.DataType) -> str | None:
    """Types whose values compare with each other at an agent as here; None for others."""
    if pa.types.is_boolean(type_):
        return "bool"
    if pa.types.is_integer(type_):
        return "signed" if pa.types.is_signed_integer(type_) else "unsigned"
    if type_ in (pa.float32(), pa.float64()):
        return "float"
    if type_ in (pa.string(), pa.binary(), pa.date32()):
        return str(type_)
    if pa.types.is_timestamp(type_) and type_.tz is None:
        return str(type_)  # of one unit: another could overflow
    return None


def is_number(part: Part, least: int) -> bool:
    """A whole number that every type of floats has, and not below this one."""
    return part.kind == "literal" and pa.types.is_integer(part.value.type) and least <= part.value.as_py() <= EXACT_MAX


def is_null(part: Part) -> bool:
    return part.kind == "literal" and not part.value.is_valid


def parts_in(part: Part) -> Iterator[Part]:
    """The part and all below it, however deep."""
    left = [part]
    while left:
        each = left.pop()
        yield each
        left += each.parts


def size_of(part: Part) -> int:
    """Parts of an expression and values of its sets."""
    return sum(len(each.options["value_set"].values) if each.value == "is_in" else 1 for each in parts_in(part))


def is_small(part: Part) -> bool:
    return size_of(part) <= VALUES_MAX and len(encode(part)) <= BYTES_MAX


def conjuncts(part: Part) -> Iterator[Part]:
    """The parts that a row has to satisfy, all of them."""
    left = [part]
    while left:
        each = left.pop()
        if each.kind == "call" and each.value == "and_kleene":
            left += reversed(each.parts)
        else:
            yield each


def conjunction(parts: Sequence[Part]) -> Part:
    """One part again, as flat as can be."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Part("call", "and_kleene", (conjunction(parts[:half]), conjunction(parts[half:])))


def columns_of(part: Part) -> Iterator[str | None]:
    """Names of the columns in an expression; None if it may be any column."""
    for each in parts_in(part):
        if each.kind == "field_ref":
            yield each.value
        elif each.kind not in ("literal", "call"):
            yield None


def read_parts(expression: pc.Expression) -> Part | None:
    """The parts of an expression; None if pyarrow cannot take it apart."""
    try:
        return parts_of(expression)
    except pa.ArrowException:
        return None


class Plan:
    """The agents' part of a scan (``pushed``, ``columns``), and Arrow's part on their answers (``remaining``)."""

    def __init__(self, schema: pa.Schema, columns: Any, filter: pc.Expression | None) -> None:
        self.pushed: Part | None = None
        self.remaining: pc.Expression | None = None
        names: list[str | None] = []
        if filter is not None:
            whole = read_parts(filter)
            pushable = Pushable(schema)
            parts = list(conjuncts(whole)) if whole is not None else []
            travelling = [part for part in parts if pushable.holds_for(part)][: VALUES_MAX // 4]
            while travelling and self.pushed is None:
                joined = conjunction(travelling)
                if is_small(joined):
                    self.pushed = joined
                else:
                    del travelling[len(travelling) // 2 :]
            if whole is None or len(travelling) < len(parts):
                self.remaining = filter
                names += [None] if whole is None else columns_of(whole)
        if columns is None:
            names.append(None)
        elif isinstance(columns, Mapping):
            for expression in columns.values():
                part = read_parts(expression)
                names += [None] if part is None else columns_of(part)
        else:
            names += columns
        wanted = set(schema.names if None in names else names)
        chosen = [field for field in schema if field.name in wanted]
        if not chosen and len(schema) > 0:  # only the number of rows: from the narrowest column
            chosen = [min(schema, key=width_of)]
        self.schema = pa.schema(chosen, schema.metadata)
        self.columns = self.schema.names


def width_of(field: pa.Field) -> int:
    """Bits of a value; of types without a fixed width more than any other has."""
    try:
        return field.type.bit_width
    except ValueError:
        return 1 << 30


class Unreadable(pa.fs.FileSystemHandler):
    """A file system where every call is an error that names the dataset and how to read it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_type_name(self) -> str:
        return "offpath"

    def normalize_path(self, path: str) -> str:
        return path

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = None  # type: ignore[assignment] # as of every class that defines equality alone

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"pyarrow reads datasets in C++ for this, which cannot reach {self.name}: use dataset.to_table() or "
            "dataset.to_batches(), with columns and a filter"
        )

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    get_file_info = get_file_info_selector = move = open_append_stream = open_input_file = _refuse
    open_input_stream = open_output_stream = _refuse


class AgentDataset(ds.FileSystemDataset):
    """A ``pyarrow.dataset.Dataset`` of the rows that agents hold. ``Pool.dataset`` and ``Tracks.dataset`` make one.

    Each scan is one query: its columns travel, and the parts of the filter that agents compute exactly as Arrow does
    (``is_pushed``). Arrow applies the rest to the returned rows, so that the rows are always those of
    ``to_table().filter(filter)``, nulls and NaN included. Rows come in the order of ``Pool.query``; they are those that
    the pool has when the scan begins.

    ``scanner``, ``to_batches``, ``to_table``, ``head``, ``take``, ``count_rows``, ``filter`` and ``get_fragments`` are
    as pyarrow describes them. ``join`` and ``sort_by`` read the columns first. Where pyarrow reads a dataset in C++, as
    in a union with others, NotImplementedError is raised. A dataset belongs to its session and cannot be pickled.

    Scans raise the errors of ``Pool.query``.
    """

    def __init__(self, name: str, schema: pa.Schema, ask: Ask, filter: pc.Expression | None = None) -> None:
        files = pa.fs.PyFileSystem(Unreadable(name))
        form = ds.IpcFileFormat()
        super().__init__([form.make_fragment(name, filesystem=files)], schema, form, files)
        self.name = name
        self._ask = ask
        self._filter = filter

    def _with_own(self, filter: pc.Expression | None) -> pc.Expression | None:
        if self._filter is None or filter is None:
            return self._filter if filter is None else filter
        return self._filter & filter

    def is_pushed(self, filter: pc.Expression) -> bool:
        """Agents compute all of this filter; otherwise Arrow applies it to the rows that they answer."""
        return Plan(self.schema, [], filter).remaining is None

    def scanner(self, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> ds.Scanner:
        """One scan: ``columns`` are names or a dict of names to expressions, None: all. No request is sent until it is
        read, and it can be read once. ``options`` are those of ``pyarrow.dataset.Scanner.from_batches``."""
        plan = Plan(self.schema, columns, self._with_own(filter))

        def batches() -> Iterator[pa.RecordBatch]:
            for table in self._ask(plan.pushed, plan.columns, None):
                if table.schema.types != plan.schema.types:
                    raise SchemaError(f"{self.name} has other columns than when this dataset was made: make a new one")
                yield from table.cast(plan.schema).to_batches()  # nullability and metadata alone

        return ds.Scanner.from_batches(batches(), schema=plan.schema, columns=columns, filter=plan.remaining, **options)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows the filter chooses. Agents count, if all of it is pushed."""
        plan = Plan(self.schema, [], self._with_own(filter))
        if plan.remaining is not None:
            return self.scanner([], filter, **options).count_rows()
        return sum(table["n"][0].as_py() for table in self._ask(plan.pushed, None, {"n": "count"}))

    def filter(self, expression: pc.Expression) -> AgentDataset:
        """The same rows without those that the filter leaves out, in every scan."""
        return AgentDataset(self.name, self.schema, self._ask, self._with_own(expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[AgentFragment]:
        """One fragment: the agents' answer. ``filter`` is a hint that it has no use for."""
        return iter([AgentFragment(self)])

    def in_memory(self) -> ds.InMemoryDataset:
        """All rows, read now, as a dataset for operations of pyarrow in C++: unions and joins with other datasets."""
        return ds.InMemoryDataset(self.to_table())

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """As pyarrow's, over all rows of both."""
        return self.in_memory().join(readable(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """As pyarrow's, over all rows of both."""
        return self.in_memory().join_asof(readable(right_dataset), *arguments, **options)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """As pyarrow's, over all rows."""
        return self.in_memory().sort_by(sorting, **options)

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raises Unsupported: the agents' columns are as they are."""
        raise Unsupported(f"{self.name}: its schema is set by the agents; choose columns in a scan and cast its result")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a dataset of {self.name} belongs to its session: open one where it is used")

    def __repr__(self) -> str:
        return f"<AgentDataset {self.name}>"


def readable(dataset: Any) -> Any:
    return dataset.in_memory() if isinstance(dataset, AgentDataset) else dataset


class AgentFragment:
    """All of an AgentDataset, where programs scan fragments. The scans are the dataset's."""

    partition_expression = pc.scalar(True)

    def __init__(self, dataset: AgentDataset) -> None:
        self.dataset = dataset

    @property
    def physical_schema(self) -> pa.Schema:
        """The dataset's."""
        return self.dataset.schema

    def scanner(
        self, schema: pa.Schema | None = None, columns: Any = None, filter: pc.Expression | None = None, **options: Any
    ) -> ds.Scanner:
        """As of the dataset. Raises Unsupported for a ``schema`` that is not its own."""
        if schema is not None and not schema.equals(self.dataset.schema):
            raise Unsupported(f"{self.dataset.name} is read with its own schema")
        return self.dataset.scanner(columns, filter, **options)

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """As of the dataset."""
        return self.scanner(schema, **options).to_table()

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterable[pa.RecordBatch]:
        """As of the dataset."""
        return self.scanner(schema, **options).to_batches()

    def count_rows(self, **options: Any) -> int:
        """As of the dataset."""
        return self.dataset.count_rows(**options)
