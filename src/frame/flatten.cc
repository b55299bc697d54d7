#include "frame/flatten.h"

#include <bit>

#include "frame/gather.h"

namespace offpath::frame {

namespace {

std::uint64_t address_of(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

class Flattener final : private Gatherer::InPlace {
 public:
  Flattener(const Layout& layout, BatchView& view, OwnMemory& memory)
      : layout_(layout), view_(view), gatherer_(layout, view, memory, *this) {}

  Status batch(const ArrowArray& batch) {
    OFP_TRY(check_batch(batch));
    view_.rows = batch.length;
    view_.nodes.resize(layout_.nodes.size());
    view_.buffers.resize(layout_.buffers.size());
    for (std::size_t i = 0; i < layout_.columns.size(); ++i) {
      OFP_TRY(child(layout_.columns[i], batch.children[i], batch.offset, batch.length));
    }
    return {};
  }

 private:
  [[nodiscard]] std::string path(std::uint32_t node) const { return path_of(layout_, node); }

  Status check_batch(const ArrowArray& batch) const {
    if (batch.release == nullptr) return fail(Error::invalid, "the batch is already released");
    const auto columns = static_cast<std::int64_t>(layout_.columns.size());
    if (batch.n_children != columns || (columns > 0 && batch.children == nullptr)) {
      return fail(Error::schema, "the batch has {} columns, its schema {}", batch.n_children, columns);
    }
    if (batch.length < 0 || batch.offset < 0) {
      return fail(Error::schema, "the batch has length {} and offset {}, at least 0 is allowed", batch.length,
                  batch.offset);
    }
    const bool bitmap = batch.n_buffers > 0 && batch.buffers != nullptr && batch.buffers[0] != nullptr;
    if (!bitmap || batch.null_count == 0) return {};
    const auto* bits = static_cast<const std::uint8_t*>(batch.buffers[0]);
    for (std::int64_t i = batch.offset; i < batch.offset + batch.length; ++i) {
      if ((bits[i / 8] >> (i % 8) & 1) == 0) {
        return fail(Error::schema, "row {} of the batch is null as a whole, which a record batch cannot express",
                    i - batch.offset);
      }
    }
    return {};
  }

  // A child of an array whose own slice is [first, first + length) in terms of the child's values.
  Status child(std::uint32_t node, const ArrowArray* array, std::int64_t first, std::int64_t length) {
    if (array == nullptr || array->release == nullptr) {
      return fail(Error::invalid, "the array of '{}' is {}", path(node),
                  array == nullptr ? "missing" : "already released");
    }
    std::int64_t end = 0;
    if (array->length < 0 || array->offset < 0 || __builtin_add_overflow(first, length, &end) || end > array->length) {
      return fail(Error::schema, "'{}' has {} values from offset {} on, its parent shows {} from {} on", path(node),
                  array->length, array->offset, length, first);
    }
    std::int64_t physical_end = 0;
    if (__builtin_add_overflow(array->offset, array->length, &physical_end)) {
      return fail(Error::schema, "'{}' has length {} and offset {}, whose sum is too large", path(node), array->length,
                  array->offset);
    }
    return values(node, *array, {array->offset + first, length});
  }

  Status values(std::uint32_t index, const ArrowArray& array, Slice slice) {
    const NodeLayout& node = layout_.nodes[index];
    if (node.view || !node.run_ends.empty()) return gatherer_.values(index, array, {{slice.first, slice.length}});
    return show(index, array, slice);
  }

  Status show(std::uint32_t index, const ArrowArray& array, Slice slice) override {
    const NodeLayout& node = layout_.nodes[index];
    OFP_TRY(check_array(index, node, array));
    NodeShape& shape = view_.nodes[index];
    shape.length = slice.length;
    shape.null_count = node.type == Type::null ? slice.length : 0;
    if (node.buffers > 0 && !is_union(node.type)) OFP_TRY(validity(index, node, array, slice));

    switch (node.type) {
      case Type::null:
        return {};
      case Type::sparse_union:
      case Type::dense_union:
        return union_values(index, node, array, slice);
      case Type::structure:
        for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout_.nodes[at].end) {
          OFP_TRY(child(at, array.children[i], slice.first, slice.length));
        }
        return {};
      case Type::fixed_list: {
        std::int64_t first = 0;
        std::int64_t length = 0;
        const std::int64_t size = node.list_size;
        if (__builtin_mul_overflow(slice.first, size, &first) || __builtin_mul_overflow(slice.length, size, &length)) {
          return fail(Error::schema, "'{}' shows {} lists of {} values from {} on, which is too large", path(index),
                      slice.length, size, slice.first);
        }
        return child(index + 1, array.children[0], first, length);
      }
      case Type::binary:
      case Type::utf8:
      case Type::list:
      case Type::map:
        return variable<std::int32_t>(index, node, array, slice);
      case Type::large_binary:
      case Type::large_utf8:
      case Type::large_list:
        return variable<std::int64_t>(index, node, array, slice);
      default:
        break;
    }
    OFP_TRY(fixed(index, node, array, slice));
    if (node.dictionary == 0) return {};
    if (array.dictionary == nullptr)
      return fail(Error::schema, "'{}' has no dictionary, its schema has one", path(index));
    return child(layout_.parts[node.dictionary].node_begin, array.dictionary, 0, array.dictionary->length);
  }

  Status check_array(std::uint32_t index, const NodeLayout& node, const ArrowArray& array) const {
    if (array.n_children != node.children || (node.children > 0 && array.children == nullptr)) {
      return fail(Error::schema, "'{}' has {} children, its schema {}", path(index), array.n_children, node.children);
    }
    if (node.type == Type::null) return {};
    if (array.n_buffers != node.buffers || array.buffers == nullptr) {
      return fail(Error::schema, "'{}' has {} buffers, {} has {}", path(index),
                  array.buffers == nullptr ? 0 : array.n_buffers, type_name(node.type), node.buffers);
    }
    return {};
  }

  Status validity(std::uint32_t index, const NodeLayout& node, const ArrowArray& array, Slice slice) {
    NodeShape& shape = view_.nodes[index];
    BufferSource& source = view_.buffers[node.buffer];
    source = {};
    OFP_ASSIGN(const std::uint8_t* bitmap, validity_of(layout_, index, array));
    if (bitmap == nullptr || slice.length == 0) return {};
    // A slice knows its nulls only if all values are alike.
    const bool whole = slice.length == array.length;
    const bool all = array.null_count == array.length;
    shape.null_count = whole ? array.null_count : all ? slice.length : unknown_nulls;
    if (!node.nullable && shape.null_count > 0) {
      return fail(Error::schema, "'{}' has {} nulls, its schema allows none", path(index), shape.null_count);
    }
    bits(source, bitmap, slice);
    return {};
  }

  static void bits(BufferSource& source, const void* bitmap, Slice slice) noexcept {
    const auto first = static_cast<std::uint64_t>(slice.first);
    source.address = address_of(bitmap) + first / 8;
    source.bit_offset = static_cast<std::uint8_t>(first % 8);
    source.bytes = bitmap_bytes(first % 8 + static_cast<std::uint64_t>(slice.length));
  }

  Status fixed(std::uint32_t index, const NodeLayout& node, const ArrowArray& array, Slice slice) {
    BufferSource& source = view_.buffers[node.buffer + 1];
    source = {};
    if (slice.length == 0 || (node.value_bytes == 0 && node.type != Type::boolean)) return {};
    if (array.buffers[1] == nullptr) {
      return fail(Error::schema, "'{}' has {} values, but no buffer of values", path(index), array.length);
    }
    if (node.type == Type::boolean) {
      bits(source, array.buffers[1], slice);
      return {};
    }
    const auto first = static_cast<std::uint64_t>(slice.first);
    std::uint64_t end = 0;
    if (!checked_mul(first + static_cast<std::uint64_t>(slice.length), node.value_bytes, end)) {
      return fail(Error::schema, "'{}' has {} values of {} bytes, which is too large", path(index), slice.length,
                  node.value_bytes);
    }
    source.address = address_of(array.buffers[1]) + first * node.value_bytes;
    source.bytes = end - first * node.value_bytes;
    return {};
  }

  // Any value of a dense union may be anywhere in its child, so the children are shown whole.
  Status union_values(std::uint32_t index, const NodeLayout& node, const ArrowArray& array, Slice slice) {
    for (std::uint32_t i = 0; i < node.buffers; ++i) {
      BufferSource& source = view_.buffers[node.buffer + i];
      source = {};
      if (slice.length == 0) continue;
      const std::uint64_t width = layout_.buffers[node.buffer + i].kind == BufferKind::places ? 4 : 1;
      if (array.buffers[i] == nullptr) {
        return fail(Error::schema, "'{}' has {} values, but no {}", path(index), array.length,
                    width == 1 ? "type codes" : "offsets");
      }
      source.address = address_of(array.buffers[i]) + static_cast<std::uint64_t>(slice.first) * width;
      source.bytes = static_cast<std::uint64_t>(slice.length) * width;
    }
    const bool dense = node.type == Type::dense_union;
    for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout_.nodes[at].end) {
      const ArrowArray* const values = array.children[i];
      const bool whole = dense && slice.length > 0 && values != nullptr;
      OFP_TRY(child(at, values, dense ? 0 : slice.first, dense ? (whole ? values->length : 0) : slice.length));
    }
    return {};
  }

