#include "frame/gather.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

namespace offpath::frame {

namespace {

constexpr std::uint64_t frame_alignment = 64;

// A view of bytes: up to 12 of them behind its length, or where the others are.
struct ByteView {
  std::int32_t length;
  char prefix[4];
  std::int32_t buffer, offset;
};
static_assert(sizeof(ByteView) == 16);
constexpr std::int32_t inside_bytes_max = 12;

bool is_set(const std::uint8_t* bits, std::int64_t at) noexcept { return (bits[at / 8] >> (at % 8) & 1) != 0; }

// visit(at): for each value of the spans, in their order; stops at the first that fails.
template <class Visit>
Status for_each(const Spans& spans, Visit visit) {
  for (const Span& span : spans)
    for (std::int64_t time = 0; time < span.times; ++time)
      for (std::int64_t at = span.first; at < span.first + span.count; ++at) OFP_TRY(visit(at));
  return {};
}

// How many of them are 0.
std::uint64_t copy_bits(const std::uint8_t* from, const Spans& spans, std::uint64_t length, std::byte* to) {
  std::memset(to, 0, bitmap_bytes(length));
  std::uint64_t row = 0, zeros = 0;
  (void)for_each(spans, [&](std::int64_t at) -> Status {
    const bool one = is_set(from, at);
    if (one) to[row / 8] |= static_cast<std::byte>(1U << (row % 8));
    zeros += one ? 0 : 1;
    ++row;
    return {};
  });
  return zeros;
}

void copy_values(const void* from, std::uint64_t value_bytes, const Spans& spans, std::byte* to) {
  for (const Span& span : spans) {
    const std::byte* const values =
        static_cast<const std::byte*>(from) + static_cast<std::uint64_t>(span.first) * value_bytes;
    const std::uint64_t bytes = static_cast<std::uint64_t>(span.count) * value_bytes;
    for (std::int64_t time = 0; time < span.times; ++time, to += bytes) std::memcpy(to, values, bytes);
  }
}

template <class Offset>
constexpr auto offset_max = static_cast<std::uint64_t>(std::numeric_limits<Offset>::max());

}  // namespace

bool OwnMemory::take(std::uint64_t bytes, std::byte*& to) noexcept {
  const std::uint64_t begin = align_up(used_, frame_alignment);
  if (begin > bytes_max_ || bytes > bytes_max_ - begin) return false;
  to = memory_ == nullptr ? nullptr : memory_ + begin;
  used_ = begin + bytes;
  return true;
}

Result<const std::uint8_t*> validity_of(const Layout& layout, std::uint32_t node, const ArrowArray& array) {
  if (array.null_count < unknown_nulls || array.null_count > array.length) {
    return fail(Error::schema, "'{}' has {} nulls in {} values", path_of(layout, node), array.null_count, array.length);
  }
  if (array.buffers[0] == nullptr && array.null_count > 0) {
    return fail(Error::schema, "'{}' has {} nulls, but no validity bitmap", path_of(layout, node), array.null_count);
  }
  return array.null_count == 0 ? nullptr : static_cast<const std::uint8_t*>(array.buffers[0]);
}

// ---- which values

std::string Gatherer::place(std::uint32_t node, std::int64_t row) const {
  return place_of(layout_, node, static_cast<std::uint64_t>(row));
}

std::uint64_t Gatherer::length(std::uint32_t node) const noexcept {
  return static_cast<std::uint64_t>(view_.nodes[node].length);
}

tl::unexpected<Failure> Gatherer::fail_large(std::uint32_t node) const {
  if (!memory_.counts()) return fail(Error::schema, "'{}' grew while it was copied", path(node));
  return fail(Error::too_large,
              "'{}': with views and runs expanded, the batch takes more than {} bytes (staging_bytes_max)", path(node),
              memory_.bytes_max());
}

Status Gatherer::add(std::uint32_t node, Spans& to, Span span) const {
  if (span.count == 0 || span.times == 0) return {};
  if (!to.empty() && span.times == 1 && to.back().times == 1 && to.back().first + to.back().count == span.first) {
    to.back().count += span.count;
    return {};
  }
  if (to.size() >= memory_.spans_max())
    return fail(Error::too_large,
                "'{}': more than {} runs, or lists that do not lie one behind the other; send fewer rows at a time",
                path(node), memory_.spans_max());
  to.push_back(span);
  return {};
}

// Checks spans that count from the array's first value.
Status Gatherer::count_from_buffers(std::uint32_t node, const ArrowArray* array, Spans& spans) const {
  if (array == nullptr || array->release == nullptr) {
    return fail(Error::invalid, "the array of '{}' is {}", path(node),
                array == nullptr ? "missing" : "already released");
  }
  std::int64_t end = 0;
  if (array->length < 0 || array->offset < 0 || __builtin_add_overflow(array->offset, array->length, &end)) {
    return fail(Error::schema, "'{}' has length {} and offset {}", path(node), array->length, array->offset);
  }
  for (Span& span : spans) {
    if (__builtin_add_overflow(span.first, span.count, &end) || span.first < 0 || end > array->length) {
      return fail(Error::schema, "'{}' has {} values, its parent shows {} from {} on", path(node), array->length,
                  span.count, span.first);
    }
    span.first += array->offset;
  }
  return {};
}

// From values of an array of runs to those of its child. Run ends are looked at where values are shown.
Status Gatherer::values_of_runs(std::uint32_t node, const ArrowArray& array, std::uint8_t end_bytes,
                                Spans& spans) const {
  if (array.n_children != 2 || array.children == nullptr)
    return fail(Error::schema, "'{}' has {} children, run_end_encoded has 2", path(node), array.n_children);
  const ArrowArray* const ends = array.children[0];
  Spans all{{0, ends != nullptr ? ends->length : 0}};
  OFP_TRY(count_from_buffers(node, ends, all));
  const std::int64_t runs = ends->length;
  if (ends->n_buffers != 2 || ends->buffers == nullptr || (runs > 0 && ends->buffers[1] == nullptr) ||
      (ends->null_count != 0 && ends->buffers[0] != nullptr))
    return fail(Error::schema, "'{}': its run ends are not {} integers without nulls", path(node), runs);
  const auto end_of = [&](std::int64_t run) -> std::int64_t {
    const std::byte* const at =
        static_cast<const std::byte*>(ends->buffers[1]) + static_cast<std::uint64_t>(ends->offset + run) * end_bytes;
    return end_bytes == 2 ? load<std::int16_t>(at) : end_bytes == 4 ? load<std::int32_t>(at) : load<std::int64_t>(at);
  };
  Spans found;
  for (const Span& span : spans) {
    std::int64_t run = 0;
    for (std::int64_t high = runs; run < high;) {
      const std::int64_t middle = run + (high - run) / 2;
      if (end_of(middle) <= span.first)
        run = middle + 1;
      else
        high = middle;
    }
    Spans several;
    Spans& shown = span.times == 1 ? found : several;
    const std::int64_t stop = span.first + span.count;
    for (std::int64_t at = span.first; at < stop; ++run) {
      if (run >= runs)
        return fail(Error::schema, "'{}' has {} runs up to value {}, it shows {}", path(node), runs,
                    runs > 0 ? end_of(runs - 1) : 0, stop);
      const std::int64_t begin = run > 0 ? end_of(run - 1) : 0, end = end_of(run);
      if (end <= begin)
        return fail(Error::schema, "'{}': run {} ends at value {}, the one before it at {}; run ends must grow",
                    path(node), run, end, begin);
      const std::int64_t taken = std::min(end, stop) - at;
      OFP_TRY(add(node, shown, {run, 1, taken}));
      at += taken;
    }
    if (span.times == 1) continue;
    if (several.size() == 1) {
      if (__builtin_mul_overflow(several[0].times, span.times, &several[0].times)) return fail_large(node);
      OFP_TRY(add(node, found, several[0]));
      continue;
    }
    for (std::int64_t time = 0; time < span.times; ++time)
      for (const Span& each : several) OFP_TRY(add(node, found, each));
  }
  spans = std::move(found);
  return {};
}

Status Gatherer::child(std::uint32_t node, const ArrowArray* array, Spans spans) {
  OFP_TRY(count_from_buffers(node, array, spans));
  return values(node, *array, std::move(spans));
}

Status Gatherer::values(std::uint32_t index, const ArrowArray& given, Spans spans) {
  const NodeLayout& node = layout_.nodes[index];
  const ArrowArray* array = &given;
  for (const std::uint8_t end_bytes : node.run_ends) {
    OFP_TRY(values_of_runs(index, *array, end_bytes, spans));
    array = array->children[1];
    OFP_TRY(count_from_buffers(index, array, spans));
  }
  std::erase_if(spans, [](const Span& span) { return span.count == 0; });
  if (!node.view && spans.empty()) return in_place_.show(index, *array, {array->offset, 0});
  if (!node.view && spans.size() == 1 && spans[0].times == 1)
    return in_place_.show(index, *array, {spans[0].first, spans[0].count});
  std::int64_t length = 0;
  for (const Span& span : spans) {
    std::int64_t values = 0;
    if (__builtin_mul_overflow(span.count, span.times, &values) || __builtin_add_overflow(length, values, &length))
      return fail_large(index);
  }
  OFP_TRY(check_array(index, *array));
  view_.nodes[index] = {length, node.type == Type::null ? length : 0};
  for (std::uint32_t i = 0; i < node.buffers; ++i) view_.buffers[node.buffer + i] = {};
  if (node.buffers > 0 && !is_union(node.type)) OFP_TRY(validity(index, *array, spans));
  return content(index, *array, std::move(spans));
}

Status Gatherer::check_array(std::uint32_t index, const ArrowArray& array) const {
  const NodeLayout& node = layout_.nodes[index];
  if (array.n_children != node.children || (node.children > 0 && array.children == nullptr)) {
    return fail(Error::schema, "'{}' has {} children, its schema {}", path(index), array.n_children, node.children);
  }
  if (node.type == Type::null) return {};
  // Views of bytes have any number of buffers with bytes, and one with the lengths of these.
  const bool any = node.view && node.children == 0;
  const std::int64_t expected = node.view ? 3 : node.buffers;
  if (array.buffers == nullptr || (any ? array.n_buffers < expected : array.n_buffers != expected)) {
    return fail(Error::schema, "'{}' has {} buffers, {}{} has {}{}", path(index),
                array.buffers == nullptr ? 0 : array.n_buffers, node.view ? "a view of " : "", type_name(node.type),
                expected, any ? " or more" : "");
  }
  return {};
}

// ---- their bytes

Status Gatherer::content(std::uint32_t index, const ArrowArray& array, Spans spans) {
  const NodeLayout& node = layout_.nodes[index];
  switch (node.type) {
    case Type::null:
      return {};
    case Type::boolean:
      return bits(index, array, spans);
    case Type::sparse_union:
      OFP_TRY(fixed(node.buffer, 1, array.buffers[0], spans));
      [[fallthrough]];
    case Type::structure:
      for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout_.nodes[at].end)
        OFP_TRY(child(at, array.children[i], i + 1 == node.children ? std::move(spans) : spans));
      return {};
    case Type::dense_union:
      return dense_union(index, array, spans);
    case Type::fixed_list: {
      const std::int64_t size = node.list_size;
      for (Span& span : spans)
        if (__builtin_mul_overflow(span.first, size, &span.first) ||
            __builtin_mul_overflow(span.count, size, &span.count))
          return fail_large(index);
      return child(index + 1, array.children[0], std::move(spans));
    }
    case Type::binary:
    case Type::utf8:
    case Type::map:
      return variable<std::int32_t>(index, array, spans);
    case Type::large_binary:
    case Type::large_utf8:
      return node.view ? byte_views(index, array, spans) : variable<std::int64_t>(index, array, spans);
    case Type::list:
      return node.view ? list_views<std::int32_t>(index, array, spans) : variable<std::int32_t>(index, array, spans);
    case Type::large_list:
      return node.view ? list_views<std::int64_t>(index, array, spans) : variable<std::int64_t>(index, array, spans);
    default:
      break;
  }
  OFP_TRY(fixed(node.buffer + 1, node.value_bytes, array.buffers[1], spans));
  if (node.dictionary == 0) return {};
  if (array.dictionary == nullptr)
    return fail(Error::schema, "'{}' has no dictionary, its schema has one", path(index));
  Spans all;
  OFP_TRY(add(index, all, {0, array.dictionary->length}));
  return child(layout_.parts[node.dictionary].node_begin, array.dictionary, std::move(all));
}

