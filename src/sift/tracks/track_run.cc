#include "sift/tracks/track_run.h"

#include <algorithm>

#include "base/log.h"
#include "sift/tracks/track_layout.h"

namespace offpath::sift {

Status TrackForm::check_names(const frame::Schema& schema) {
  for (std::size_t i = 0; i < schema.fields.size(); ++i)
    if (schema.fields[i].name == step_name)
      return fail(Error::schema,
                  "column {} is called '{}', the name of the column with the steps of rows that tracks have: give it "
                  "another name",
                  i, step_name);
  return {};
}

Result<std::shared_ptr<const TrackForm>> TrackForm::make(const frame::Schema& schema, const KeyRule& key) {
  if (key.column == step_name) OFP_TRY(check_names(schema));
  auto made = std::make_shared<TrackForm>();
  OFP_ASSIGN(made->rows, RowForm::make(schema, key));
  frame::Schema answers = schema;
  answers.fields.insert(answers.fields.begin(),
                        {.name = std::string(step_name), .type = frame::Type::int64, .nullable = false});
  OFP_ASSIGN(made->answers, RowForm::make(answers, KeyRule(key.column, KeyBy::hash)));  // whose rows are never split
  return made;
}

Result<std::shared_ptr<const RowForm>> TrackForm::answers_of(const std::vector<std::uint32_t>& columns) const {
  frame::Schema some = answers->schema();
  some.fields.erase(some.fields.begin() + 1, some.fields.end());
  for (const std::uint32_t column : columns) some.fields.push_back(rows->schema().fields[column]);
  return RowForm::make(some, KeyRule(std::string(rows->key_name()), KeyBy::hash));
}

Result<std::shared_ptr<const TrackForm>> TrackForm::of_frame(Bytes bytes, const KeyRule& key) {
  OFP_ASSIGN(const frame::FrameView parsed, frame::parse_frame(bytes));
  OFP_ASSIGN(const frame::Schema schema, frame::read_schema(bytes, parsed));
  return make(schema, key);
}

// ---- memory

TrackBlock::TrackBlock(FramePtr object, std::byte* base, const RowForm& form, const RunBlock& block, bool is_copy)
    : object_(std::move(object)), is_copy_(is_copy), rows_(block.rows), keys_count_(block.keys), bytes_(block.bytes) {
  const BlockLayout layout(form, rows_, keys_count_, 0);
  keys_ = reinterpret_cast<std::uint64_t*>(base + layout.keys_at);
  begins_ = reinterpret_cast<std::uint64_t*>(base + layout.begins_at);
  steps_ = reinterpret_cast<std::int64_t*>(base + layout.steps_at);
  for (std::size_t i = 0; i < layout.columns_at.size(); ++i)
    columns_.push_back(i == form.key_column() ? nullptr : base + layout.columns_at[i]);
  if (!form.key().is_long()) return;
  long_begins_ = reinterpret_cast<std::uint64_t*>(base + layout.long_begins_at);
  long_bytes_ = base + layout.long_bytes_at;
  long_room_ = bytes_ - layout.long_bytes_at;
  if (!form.key().is_text()) long_width_ = form.key().value_bytes();
}

std::uint64_t TrackRun::bytes_max(const RowForm& form, std::uint64_t rows, std::uint64_t long_bytes) noexcept {
  const std::uint64_t key_bytes =
      form.key().is_long() ? key_bytes_in_run(LongKey{}) : key_bytes_in_run(std::uint64_t{});
  return rows * (row_bytes_in_run(form) + key_bytes) + long_bytes;
}

std::uint64_t TrackRun::list_bytes_max(const KeyForm& key) noexcept {
  if (!key.is_long()) return sizeof(RunBlock);
  return sizeof(RunBlock) + sizeof(std::size_t) + (key.is_text() ? long_key_bytes_max : key.value_bytes());
}

Result<FramePtr> take_object(std::uint64_t bytes, std::uint64_t rows, const FrameMemory& memory) {
  auto object = std::make_shared<service::Frame>();
  object->bytes = bytes;
  object->rows = rows;
  OFP_ASSIGN(object->buffer, memory.cache->take(bytes, memory.user));
  return object;
}

void TrackRun::lie_in(FramePtr object) {
  for (const RunBlock& block : blocks_)
    in_memory_.push_back(
        std::make_shared<const TrackBlock>(object, object->buffer.data() + block.at, *form_, block, false));
  bytes_ = object->buffer.capacity();
  object_ = std::move(object);
}

Result<std::shared_ptr<TrackRun>> TrackRun::make(std::shared_ptr<const RowForm> form, Layout layout,
                                                 const FrameMemory& memory, const RunNotes* notes, bool may_leave) {
  auto made = std::make_shared<TrackRun>();
  const std::uint64_t body_bytes = layout.place();
  made->blocks_ = std::move(layout.blocks);
  if (may_leave) made->firsts_ = std::move(layout.firsts);
  made->form_ = std::move(form);
  made->may_leave_ = may_leave;
  for (const RunBlock& block : made->blocks_) made->rows_ += block.rows;
  std::uint64_t bytes = body_bytes;
  if (notes != nullptr) {
    RunNotes whole = *notes;
    made->note_blocks(whole);
    bytes = kept_bytes(body_bytes, encode(whole).size());
  }
  OFP_ASSIGN(FramePtr object, take_object(bytes, made->rows_, memory));
  made->lie_in(std::move(object));
  return made;
}

void TrackRun::note_blocks(RunNotes& notes) const {
  if (!may_leave_) return;
  notes.blocks = blocks_;
  for (std::size_t i = 0; i < firsts_.size(); ++i) notes.firsts.emplace_back(text_of(firsts_[i]));
}

void TrackRun::finish(const RunNotes* notes) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    RunBlock& block = blocks_[i];
    const std::span<const std::uint64_t> keys = in_memory_[i]->keys();
    if (!keys.empty()) {
      block.first_key = keys.front();
      block.last_key = keys.back();
    }
    if (!may_leave_) continue;
    // The gaps between the arrays are written as well; they have no meaning.
    block.crc32c = crc32c({object_->buffer.data() + block.at, block.bytes});
  }
  if (notes == nullptr) return;
  RunNotes whole = *notes;
  whole.rows = rows_;
  whole.keys = 0;
  for (const RunBlock& block : blocks_) whole.keys += block.keys;
  note_blocks(whole);
  const std::uint64_t body_bytes = blocks_.back().at + blocks_.back().bytes;
  write_notes(object_->buffer.bytes(), body_bytes, encode(whole));
}