  template <class Offset>
  Status variable(std::uint32_t index, const NodeLayout& node, const ArrowArray& array, Slice slice) {
    BufferSource& source = view_.buffers[node.buffer + 1];
    source = {};
    Offset first = 0;
    Offset last = 0;
    if (slice.length > 0) {
      const auto* offsets = static_cast<const Offset*>(array.buffers[1]);
      if (offsets == nullptr)
        return fail(Error::schema, "'{}' has {} values, but no offsets", path(index), array.length);
      first = offsets[slice.first];
      last = offsets[slice.first + slice.length];
      if (first < 0 || last < first) {
        return fail(Error::schema, "the offsets of '{}' run from {} to {}, expected ascending from 0 or more",
                    path(index), first, last);
      }
      source.address = address_of(offsets + slice.first);
      source.bytes = (static_cast<std::uint64_t>(slice.length) + 1) * sizeof(Offset);
    }
    if (node.children > 0) return child(index + 1, array.children[0], first, last - first);

    BufferSource& data = view_.buffers[node.buffer + 2];
    data = {};
    if (first == last) return {};
    if (array.buffers[2] == nullptr) {
      return fail(Error::schema, "'{}' has offsets up to {}, but no data", path(index), last);
    }
    data.address = address_of(array.buffers[2]) + static_cast<std::uint64_t>(first);
    data.bytes = static_cast<std::uint64_t>(last - first);
    return {};
  }