// Memory for a buffer of `count` values; null if it is only counted, or empty.
Result<std::byte*> Gatherer::take(std::uint32_t buffer, std::uint64_t count, std::uint64_t value_bytes) {
  BufferSource& source = view_.buffers[buffer];
  source = {};
  std::byte* to = nullptr;
  if (!checked_mul(count, value_bytes, source.bytes) || !memory_.take(source.bytes, to))
    return fail_large(layout_.buffers[buffer].node);
  source.address = reinterpret_cast<std::uint64_t>(to);
  return source.bytes > 0 ? to : nullptr;
}

Status Gatherer::validity(std::uint32_t index, const ArrowArray& array, const Spans& spans) {
  const NodeLayout& node = layout_.nodes[index];
  OFP_ASSIGN(const std::uint8_t* bitmap, validity_of(layout_, index, array));
  if (bitmap == nullptr) return {};
  OFP_ASSIGN(std::byte * to, take(node.buffer, bitmap_bytes(length(index)), 1));
  if (to == nullptr) return {};
  const std::uint64_t nulls = copy_bits(bitmap, spans, length(index), to);
  if (nulls > 0 && !node.nullable)
    return fail(Error::schema, "'{}' has {} nulls, its schema allows none", path(index), nulls);
  view_.nodes[index].null_count = static_cast<std::int64_t>(nulls);
  if (nulls == 0) view_.buffers[node.buffer] = {};
  return {};
}