Status TrackRun::check_blocks(const RunNotes& notes, std::uint64_t bytes) const {
  const bool is_long = form_->key().is_long();
  if (notes.firsts.size() != (is_long ? notes.blocks.size() : 0))
    return fail(Error::protocol, "{} first identifiers are noted for the {} blocks of a run", notes.firsts.size(),
                notes.blocks.size());
  std::uint64_t rows = 0, keys = 0;
  for (std::size_t i = 0; i < notes.blocks.size(); ++i) {
    const RunBlock& block = notes.blocks[i];
    bool is_after = i == 0 || block.first_key > notes.blocks[i - 1].last_key;
    if (is_long) {
      const std::size_t length = notes.firsts[i].size();
      if (length > long_key_bytes_max || (!form_->key().is_text() && length != form_->key().value_bytes()))
        return fail(Error::protocol, "the first identifier of block {} of a run has {} bytes", i, length);
      const LongKey first = LongKey::of(bytes_of(notes.firsts[i]));
      is_after = first.head == block.first_key &&
                 (i == 0 || (block.first_key >= notes.blocks[i - 1].last_key && notes.firsts[i - 1] < notes.firsts[i]));
    }
    // Such numbers can be listed: each row takes its step and its values.
    if (block.rows > bytes / row_bytes_in_run(*form_) || block.keys > block.rows || block.keys == 0 ||
        block.first_key > block.last_key || !is_after)
      return fail(Error::protocol, "a block of a run of {} rows has {} rows and {} identifiers, {} to {}", notes.rows,
                  block.rows, block.keys, block.first_key, block.last_key);
    rows += block.rows;
    keys += block.keys;
  }
  if (rows != notes.rows || keys != notes.keys)
    return fail(Error::protocol, "the blocks of a run have {} rows and {} identifiers, the run has {} and {}", rows,
                keys, notes.rows, notes.keys);
  return {};
}

