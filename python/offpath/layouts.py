"""Arrow's other layouts of the same values: views and runs, which Polars, DuckDB and others export, become the layouts
that an agent stores. No value changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .errors import SchemaError


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The same values as an agent stores them. Raises SchemaError without columns."""
    if not len(schema):
        raise SchemaError("a schema without columns: a batch has at least one")
    return pa.schema([stored_field(field) for field in schema], schema.metadata)


def stored_table(table: pa.Table) -> pa.Table:
    """The same values in layouts that queries compute with."""
    for place, field in enumerate(table.schema):
        kept = stored_field(field)
        if kept.type != field.type:
            chunks = [relaid(chunk, kept.type) for chunk in table.column(place).chunks]
            table = table.set_column(place, kept, pa.chunked_array(chunks, kept.type))
    return table


def stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type))


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Views have any number of bytes, so text becomes large_string; views of lists count in the width they had."""
    types, inner = pa.types, stored_field
    if types.is_union(kind):
        return union_of([inner(each) for each in kind], kind)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_run_end_encoded(kind):
        return stored_type(kind.value_type)
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(inner(kind.value_field))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(inner(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([inner(each) for each in kind])
    if types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, stored_type(kind.value_type), kind.ordered)
    return kind


def union_of(fields: list[pa.Field], like: pa.DataType) -> pa.DataType:
    return (pa.dense_union if like.mode == "dense" else pa.sparse_union)(fields, like.type_codes)


def same_values(given: pa.DataType, kind: pa.DataType) -> bool:
    """``given`` becomes ``kind`` by its layout alone. Where ``given`` is a view, the width of offsets is free."""
    return relaid(pa.nulls(0, given), kind).type == kind


def relaid(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array in the layout of ``kind``; unchanged, or with another type than ``kind``, where more than the layout
    would change."""
    types, given = pa.types, array.type
    if given == kind:
        return array
    if types.is_run_end_encoded(given):
        at = np.searchsorted(
            array.run_ends.to_numpy(), np.arange(array.offset, array.offset + len(array)), side="right"
        )
        return relaid(array.values, kind).take(pa.array(at))
    if types.is_string_view(given):
        return array.cast(kind) if types.is_string(kind) or types.is_large_string(kind) else array
    if types.is_binary_view(given):
        return array.cast(kind) if types.is_binary(kind) or types.is_large_binary(kind) else array
    if types.is_dictionary(given) and types.is_dictionary(kind):
        values = relaid(array.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=given.ordered)
    if (
        types.is_union(given)
        and types.is_union(kind)
        and (given.mode, given.type_codes) == (kind.mode, kind.type_codes)
    ):
        return relaid_union(array if len(array) else pa.nulls(0, given), kind)  # without rows it may have no buffers
    hidden = array.is_null() if array.null_count else None
    if (
        types.is_struct(given)
        and types.is_struct(kind)
        and [each.name for each in given] == [each.name for each in kind]
    ):
        children = [relaid(array.field(i), field.type) for i, field in enumerate(kind)]
        fits = [each.type for each in children] == [each.type for each in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=hidden) if fits else array
    if types.is_fixed_size_list(given) and types.is_fixed_size_list(kind) and given.list_size == kind.list_size:
        values = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        child = relaid(values, kind.value_type)
        if child.type != kind.value_type:
            return array
        # pyarrow's from_arrays divides by the list's size, which may be 0.
        known = None if hidden is None else pa.array(~hidden.to_numpy(zero_copy_only=False)).buffers()[1]
        return pa.Array.from_buffers(kind, len(array), [known], children=[child])
    is_view = types.is_list_view(given) or types.is_large_list_view(given)
    for maker, is_this in ((pa.ListArray, types.is_list), (pa.LargeListArray, types.is_large_list)):
        if is_this(kind) and (is_view or is_this(given)):
            child = relaid(array.flatten(), kind.value_type)
            lengths = pc.list_value_length(array).fill_null(0).to_numpy()
            counted = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
            offsets = counted.cast(pa.int64() if maker is pa.LargeListArray else pa.int32())
            return maker.from_arrays(offsets, child, type=kind, mask=hidden) if child.type == kind.value_type else array
    if types.is_map(given) and types.is_map(kind):
        pairs = pa.list_(pa.struct([given.key_field, given.item_field]))
        buffers, entries = array.buffers()[:2], [entries_of(array)]
        flat = pa.ListArray.from_buffers(pairs, len(array), buffers, offset=array.offset, children=entries)
        laid = relaid(flat, pa.list_(pa.struct([kind.key_field, kind.item_field])))
        fits = laid.type.value_type == pa.struct([kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), laid.buffers()[:2], children=[laid.values]) if fits else array
    return array


def relaid_union(array: Any, kind: pa.DataType) -> pa.Array:
    """Children of a sparse one are sliced with it, those of a dense one are not."""
    children = [relaid(array.field(i), field.type) for i, field in enumerate(kind)]
    if [each.type for each in children] != [each.type for each in kind]:
        return array
    widths = (1,) if kind.mode == "sparse" else (1, 4)  # type codes, offsets
    buffers = [
        buffer.slice(array.offset * width, len(array) * width)
        for width, buffer in zip(widths, array.buffers()[1:], strict=False)
    ]
    return pa.Array.from_buffers(kind, len(array), [None, *buffers], children=children)


def entries_of(array: Any) -> pa.Array:
    """The pairs of a map, from before its slice on, as its offsets count."""
    return pa.StructArray.from_arrays([array.keys, array.items], fields=[array.type.key_field, array.type.item_field])
