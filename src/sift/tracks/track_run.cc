#include "sift/tracks/track_run.h"

#include <array>
#include <bit>
#include <numeric>

#include "sift/split/scratch.h"

namespace offpath::sift {

Result<std::shared_ptr<const TrackForm>> TrackForm::make(const frame::Schema& schema, std::string_view key) {
  auto made = std::make_shared<TrackForm>();
  OFP_ASSIGN(made->rows, RowForm::make(schema, key));
  frame::Schema answers = schema;
  answers.fields.insert(answers.fields.begin(), {.name = "step", .type = frame::Type::int64, .nullable = false});
  OFP_ASSIGN(made->answers, RowForm::make(answers, key));
  return made;
}

Result<std::shared_ptr<const RowForm>> TrackForm::answers_of(const std::vector<std::uint32_t>& columns) const {
  frame::Schema some = answers->schema();
  some.fields.erase(some.fields.begin() + 1, some.fields.end());
  for (const std::uint32_t column : columns) some.fields.push_back(rows->schema().fields[column]);
  return RowForm::make(some, rows->key_name());
}

Result<std::shared_ptr<const TrackForm>> TrackForm::of_frame(Bytes bytes, std::string_view key) {
  OFP_ASSIGN(const frame::FrameView parsed, frame::parse_frame(bytes));
  OFP_ASSIGN(const frame::Schema schema, frame::read_schema(bytes, parsed));
  return make(schema, key);
}

// ---- identifiers in order

namespace {
constexpr std::uint64_t sign_bit = 1ull << 63;
}

std::uint64_t key_of(const RowForm& form, std::uint64_t identifier) noexcept {
  if (form.key_bytes() == 4) {
    const auto low = static_cast<std::uint32_t>(identifier);
    identifier = form.key_is_signed() ? static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(low)}) : low;
  }
  return form.key_is_signed() ? identifier ^ sign_bit : identifier;
}

std::uint64_t key_of(const RowForm& form, const std::byte* value) noexcept {
  return key_of(form, form.key_bytes() == 4 ? load<std::uint32_t>(value) : load<std::uint64_t>(value));
}

void store_key(const RowForm& form, std::uint64_t key, std::byte* value) noexcept {
  const std::uint64_t identifier = form.key_is_signed() ? key ^ sign_bit : key;
  std::memcpy(value, &identifier, form.key_bytes());
}

// ---- memory

namespace {

// The offsets of a run's arrays in its memory.
struct RunLayout {
  std::uint64_t keys_at, begins_at, steps_at, bytes = 0;
  std::vector<std::uint64_t> columns_at;

  RunLayout(const RowForm& form, std::uint64_t rows, std::uint64_t keys) {
    constexpr std::uint64_t alignment = 64;
    const auto place = [&](std::uint64_t length) {
      const std::uint64_t at = bytes;
      bytes = align_up(bytes + length, alignment);
      return at;
    };
    keys_at = place(keys * 8);
    begins_at = place((keys + 1) * 8);
    steps_at = place(rows * 8);
    for (std::size_t i = 0; i < form.widths().size(); ++i)
      columns_at.push_back(i == form.key_column() ? 0 : place(rows * form.widths()[i]));
  }
};

}  // namespace

void TrackRun::lie_in(FramePtr object, std::shared_ptr<const RowForm> form, std::uint64_t rows, std::uint64_t keys) {
  const RunLayout layout(*form, rows, keys);
  std::byte* const base = object->buffer.data();
  rows_ = rows;
  keys_count_ = keys;
  keys_ = reinterpret_cast<std::uint64_t*>(base + layout.keys_at);
  begins_ = reinterpret_cast<std::uint64_t*>(base + layout.begins_at);
  steps_ = reinterpret_cast<std::int64_t*>(base + layout.steps_at);
  for (std::size_t i = 0; i < layout.columns_at.size(); ++i)
    columns_.push_back(i == form->key_column() ? nullptr : base + layout.columns_at[i]);
  object_ = std::move(object);
  form_ = std::move(form);
}

Result<std::shared_ptr<TrackRun>> TrackRun::make(std::shared_ptr<const RowForm> form, std::uint64_t rows,
                                                 std::uint64_t keys, const FrameMemory& memory, const RunNotes* notes) {
  const std::uint64_t body_bytes = RunLayout(*form, rows, keys).bytes;
  std::vector<std::byte> behind;
  if (notes != nullptr) {
    RunNotes whole = *notes;
    whole.rows = rows;
    whole.keys = keys;
    behind = encode(whole);
  }
  auto object = std::make_shared<service::Frame>();
  object->bytes = notes == nullptr ? body_bytes : kept_bytes(body_bytes, behind.size());
  object->rows = rows;
  OFP_ASSIGN(object->buffer, memory.cache->take(object->bytes, memory.user));
  if (notes != nullptr) write_notes(object->buffer.bytes(), body_bytes, behind);
  auto made = std::make_shared<TrackRun>();
  made->lie_in(std::move(object), std::move(form), rows, keys);
  return made;
}