  const Layout& layout_;
  BatchView& view_;
  Gatherer gatherer_;
};

// One column of flatten_plain: its chain of fixed_list down to the values.
Status plain_column(const Layout& layout, std::uint32_t index, std::int64_t rows, const PlainColumn& column,
                    BatchView& view) {
  std::int64_t length = rows;
  const std::uint32_t top = index;
  for (;; ++index) {
    const NodeLayout& node = layout.nodes[index];
    view.nodes[index] = {length, 0};
    if (node.buffers > 0) view.buffers[node.buffer] = {};
    if (index == top && column.validity != 0 && column.null_count != 0 && rows > 0) {
      view.nodes[index].null_count = column.null_count;
      view.buffers[node.buffer] = {column.validity, bitmap_bytes(static_cast<std::uint64_t>(rows))};
    }
    if (node.type != Type::fixed_list) break;
    if (__builtin_mul_overflow(length, static_cast<std::int64_t>(node.list_size), &length)) {
      return fail(Error::schema, "'{}' has {} lists of {} values, which is too large", path_of(layout, top), rows,
                  node.list_size);
    }
  }
  const NodeLayout& leaf = layout.nodes[index];
  const bool boolean = leaf.type == Type::boolean;
  if (column.data != 0 && index == top && leaf.dictionary == 0 && leaf.children == 0 && leaf.buffers == 3) {
    const std::uint64_t width = layout.buffers[leaf.buffer + 1].kind == BufferKind::offsets32 ? 4 : 8;
    view.buffers[leaf.buffer + 1] = {};
    view.buffers[leaf.buffer + 2] = {};
    if (rows == 0) return {};
    view.buffers[leaf.buffer + 1] = {
        .address = column.address, .bytes = (static_cast<std::uint64_t>(rows) + 1) * width, .memory = column.memory};
    view.buffers[leaf.buffer + 2] = {.address = column.data, .bytes = column.data_bytes, .memory = column.memory};
    return {};
  }
  if (leaf.buffers != 2 || leaf.dictionary != 0 || leaf.children != 0) {
    return fail(Error::unsupported, "'{}' is not of a fixed width; a plain array cannot be given for {}",
                path_of(layout, top), type_name(leaf.type));
  }
  BufferSource& source = view.buffers[leaf.buffer + 1];
  source = {};
  const auto count = static_cast<std::uint64_t>(length);
  if (count == 0 || (leaf.value_bytes == 0 && !boolean)) return {};
  if (column.address == 0 && column.memory == 0)
    return fail(Error::invalid, "the address of '{}' is null, for {} rows", path_of(layout, top), rows);
  const std::uint64_t width = boolean ? 1 : leaf.value_bytes;
  source.address = column.address;
  source.memory = column.memory;
  bool fits = true;
  if (column.stride_bytes != 0 && (boolean || column.stride_bytes != width)) {
    source.stride_bytes = column.stride_bytes;
    fits = checked_mul(count - 1, column.stride_bytes, source.bytes) && checked_add(source.bytes, width, source.bytes);
  } else if (boolean) {
    source.bytes = bitmap_bytes(count);
  } else {
    fits = checked_mul(count, width, source.bytes);
  }
  if (!fits) {
    return fail(Error::schema, "'{}' has {} values of {} bytes, {} apart, which is too large", path_of(layout, top),
                count, width, column.stride_bytes);
  }
  return {};
}

}  // namespace

Status flatten(const Layout& layout, const ArrowArray& batch, BatchView& view, OwnMemory& memory) {
  return Flattener(layout, view, memory).batch(batch);
}

Status flatten(const Layout& layout, const ArrowArray& batch, BatchView& view) {
  OFP_ASSERT(!layout.gathered);
  OwnMemory unused{MutableBytes()};
  return flatten(layout, batch, view, unused);
}

Status flatten_plain(const Layout& layout, std::int64_t rows, std::span<const PlainColumn> columns, BatchView& view) {
  if (rows < 0) return fail(Error::schema, "the batch has {} rows, at least 0 is allowed", rows);
  if (columns.size() != layout.columns.size()) {
    return fail(Error::schema, "the batch has {} columns, its schema {}", columns.size(), layout.columns.size());
  }
  view.rows = rows;
  view.nodes.resize(layout.nodes.size());
  view.buffers.resize(layout.buffers.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    OFP_TRY(plain_column(layout, layout.columns[i], rows, columns[i], view));
  }
  return {};
}

}  // namespace offpath::frame