Status Gatherer::bits(std::uint32_t index, const ArrowArray& array, const Spans& spans) {
  if (array.buffers[1] == nullptr) return fail(Error::schema, "'{}' has no buffer of values", path(index));
  OFP_ASSIGN(std::byte * to, take(layout_.nodes[index].buffer + 1, bitmap_bytes(length(index)), 1));
  if (to != nullptr) (void)copy_bits(static_cast<const std::uint8_t*>(array.buffers[1]), spans, length(index), to);
  return {};
}

Status Gatherer::fixed(std::uint32_t buffer, std::uint64_t value_bytes, const void* from, const Spans& spans) {
  const std::uint32_t node = layout_.buffers[buffer].node;
  if (from == nullptr && value_bytes > 0) return fail(Error::schema, "'{}' has no buffer of values", path(node));
  OFP_ASSIGN(std::byte * to, take(buffer, length(node), value_bytes));
  if (to != nullptr) copy_values(from, value_bytes, spans, to);
  return {};
}

template <class Offset>
Status Gatherer::variable(std::uint32_t index, const ArrowArray& array, const Spans& spans) {
  const NodeLayout& node = layout_.nodes[index];
  const auto* const offsets = static_cast<const Offset*>(array.buffers[1]);
  if (offsets == nullptr) return fail(Error::schema, "'{}' has {} values, but no offsets", path(index), array.length);
  Spans inner;
  std::uint64_t total = 0;
  for (const Span& span : spans) {
    const Offset first = offsets[span.first], last = offsets[span.first + span.count];
    if (first < 0 || last < first) {
      return fail(Error::schema, "the offsets of '{}' run from {} to {}, expected ascending from 0 or more",
                  path(index), first, last);
    }
    std::uint64_t shown = 0;
    if (!checked_mul(static_cast<std::uint64_t>(last - first), static_cast<std::uint64_t>(span.times), shown) ||
        !checked_add(total, shown, total) || total > offset_max<Offset>)
      return fail(Error::too_large, "'{}' shows more than {} values or bytes, which its offsets cannot count",
                  path(index), offset_max<Offset>);
    OFP_TRY(add(index, inner, {first, last - first, span.times}));
  }
  OFP_ASSIGN(std::byte * to, take(node.buffer + 1, length(index) + 1, sizeof(Offset)));
  Offset end = 0;
  const auto append = [&](std::int64_t at) -> Status {
    if (offsets[at + 1] < offsets[at]) return fail(Error::schema, "the offsets of '{}' do not ascend", path(index));
    end = static_cast<Offset>(end + (offsets[at + 1] - offsets[at]));
    store(to += sizeof(Offset), end);
    return {};
  };
  if (to != nullptr) {
    store(to, end);
    OFP_TRY(for_each(spans, append));
  }
  if (node.children > 0) return child(index + 1, array.children[0], std::move(inner));
  if (total == 0) return {};
  if (array.buffers[2] == nullptr) return fail(Error::schema, "'{}' has {} bytes, but no data", path(index), total);
  OFP_ASSIGN(std::byte * data, take(node.buffer + 2, total, 1));
  if (data != nullptr) copy_values(array.buffers[2], 1, inner, data);
  return {};
}