Result<std::shared_ptr<const TrackRun>> TrackRun::open(std::shared_ptr<const RowForm> form, FramePtr object,
                                                       const RunNotes& notes) {
  OFP_ASSIGN(const KeptParts parts, open_kept({object->buffer.data(), object->bytes}));
  const std::uint64_t bytes = parts.body.size();
  // Such numbers can be listed: each row takes its step and its values.
  if (notes.rows > bytes / (8 + form->row_bytes() - form->key_bytes()) || notes.keys > notes.rows ||
      RunLayout(*form, notes.rows, notes.keys).bytes != bytes)
    return fail(Error::protocol, "a run of {} rows and {} identifiers cannot have {} bytes", notes.rows, notes.keys,
                bytes);
  auto made = std::make_shared<TrackRun>();
  made->lie_in(std::move(object), std::move(form), notes.rows, notes.keys);
  std::uint64_t before = 0;
  for (std::uint64_t key = 0; key < notes.keys; ++key) {
    const std::uint64_t begin = made->begins_[key];
    if ((key == 0 ? begin != 0 : begin <= before || made->keys_[key] <= made->keys_[key - 1]) || begin >= notes.rows)
      return fail(Error::protocol, "identifier {} of a run of {} rows begins at {}", key, notes.rows, begin);
    before = begin;
  }
  if (made->begins_[notes.keys] != notes.rows)
    return fail(Error::protocol, "a run of {} rows ends at {}", notes.rows, made->begins_[notes.keys]);
  return made;
}

RowRange TrackRun::find(std::uint64_t key) const noexcept {
  const std::span<const std::uint64_t> all = keys();
  const auto found = std::ranges::lower_bound(all, key);
  if (found == all.end() || *found != key) return {};
  return rows_of(static_cast<std::size_t>(found - all.begin()));
}

// ---- sort

namespace {

struct Entry {
  std::uint64_t key;
  std::uint32_t row;  // counted over all segments
};
static_assert(2 * sizeof(Entry) == TrackRun::sort_bytes_per_row);

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

Result<std::shared_ptr<const TrackRun>> TrackRun::sort(std::shared_ptr<const RowForm> form,
                                                       const std::vector<Piece>& pieces, const FrameMemory& memory,
                                                       const RunNotes* notes) {
  // Segments are ordered by steps, and the sort keeps the order of equal keys: the result is ordered by (identifier,
  // step).
  const std::vector<Segment> segments = segments_of(pieces);
  std::uint64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.rows;
  if (rows > UINT32_MAX)
    return fail(Error::too_large, "{} rows would be sorted at once, at most {} can be", rows, UINT32_MAX);
  std::uint32_t widest = sizeof(std::int64_t);
  for (const std::uint32_t width : form->widths()) widest = std::max(widest, width);
  OFP_ASSIGN(Scratch scratch,
             Scratch::take(2 * Scratch::bytes_of<std::uint64_t>(rows) + Scratch::bytes_of<std::uint32_t>(rows) +
                           Scratch::bytes_of<std::byte>(segments.size() == 1 ? 0 : rows * widest)));
  const std::span<std::uint64_t> unsorted = scratch.next<std::uint64_t>(rows);
  std::uint64_t* next = unsorted.data();
  for (const Segment& segment : segments) {
    const std::byte* const ids = pieces[segment.piece].view.ids.values + segment.first_row * form->key_bytes();
    for (std::uint64_t row = 0; row < segment.rows; ++row) *next++ = key_of(*form, ids + row * form->key_bytes());
  }
  OFP_ASSIGN(const SortedKeys all,
             sort_keys(unsorted, scratch.next<std::uint64_t>(rows), scratch.next<std::uint32_t>(rows)));
  const auto [sorted, order] = all;

  std::uint64_t keys = rows == 0 ? 0 : 1;
  for (std::size_t i = 1; i < rows; ++i) keys += sorted[i] != sorted[i - 1] ? 1 : 0;
  OFP_ASSIGN(const std::shared_ptr<TrackRun> made, make(form, rows, keys, memory, notes));
  std::uint64_t key = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (i > 0 && sorted[i] == sorted[i - 1]) continue;
    made->keys_[key] = sorted[i];
    made->begins_[key++] = i;
  }
  made->begins_[keys] = rows;
  const std::span<std::byte> joined = scratch.next<std::byte>(segments.size() == 1 ? 0 : rows * widest);
  if (!segments.empty() && segments.front().step == segments.back().step) {
    std::fill_n(made->steps_, rows, segments.front().step);
  } else {
    std::byte* to = joined.data();
    for (const Segment& segment : segments)
      for (std::uint64_t row = 0; row < segment.rows; ++row, to += sizeof segment.step)
        std::memcpy(to, &segment.step, sizeof segment.step);
    gather(order, joined.data(), sizeof(std::int64_t), reinterpret_cast<std::byte*>(made->steps_));
  }
  for (std::size_t column = 0; column < form->widths().size(); ++column) {
    if (column == form->key_column()) continue;
    const std::uint32_t width = form->widths()[column];
    gather(order, join_column(segments, pieces, column, width, joined), width, made->columns_[column]);
  }
  return made;
}

