// Pieces that are sorted by identifier and step into a run of tracks.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "sift/split/scratch.h"
#include "sift/tracks/track_layout.h"
#include "sift/tracks/track_run.h"

namespace offpath::sift {

namespace {

struct Entry {
  std::uint64_t key;
  std::uint32_t row;  // counted over all segments
};

// The bits by which keys differ, from the lowest to the highest. Other bits are ignored.
struct KeyBits {
  std::uint64_t first = 0;  // some key
  std::uint32_t low = 0, count = 0;
};

KeyBits bits_of(std::span<const std::uint64_t> keys) noexcept {
  std::uint64_t differ = 0;
  for (const std::uint64_t key : keys) differ |= key ^ keys[0];
  if (differ == 0) return {keys[0], 0, 0};
  const auto low = static_cast<std::uint32_t>(std::countr_zero(differ));
  return {keys[0], low, static_cast<std::uint32_t>(std::bit_width(differ)) - low};
}

// Sorts `entries` by the bits of `number_of(entry)` from `low` on, stably. Entries move between `entries` and `other`,
// which has the same size; the result is in the returned one. Digits have at most eleven bits.
template <class Each, class NumberOf>
std::span<Each> sort_by_digits(std::span<Each> entries, std::span<Each> other, std::uint32_t low, std::uint32_t count,
                               const NumberOf& number_of) {
  constexpr std::uint32_t digit_bits_max = 11;
  constexpr std::size_t few = 1024;
  if (count == 0) return entries;
  if (entries.size() < few) {
    std::ranges::stable_sort(entries, {}, number_of);
    return entries;
  }
  const std::uint32_t passes = (count + digit_bits_max - 1) / digit_bits_max,
                      digit_bits = (count + passes - 1) / passes;
  const std::uint64_t mask = (1u << digit_bits) - 1;
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    const std::uint32_t shift = low + pass * digit_bits;
    std::array<std::uint32_t, 1u << digit_bits_max> at{};
    for (const Each& entry : entries) ++at[(number_of(entry) >> shift) & mask];
    std::exclusive_scan(at.begin(), at.end(), at.begin(), std::uint32_t{0});
    for (const Each& entry : entries) other[at[(number_of(entry) >> shift) & mask]++] = entry;
    std::swap(entries, other);
  }
  return entries;
}

struct SortedKeys {
  std::span<std::uint64_t> keys;
  std::span<std::uint32_t> order;  // the original position of each
};

// `keys`, for which there are `other` and `order`, sorted. Equal ones keep their order.
Result<SortedKeys> sort_keys(std::span<std::uint64_t> keys, std::span<std::uint64_t> other,
                             std::span<std::uint32_t> order) {
  const KeyBits bits = bits_of(keys);
  if (bits.count <= 32) {  // the usual case: an entry is half as long if it has only the differing bits
    constexpr std::uint32_t key_at = 32;
    const std::uint64_t differing = bits.count == 0 ? 0 : ~0ull >> (64 - bits.count);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = (keys[i] >> bits.low & differing) << key_at | i;
    keys = sort_by_digits(keys, other, key_at, bits.count, [](std::uint64_t entry) { return entry; });
    const std::uint64_t same = bits.first & ~(differing << bits.low);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      order[i] = static_cast<std::uint32_t>(keys[i]);
      keys[i] = keys[i] >> key_at << bits.low | same;
    }
    return SortedKeys{keys, order};
  }
  OFP_ASSIGN(Scratch scratch, Scratch::take(Scratch::bytes_of<Entry>(keys.size()) * 2));
  std::span<Entry> entries = scratch.next<Entry>(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) entries[i] = {keys[i], static_cast<std::uint32_t>(i)};
  entries = sort_by_digits(entries, scratch.next<Entry>(keys.size()), bits.low, bits.count,
                           [](const Entry& entry) { return entry.key; });
  for (std::size_t i = 0; i < keys.size(); ++i) {
    order[i] = entries[i].row;
    keys[i] = entries[i].key;
  }
  return SortedKeys{keys, order};
}