template <class Offset>
Status Gatherer::list_views(std::uint32_t index, const ArrowArray& array, const Spans& spans) {
  const NodeLayout& node = layout_.nodes[index];
  const ArrowArray* const values = array.children[0];
  if (length(index) == 0 || values == nullptr) return child(index + 1, values, {});
  OFP_ASSIGN(const std::uint8_t* bitmap, validity_of(layout_, index, array));
  const auto* const begins = static_cast<const Offset*>(array.buffers[1]);
  const auto* const sizes = static_cast<const Offset*>(array.buffers[2]);
  if (begins == nullptr || sizes == nullptr)
    return fail(Error::schema, "'{}' has {} lists, but no offsets or no sizes", path(index), array.length);
  OFP_ASSIGN(std::byte * to, take(node.buffer + 1, length(index) + 1, sizeof(Offset)));
  Spans inner;
  std::uint64_t end = 0;
  std::int64_t row = 0;
  if (to != nullptr) store(to, Offset{0});
  const auto append = [&](std::int64_t at) -> Status {
    if (bitmap == nullptr || is_set(bitmap, at)) {
      const std::int64_t begin = begins[at], size = sizes[at];
      if (begin < 0 || size < 0 || size > values->length || begin > values->length - size)
        return fail(Error::schema, "{}: a list of {} values at {} of its child, which has {}", place(index, row), size,
                    begin, values->length);
      if (!checked_add(end, static_cast<std::uint64_t>(size), end) || end > offset_max<Offset>)
        return fail(Error::too_large, "{}: {} values up to it, more than {} that its offsets count", place(index, row),
                    end, offset_max<Offset>);
      OFP_TRY(add(index, inner, {begin, size}));
    }
    ++row;
    if (to != nullptr) store(to += sizeof(Offset), static_cast<Offset>(end));
    return {};
  };
  OFP_TRY(for_each(spans, append));
  return child(index + 1, values, std::move(inner));
}