// ---- merge

void append_by_step(std::uint64_t key, std::vector<std::pair<const TrackRun*, RowRange>>& ranges,
                    std::vector<Stretch>& stretches) {
  std::erase_if(ranges, [](const auto& each) { return each.second.first == each.second.end; });
  // The range with the smallest next step gives all its rows up to the next range's step; usually that is all of them,
  // because pieces of later steps arrive later.
  while (!ranges.empty()) {
    const auto step_of_range = [](const auto& each) { return each.first->steps()[each.second.first]; };
    const auto least = std::ranges::min_element(ranges, {}, step_of_range);
    std::int64_t next = INT64_MAX;
    bool before_next = true;  // rows of step `next` itself come first too, because this range precedes the one that has
                              // it
    for (auto each = ranges.begin(); each != ranges.end(); ++each) {
      if (each == least || step_of_range(*each) > next) continue;
      if (step_of_range(*each) < next) before_next = least < each;
      next = step_of_range(*each);
    }
    auto& [run, range] = *least;
    const std::span<const std::int64_t> steps = run->steps().subspan(range.first, range.end - range.first);
    std::uint64_t rows = steps.size();
    if (ranges.size() > 1) {
      const auto end = before_next ? std::ranges::upper_bound(steps, next) : std::ranges::lower_bound(steps, next);
      rows = static_cast<std::uint64_t>(end - steps.begin());
    }
    stretches.push_back({run, key, range.first, rows});
    range.first += rows;
    if (range.first == range.end) ranges.erase(least);
  }
}

void copy_column(std::span<const Stretch> stretches, std::size_t column, std::uint32_t value_bytes,
                 std::byte* to) noexcept {
  for (const Stretch& stretch : stretches) {
    const std::size_t bytes = stretch.rows * value_bytes;
    std::memcpy(to, stretch.run->column(column) + stretch.first * value_bytes, bytes);
    to += bytes;
  }
}

void copy_steps(std::span<const Stretch> stretches, std::byte* to) noexcept {
  for (const Stretch& stretch : stretches) {
    const std::size_t bytes = stretch.rows * sizeof(std::int64_t);
    std::memcpy(to, stretch.run->steps().data() + stretch.first, bytes);
    to += bytes;
  }
}

Result<std::shared_ptr<const TrackRun>> TrackRun::merge(std::span<const std::shared_ptr<const TrackRun>> runs,
                                                        const FrameMemory& memory, const RunNotes* notes) {
  OFP_ASSERT(!runs.empty());
  std::vector<std::size_t> at(runs.size());  // next key of each run
  std::vector<Stretch> stretches;
  std::vector<std::uint64_t> keys, begins;
  std::vector<std::pair<const TrackRun*, RowRange>> ranges;
  std::uint64_t rows = 0;
  for (;;) {
    bool any = false;
    std::uint64_t key = UINT64_MAX;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (at[i] == runs[i]->keys_count_) continue;
      any = true;
      key = std::min(key, runs[i]->keys_[at[i]]);
    }
    if (!any) break;
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (at[i] < runs[i]->keys_count_ && runs[i]->keys_[at[i]] == key)
        ranges.emplace_back(runs[i].get(), runs[i]->rows_of(at[i]++));
    keys.push_back(key);
    begins.push_back(rows);
    for (const auto& [run, range] : ranges) rows += range.end - range.first;
    append_by_step(key, ranges, stretches);
  }
  const std::shared_ptr<const RowForm>& form = runs[0]->form_;
  OFP_ASSIGN(const std::shared_ptr<TrackRun> made, make(form, rows, keys.size(), memory, notes));
  std::ranges::copy(keys, made->keys_);
  std::ranges::copy(begins, made->begins_);
  made->begins_[keys.size()] = rows;
  copy_steps(stretches, reinterpret_cast<std::byte*>(made->steps_));
  for (std::size_t column = 0; column < form->widths().size(); ++column)
    if (column != form->key_column()) copy_column(stretches, column, form->widths()[column], made->columns_[column]);
  return made;
}

}  // namespace offpath::sift