// Long identifiers of the rows of all segments, in the form that is compared: in place, or in `changed`.
void gather_long(const KeyForm& key, std::span<const Segment> segments, const std::vector<Piece>& pieces,
                 std::span<Bytes> keys, std::span<std::byte> changed) {
  Bytes* next = keys.data();
  for (const Segment& segment : segments)
    for (std::uint64_t row = 0; row < segment.rows; ++row) {
      Bytes value = pieces[segment.piece].view.value_of_id(segment.first_row + row);
      if (!changed.empty()) {
        key.order(value.data(), changed.data());
        value = changed.first(value.size());
        changed = changed.subspan(value.size());
      }
      *next++ = value;
    }
}

// The length of the common prefix of all keys.
std::size_t common_bytes(std::span<const Bytes> keys, std::span<const Entry> rows) noexcept {
  const Bytes first = keys[rows[0].row];
  std::size_t common = first.size();
  for (const Entry& each : rows) {
    const Bytes key = keys[each.row];
    common = std::min(common, key.size());
    if (common == 0 || std::memcmp(key.data(), first.data(), common) == 0) continue;
    common = static_cast<std::size_t>(std::ranges::mismatch(key.first(common), first.first(common)).in1 - key.begin());
  }
  return common;
}

// Like sort_keys, for long identifiers: replaces each by its rank. They are sorted by the eight bytes behind the common
// prefix; rows with equal ones usually belong to one particle. Others are compared or, if they are many, sorted in the
// same way by their own next eight bytes.
Result<SortedKeys> sort_long_keys(std::span<const Bytes> keys, std::span<std::uint64_t> ranks,
                                  std::span<std::uint32_t> order) {
  constexpr std::size_t compared_max = 1000;
  struct Part {
    std::size_t first, end;
  };
  if (keys.empty()) return SortedKeys{ranks, order};
  OFP_ASSIGN(Scratch scratch, Scratch::take(Scratch::bytes_of<Entry>(keys.size()) * 2));
  std::span<Entry> entries = scratch.next<Entry>(keys.size()), other = scratch.next<Entry>(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) entries[i] = {0, static_cast<std::uint32_t>(i)};
  const auto order_of = [&](const Entry& a, const Entry& b) { return compare(keys[a.row], keys[b.row]); };
  // `order` temporarily marks rows whose identifier differs from the row before.
  const auto mark = [&](std::size_t first, std::size_t end, bool same) {
    order[first] = 1;
    for (std::size_t i = first + 1; i < end; ++i) order[i] = !same && order_of(entries[i], entries[i - 1]) != 0;
  };
  std::vector<Part> parts{{0, keys.size()}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    const std::size_t count = part.end - part.first;
    const std::span<Entry> group = entries.subspan(part.first, count);
    const std::size_t common = common_bytes(keys, group);
    const std::span<std::uint64_t> heads = ranks.subspan(part.first, count);
    for (std::size_t i = 0; i < count; ++i) heads[i] = group[i].key = head_of(keys[group[i].row].subspan(common));
    const KeyBits bits = bits_of(heads);
    const std::span<Entry> sorted = sort_by_digits(group, other.subspan(part.first, count), bits.low, bits.count,
                                                   [](const Entry& entry) { return entry.key; });
    if (sorted.data() != group.data() && count == keys.size())
      std::swap(entries, other);
    else if (sorted.data() != group.data())
      std::ranges::copy(sorted, group.begin());
    for (std::size_t first = part.first, end = first; first < part.end; first = end) {
      bool same = true;
      for (end = first + 1; end < part.end && entries[end].key == entries[first].key; ++end)
        same = same && order_of(entries[end], entries[first]) == 0;
      if (!same && end - first > compared_max && end - first < count) {
        parts.push_back({first, end});
        continue;
      }
      // If a whole part is equal so far, the rest differs in trailing zeros, which only a comparison of lengths
      // distinguishes.
      if (!same)
        std::ranges::stable_sort(entries.subspan(first, end - first),
                                 [&](const Entry& a, const Entry& b) { return order_of(a, b) < 0; });
      mark(first, end, same);
    }
  }
  std::uint64_t rank = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ranks[i] = rank += order[i];
    order[i] = entries[i].row;
  }
  return SortedKeys{ranks, order};
}

template <class Value>
void gather(std::span<const std::uint32_t> order, const std::byte* from, std::byte* to) noexcept {
  for (std::size_t i = 0; i < order.size(); ++i)
    std::memcpy(to + i * sizeof(Value), from + std::size_t{order[i]} * sizeof(Value), sizeof(Value));
}