Status Gatherer::byte_views(std::uint32_t index, const ArrowArray& array, const Spans& spans) {
  const NodeLayout& node = layout_.nodes[index];
  if (length(index) == 0) return {};
  OFP_ASSIGN(const std::uint8_t* bitmap, validity_of(layout_, index, array));
  const auto* const views = static_cast<const std::byte*>(array.buffers[1]);
  const std::int64_t buffers = array.n_buffers - 3;  // validity, views, …, their lengths
  const void* const* const data = array.buffers + 2;
  const auto* const lengths = static_cast<const std::int64_t*>(array.buffers[array.n_buffers - 1]);
  if (views == nullptr || (buffers > 0 && lengths == nullptr))
    return fail(Error::schema, "'{}' has {} values, but no views or no lengths of its buffers", path(index),
                array.length);
  std::int64_t row = 0;
  // visit(bytes, length) for each value.
  const auto look = [&](auto visit) -> Status {
    row = 0;
    return for_each(spans, [&](std::int64_t at) -> Status {
      if (bitmap != nullptr && !is_set(bitmap, at)) {
        ++row;
        return visit(nullptr, 0);
      }
      const std::byte* const where = views + static_cast<std::uint64_t>(at) * sizeof(ByteView);
      const auto view = load<ByteView>(where);
      const void* bytes = where + offsetof(ByteView, prefix);
      if (view.length < 0) return fail(Error::schema, "{}: a view of {} bytes", place(index, row), view.length);
      if (view.length > inside_bytes_max) {
        const std::int32_t buffer = view.buffer, offset = view.offset;
        if (buffer < 0 || buffer >= buffers)
          return fail(Error::schema, "{}: a view into buffer {} of {}", place(index, row), buffer, buffers);
        if (offset < 0 || std::int64_t{offset} + view.length > lengths[buffer] || data[buffer] == nullptr)
          return fail(Error::schema, "{}: a view of {} bytes at {} of buffer {}, which has {}", place(index, row),
                      view.length, offset, buffer, lengths[buffer]);
        bytes = static_cast<const std::byte*>(data[buffer]) + offset;
      }
      ++row;
      return visit(bytes, static_cast<std::uint64_t>(view.length));
    });
  };
  std::uint64_t total = 0;
  const auto count = [&](const void*, std::uint64_t bytes) -> Status {
    if (!checked_add(total, bytes, total) || total > memory_.bytes_max()) return fail_large(index);
    return {};
  };
  // First, because they bound how many values there are to look at.
  OFP_ASSIGN(std::byte * offsets, take(node.buffer + 1, length(index) + 1, sizeof(std::int64_t)));
  OFP_TRY(look(count));
  OFP_ASSIGN(std::byte * to, take(node.buffer + 2, total, 1));
  if (offsets == nullptr) return {};
  std::uint64_t end = 0;
  store(offsets, end);
  const auto append = [&](const void* bytes, std::uint64_t given) -> Status {
    if (given > total - end) return fail_large(index);
    if (given > 0) std::memcpy(to + end, bytes, given);
    end += given;
    store(offsets += sizeof end, end);
    return {};
  };
  return look(append);
}

