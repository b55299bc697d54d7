// The layout of a run's blocks in memory, and how they are filled: for track_run.cc, track_sort.cc and track_merge.cc.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "sift/tracks/track_run.h"

namespace offpath::sift {

// The offsets of a block's arrays in its memory.
struct BlockLayout {
  static constexpr std::uint64_t alignment = 64;
  std::uint64_t keys_at, begins_at, steps_at, long_begins_at = 0, long_bytes_at = 0, bytes = 0;
  std::vector<std::uint64_t> columns_at;

  BlockLayout(const RowForm& form, std::uint64_t rows, std::uint64_t keys, std::uint64_t long_bytes) {
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
    if (!form.key().is_long()) return;
    long_begins_at = place((keys + 1) * 8);
    long_bytes_at = place(long_bytes);
  }
};

inline std::uint64_t long_bytes_in(std::uint64_t) noexcept { return 0; }
inline std::uint64_t long_bytes_in(const LongKey& key) noexcept { return key.bytes.size(); }
// Beside its rows.
inline std::uint64_t key_bytes_in_run(std::uint64_t) noexcept { return 16; }
inline std::uint64_t key_bytes_in_run(const LongKey& key) noexcept { return 24 + key.bytes.size(); }

inline std::uint64_t row_bytes_in_run(const RowForm& form) noexcept { return 8 + form.row_bytes() - form.key_bytes(); }

// Cuts identifiers, which are added in order with the number of their rows, into blocks.
struct TrackRun::Layout {
  Layout(const RowForm& rows_form, std::uint64_t bytes_of_block) : form(rows_form), block_bytes(bytes_of_block) {}

  template <class Key>
  void add(std::uint64_t rows, const Key& key) {
    const std::uint64_t more = rows * row_bytes_in_run(form) + key_bytes_in_run(key);
    if (blocks.empty() || (filled > 0 && filled + more > block_bytes)) {
      blocks.emplace_back();
      filled = 0;
      if constexpr (std::is_same_v<Key, LongKey>) firsts.add(key.bytes);
    }
    filled += more;
    blocks.back().rows += rows;
    ++blocks.back().keys;
    blocks.back().bytes += long_bytes_in(key);  // until they have their places
  }
  // The bytes of all blocks.
  std::uint64_t place() {
    std::uint64_t at = 0;
    for (RunBlock& block : blocks) {
      block.at = at;
      block.bytes = BlockLayout(form, block.rows, block.keys, block.bytes).bytes;
      at += block.bytes;
    }
    blocks.shrink_to_fit();  // the list stays as long as the run
    firsts.shrink_to_fit();
    return at;
  }
  // The same for blocks whose bytes are given; the values are not trusted.
  Result<std::uint64_t> place_known() {
    std::uint64_t at = 0;
    for (RunBlock& block : blocks) {
      const std::uint64_t least = BlockLayout(form, block.rows, block.keys, 0).bytes;
      block.at = at;
      if (block.bytes < least || block.bytes % BlockLayout::alignment != 0 || !checked_add(at, block.bytes, at))
        return fail(Error::protocol, "a block of a run of tracks has {} bytes, its {} rows of {} identifiers need {}",
                    block.bytes, block.rows, block.keys, least);
    }
    blocks.shrink_to_fit();
    firsts.shrink_to_fit();
    return at;
  }

  const RowForm& form;
  std::uint64_t block_bytes, filled = 0;
  std::vector<RunBlock> blocks;
  FirstIdentifiers firsts;  // of blocks with long ones
};

// The arrays of a block that is being filled, which is not shared yet.
struct BlockFill {
  explicit BlockFill(const BlockPtr& block)
      : keys(block->keys_),
        begins(block->begins_),
        long_begins(block->long_begins_),
        long_bytes(block->long_bytes_),
        steps(block->steps_),
        columns(block->columns_) {
    if (long_begins != nullptr) *long_begins = 0;
  }
  // One after the other.
  void put(std::size_t number, std::uint64_t key) const noexcept { keys[number] = key; }
  void put(std::size_t number, const LongKey& key) const noexcept {
    keys[number] = key.head;
    if (!key.bytes.empty()) std::memcpy(long_bytes + long_begins[number], key.bytes.data(), key.bytes.size());
    long_begins[number + 1] = long_begins[number] + key.bytes.size();
  }

  std::uint64_t *keys, *begins, *long_begins;
  std::byte* long_bytes;
  std::int64_t* steps;
  std::span<std::byte* const> columns;
};

// Memory for so many bytes of tracks with so many rows.
[[nodiscard]] Result<FramePtr> take_object(std::uint64_t bytes, std::uint64_t rows, const FrameMemory& memory);

}  // namespace offpath::sift