Status TrackBlock::check() const {
  std::uint64_t before = 0;
  for (std::uint64_t key = 0; key < keys_count_; ++key) {
    const std::uint64_t begin = begins_[key];
    if ((key == 0 ? begin != 0 : begin <= before) || begin >= rows_)
      return fail(Error::protocol, "identifier {} of a run of {} rows begins at {}", key, rows_, begin);
    before = begin;
    if (long_begins_ == nullptr && key > 0 && keys_[key] <= keys_[key - 1])
      return fail(Error::protocol, "identifier {} of a run of {} rows is not more than the one before it", key, rows_);
  }
  if (const std::uint64_t end = keys_count_ == 0 ? 0 : begins_[keys_count_]; end != rows_)
    return fail(Error::protocol, "a run of {} rows ends at {}", rows_, end);
  if (long_begins_ == nullptr) return {};
  for (std::uint64_t key = 0; key < keys_count_; ++key) {
    const std::uint64_t begin = long_begins_[key], end = long_begins_[key + 1];
    if (begin > end || end > long_room_ || end - begin > long_key_bytes_max || (key == 0 && begin != 0) ||
        (long_width_ != 0 && end - begin != long_width_))
      return fail(Error::protocol, "long identifier {} of a run has bytes {} to {} of {}", key, begin, end, long_room_);
    if (keys_[key] != head_of(long_bytes(key)) || (key > 0 && long_key(key) <= long_key(key - 1)))
      return fail(Error::protocol, "long identifier {} of a run is not more than the one before it", key);
  }
  return {};
}

Result<std::shared_ptr<const TrackRun>> TrackRun::open(std::shared_ptr<const RowForm> form, FramePtr object,
                                                       const RunNotes& notes) {
  if (object->unread && notes.blocks.empty()) {
    OFP_ASSIGN(object, object->unread->read());
  }
  // Such numbers can be listed: each row takes its step and its values.
  if (notes.rows > object->bytes / row_bytes_in_run(*form) || notes.keys > notes.rows)
    return fail(Error::protocol, "a run of {} rows and {} identifiers cannot have {} bytes", notes.rows, notes.keys,
                object->bytes);
  auto made = std::make_shared<TrackRun>();
  made->form_ = form;
  Layout layout(*form, one_block);
  layout.blocks = notes.blocks;
  for (const std::string& first : notes.firsts) layout.firsts.add(bytes_of(first));
  made->may_leave_ = !notes.blocks.empty();
  if (made->may_leave_) OFP_TRY(made->check_blocks(notes, object->bytes));
  if (!made->may_leave_) layout.blocks.push_back({.rows = notes.rows, .keys = notes.keys});
  std::uint64_t body_bytes = 0;
  if (form->key().is_long()) {
    if (!made->may_leave_) {
      OFP_ASSIGN(const KeptParts whole, open_kept({object->buffer.data(), object->bytes}));
      layout.blocks.back().bytes = whole.body.size();
    }
    OFP_ASSIGN(body_bytes, layout.place_known());
  } else {
    body_bytes = layout.place();
  }
  made->blocks_ = std::move(layout.blocks);
  made->firsts_ = std::move(layout.firsts);
  made->rows_ = notes.rows;
  made->bytes_ = BufferCache::class_bytes(object->bytes);
  if (object->unread) {
    if (body_bytes > object->bytes)
      return fail(Error::protocol, "a run of {} rows and {} identifiers cannot have {} bytes", notes.rows, notes.keys,
                  object->bytes);
    made->object_ = std::move(object);
    return made;
  }
  OFP_ASSIGN(const KeptParts parts, open_kept({object->buffer.data(), object->bytes}));
  if (body_bytes != parts.body.size())
    return fail(Error::protocol, "a run of {} rows and {} identifiers cannot have {} bytes", notes.rows, notes.keys,
                parts.body.size());
  made->lie_in(std::move(object));
  for (std::size_t i = 0; i < made->blocks_.size(); ++i) {
    OFP_TRY(made->in_memory_[i]->check());
    if (const auto keys = made->in_memory_[i]->keys(); !keys.empty()) {
      made->blocks_[i].first_key = keys.front();
      made->blocks_[i].last_key = keys.back();
    }
  }
  return made;
}

// ---- blocks

RowRange TrackBlock::find(std::uint64_t key) const noexcept {
  const std::span<const std::uint64_t> all = keys();
  const auto found = std::ranges::lower_bound(all, key);
  if (found == all.end() || *found != key) return {};
  return rows_of(static_cast<std::size_t>(found - all.begin()));
}