void gather(std::span<const std::uint32_t> order, const std::byte* from, std::uint32_t width, std::byte* to) noexcept {
  switch (width) {
    case 1:
      return gather<std::uint8_t>(order, from, to);
    case 2:
      return gather<std::uint16_t>(order, from, to);
    case 4:
      return gather<std::uint32_t>(order, from, to);
    case 8:
      return gather<std::uint64_t>(order, from, to);
    default:
      for (std::size_t i = 0; i < order.size(); ++i)
        std::memcpy(to + i * width, from + std::size_t{order[i]} * width, width);
  }
}

// All segments' values of a column, one after the other: in place if there is one segment; else in `scratch`.
const std::byte* join_column(std::span<const Segment> segments, const std::vector<Piece>& pieces, std::size_t column,
                             std::uint32_t width, std::span<std::byte> scratch) {
  std::size_t bytes = 0;
  for (const Segment& segment : segments) {
    const std::byte* const from = pieces[segment.piece].view.columns[column].values + segment.first_row * width;
    if (segments.size() == 1) return from;
    std::memcpy(scratch.data() + bytes, from, segment.rows * width);
    bytes += segment.rows * width;
  }
  return scratch.data();
}

}  // namespace

namespace {

// The bytes for each row of a sort's scratch.
struct SortBytes {
  std::uint64_t keys = 2 * sizeof(std::uint64_t);  // and as many to sort them into
  std::uint64_t order = sizeof(std::uint32_t);
  std::uint64_t long_keys = 0, changed = 0;  // where each long identifier lies; those that are not compared as they lie
  std::uint64_t joined = sizeof(std::int64_t);  // the widest column, or the steps
  std::uint64_t entries = 0;                    // of keys that differ in more than 32 bits, twice
  std::uint64_t compared = 0;                   // half as many, while equal beginnings of long ones are compared

  static SortBytes of(const RowForm& form) noexcept {
    SortBytes bytes;
    const KeyForm& key = form.key();
    for (const std::uint32_t width : form.widths()) bytes.joined = std::max<std::uint64_t>(bytes.joined, width);
    if (key.is_long() || key.value_bytes() > sizeof(std::uint32_t)) bytes.entries = 2 * sizeof(Entry);
    if (!key.is_long()) return bytes;
    bytes.long_keys = sizeof(Bytes);
    bytes.compared = sizeof(Entry) / 2;
    if (!key.is_compared_as_it_lies()) bytes.changed = key.value_bytes();
    return bytes;
  }
  // Of any form with such rows.
  static SortBytes of_rows(std::uint64_t row_bytes) noexcept {
    SortBytes bytes;
    bytes.joined = std::max(bytes.joined, row_bytes);
    bytes.entries = 2 * sizeof(Entry);
    bytes.long_keys = sizeof(Bytes);
    bytes.compared = sizeof(Entry) / 2;
    bytes.changed = row_bytes;
    return bytes;
  }
  [[nodiscard]] std::uint64_t all() const noexcept {
    return keys + order + long_keys + changed + joined + entries + compared;
  }
};

}  // namespace

std::uint64_t TrackRun::sort_bytes_per_row(const RowForm& form) noexcept { return SortBytes::of(form).all(); }

std::uint64_t TrackRun::sort_bytes_per_row(std::uint64_t row_bytes) noexcept {
  return SortBytes::of_rows(row_bytes).all();
}