// Its children keep the values that are shown, in the order in which they are.
Status Gatherer::dense_union(std::uint32_t index, const ArrowArray& array, const Spans& spans) {
  const NodeLayout& node = layout_.nodes[index];
  OFP_TRY(fixed(node.buffer, 1, array.buffers[0], spans));
  const auto* const codes = static_cast<const std::int8_t*>(array.buffers[0]);
  const auto* const places = static_cast<const std::int32_t*>(array.buffers[1]);
  if (places == nullptr) return fail(Error::schema, "'{}' has {} values, but no offsets", path(index), array.length);
  OFP_ASSIGN(std::byte * to, take(node.buffer + 1, length(index), sizeof(std::int32_t)));
  struct Child {
    Spans spans;
    std::int32_t count = 0;
  };
  std::vector<Child> children(node.children);
  std::int64_t row = 0;
  const auto append = [&](std::int64_t at) -> Status {
    const int number = node.child_of(codes[at]);
    if (number < 0)
      return fail(Error::schema, "{}: the type code {}, which none of its types has", place(index, row), codes[at]);
    const ArrowArray* const values = array.children[number];
    if (places[at] < 0 || (values != nullptr && places[at] >= values->length))
      return fail(Error::schema, "{}: the offset {} in a child of {} values", place(index, row), places[at],
                  values != nullptr ? values->length : 0);
    Child& shown = children[static_cast<std::size_t>(number)];
    if (to != nullptr) store(to + static_cast<std::uint64_t>(row) * sizeof(std::int32_t), shown.count);
    if (shown.count == std::numeric_limits<std::int32_t>::max())
      return fail(Error::too_large, "{}: {} values of its type before it, which is all that offsets count",
                  place(index, row), shown.count);
    ++shown.count;
    ++row;
    return add(index, shown.spans, {places[at], 1});
  };
  OFP_TRY(for_each(spans, append));
  for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout_.nodes[at].end)
    OFP_TRY(child(at, array.children[i], std::move(children[i].spans)));
  return {};
}

}  // namespace offpath::frame