namespace {

// How many of the first `count` are less than the key, or not more; `at` gives each, ascending.
template <class At>
std::size_t count_before(std::size_t count, const LongKey& key, bool or_equal, const At& at) noexcept {
  std::size_t first = 0;
  while (count > 0) {
    const std::size_t half = count / 2;
    const auto order = at(first + half) <=> key;
    if (order < 0 || (or_equal && order == 0)) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

}  // namespace

RowRange TrackBlock::find(const LongKey& key) const noexcept {
  const std::size_t number = count_before(keys_count_, key, false, [this](std::size_t i) { return long_key(i); });
  if (number == keys_count_ || long_key(number) != key) return {};
  return rows_of(number);
}

std::optional<std::size_t> TrackRun::find_block(const LongKey& key) const noexcept {
  std::size_t number = 0;
  if (firsts_.size() > 0) {
    number = count_before(firsts_.size(), key, true, [this](std::size_t i) { return LongKey::of(firsts_[i]); });
    if (number-- == 0) return std::nullopt;
  }
  const RunBlock& block = blocks_[number];
  if (block.keys == 0 || key.head < block.first_key || key.head > block.last_key) return std::nullopt;
  return number;
}

std::optional<std::size_t> TrackRun::find_block(std::uint64_t key) const noexcept {
  const auto found = std::ranges::lower_bound(blocks_, key, {}, &RunBlock::last_key);
  if (found == blocks_.end() || found->first_key > key || found->keys == 0) return std::nullopt;
  return static_cast<std::size_t>(found - blocks_.begin());
}

FramePtr TrackRun::object() const {
  const std::lock_guard lock(mutex_);
  return object_;
}

bool TrackRun::is_in_memory() const {
  const std::lock_guard lock(mutex_);
  return !in_memory_.empty();
}

void TrackRun::leave_memory(FramePtr unread) const {
  OFP_ASSERT(may_leave_);
  std::vector<BlockPtr> left;  // freed without the lock
  const std::lock_guard lock(mutex_);
  left.swap(in_memory_);
  object_.swap(unread);
}

Result<BlockPtr> TrackRun::block(std::size_t number, const FrameMemory& memory) const {
  FramePtr unread;
  {
    const std::lock_guard lock(mutex_);
    if (!in_memory_.empty()) return in_memory_[number];
    unread = object_;
  }
  return read_block(number, *unread->unread, memory);
}

Result<BlockPtr> TrackRun::read_block(std::size_t number, const service::Unread& from,
                                      const FrameMemory& memory) const {
  constexpr int tries = 2;  // the bytes on disk may be correct although one read was wrong
  const RunBlock& place = blocks_[number];
  OFP_ASSIGN(const FramePtr copy, take_object(place.bytes, place.rows, memory));
  std::uint32_t sum = ~place.crc32c;
  for (int i = 0; i < tries && sum != place.crc32c; ++i) {
    const Status read = from.read_part(place.at, copy->buffer.bytes());
    if (!read && read.error().code == Error::protocol) return damaged(number, from, read.error().message);
    if (!read)
      return fail(read.error().code, "block {} of {} of a run of tracks cannot be read: {}", number, blocks_.size(),
                  read.error().message);
    sum = crc32c(copy->buffer.bytes());
  }
  if (sum != place.crc32c)
    return damaged(number, from, fmt::format("its checksum is {:08x}, {:08x} was written", sum, place.crc32c));
  auto block = std::make_shared<const TrackBlock>(copy, copy->buffer.data(), *form_, place, true);
  if (const Status checked = block->check(); !checked) return damaged(number, from, checked.error().message);
  return block;
}

// Logs it once for the run, whoever meets it first.
tl::unexpected<Failure> TrackRun::damaged(std::size_t number, const service::Unread& in, std::string_view why) const {
  const RunBlock& block = blocks_[number];
  const std::string what =
      fmt::format("block {} of {} of a run of tracks, in {}, is corrupt: {}; its {} rows of {} identifiers are lost",
                  number, blocks_.size(), in.described(), why, block.rows, block.keys);
  if (!damaged_.exchange(true))
    log(LogLevel::error,
        "{}. All other rows are read as before, and this run is not merged any more. Check the disk; write the "
        "readable "
        "rows with a query that leaves these identifiers out, or put the lost rows into another pool",
        what);
  return fail(Error::io, "{}", what);
}

Status RunCursor::open(const FrameMemory& memory) {
  if (block_ != nullptr || at_end()) return {};
  OFP_ASSIGN(block_, run_->block(number_, memory));
  return {};
}

BlockPtr RunCursor::next() {
  if (++key_ < block_->keys().size()) return nullptr;
  key_ = 0;
  ++number_;
  return std::exchange(block_, nullptr);
}

}  // namespace offpath::sift