Result<std::shared_ptr<const TrackRun>> TrackRun::sort(std::shared_ptr<const RowForm> form,
                                                       const std::vector<Piece>& pieces, const FrameMemory& memory,
                                                       const RunNotes* notes, std::uint64_t block_bytes) {
  // Segments are ordered by steps, and the sort keeps the order of equal keys: the result is ordered by (identifier,
  // step).
  const std::vector<Segment> segments = segments_of(pieces);
  std::uint64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.rows;
  if (rows > UINT32_MAX)
    return fail(Error::too_large, "{} rows would be sorted at once, at most {} can be", rows, UINT32_MAX);
  const bool is_long = form->key().is_long();
  const SortBytes row_bytes = SortBytes::of(*form);
  const std::uint64_t changed_bytes = rows * row_bytes.changed;
  const std::uint64_t joined_bytes = segments.size() == 1 ? 0 : rows * row_bytes.joined;
  OFP_ASSIGN(Scratch scratch,
             Scratch::take(2 * Scratch::bytes_of<std::uint64_t>(rows) + Scratch::bytes_of<std::uint32_t>(rows) +
                           Scratch::bytes_of<Bytes>(is_long ? rows : 0) + Scratch::bytes_of<std::byte>(changed_bytes) +
                           Scratch::bytes_of<std::byte>(joined_bytes)));
  const std::span<std::uint64_t> unsorted = scratch.next<std::uint64_t>(rows),
                                 other = scratch.next<std::uint64_t>(rows);
  const std::span<std::uint32_t> rows_order = scratch.next<std::uint32_t>(rows);
  const std::span<Bytes> long_keys = scratch.next<Bytes>(is_long ? rows : 0);
  SortedKeys all;
  if (is_long) {
    gather_long(form->key(), segments, pieces, long_keys, scratch.next<std::byte>(changed_bytes));
    OFP_ASSIGN(all, sort_long_keys(long_keys, unsorted, rows_order));
  } else {
    std::uint64_t* next = unsorted.data();
    for (const Segment& segment : segments) {
      const std::byte* const ids = pieces[segment.piece].view.ids.values + segment.first_row * form->key_bytes();
      for (std::uint64_t row = 0; row < segment.rows; ++row) *next++ = key_of(*form, ids + row * form->key_bytes());
    }
    OFP_ASSIGN(all, sort_keys(unsorted, other, rows_order));
  }
  const std::span<const std::uint64_t> sorted = all.keys;  // no bindings: a lambda needs them
  const std::span<const std::uint32_t> order = all.order;
  const auto long_key = [&](std::size_t i) { return LongKey::of(long_keys[order[i]]); };

  Layout layout(*form, block_bytes);
  for (std::size_t i = 0, first = 0; i < rows; ++i) {
    if (i + 1 < rows && sorted[i + 1] == sorted[i]) continue;
    if (is_long)
      layout.add(i + 1 - first, long_key(i));
    else
      layout.add(i + 1 - first, sorted[i]);
    first = i + 1;
  }
  if (rows == 0) layout.blocks.emplace_back();
  OFP_ASSIGN(const std::shared_ptr<TrackRun> made,
             make(form, std::move(layout), memory, notes, block_bytes != one_block));
  std::uint64_t first = 0;  // row of the block
  std::vector<std::uint64_t> firsts;
  for (const BlockPtr& block : made->in_memory_) {
    const BlockFill fill(block);
    std::uint64_t key = 0;
    for (std::size_t i = 0; i < block->rows(); ++i) {
      if (i > 0 && sorted[first + i] == sorted[first + i - 1]) continue;
      if (is_long)
        fill.put(key, long_key(first + i));
      else
        fill.put(key, sorted[first + i]);
      fill.begins[key++] = i;
    }
    fill.begins[key] = block->rows();
    firsts.push_back(first);
    first += block->rows();
  }
  // A block's rows of a column whose values lie there one after the other.
  const auto gather_all = [&](const std::byte* from, std::uint32_t width, const auto& to) {
    for (std::size_t i = 0; i < firsts.size(); ++i) {
      const BlockPtr& block = made->in_memory_[i];
      gather(order.subspan(firsts[i], block->rows()), from, width, to(BlockFill(block)));
    }
  };
  const std::span<std::byte> joined = scratch.next<std::byte>(joined_bytes);
  if (!segments.empty() && segments.front().step == segments.back().step) {
    for (const BlockPtr& block : made->in_memory_)
      std::fill_n(BlockFill(block).steps, block->rows(), segments.front().step);
  } else {
    std::byte* to = joined.data();
    for (const Segment& segment : segments)
      for (std::uint64_t row = 0; row < segment.rows; ++row, to += sizeof segment.step)
        std::memcpy(to, &segment.step, sizeof segment.step);
    gather_all(joined.data(), sizeof(std::int64_t),
               [](const BlockFill& fill) { return reinterpret_cast<std::byte*>(fill.steps); });
  }
  for (std::size_t column = 0; column < form->widths().size(); ++column) {
    if (column == form->key_column()) continue;
    const std::uint32_t width = form->widths()[column];
    gather_all(join_column(segments, pieces, column, width, joined), width,
               [&](const BlockFill& fill) { return fill.columns[column]; });
  }
  made->finish(notes);
  return made;
}

}  // namespace offpath::sift
