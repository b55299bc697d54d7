// Arrays that a stream has sent before: sent again they need not be looked up and named again, by the program or to the
// agent (wire::Send::set). Sets stay known for as long as no memory is withdrawn.
//
// A send after a long wait finds the caches cold. So all that it needs of a known set lies in one run of cache lines,
// which are asked for at once, and which run that is follows from a table of two lines:
//
//     tags_     one 32-bit hash of (first array, rows) for each set
//     record    | epoch rows charge span_bytes set_bytes uses named | data[columns] | strides[columns]
//               | uses[columns] |
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "channel/host_end.h"
#include "wire/messages/stream_messages.h"

namespace offpath::host {

class KnownColumns {
 public:
  using RangeName = channel::HostEnd::RangeName;
  static constexpr std::size_t nowhere = wire::sets_max;

  struct Arrays {
    const void* const* data;
    const std::uint32_t* strides;
    std::uint64_t rows;
  };
  struct Record {
    std::uint64_t epoch;  // HostEnd::memory_epoch; 0: none
    std::uint64_t rows;
    std::uint64_t charge, span_bytes;
    std::uint32_t set_bytes;  // of the set that the agent keeps under this number: these columns or earlier ones
    std::uint16_t uses;       // regions
    bool named;               // the agent remembers them
  };

  // Keeps nothing of streams that have no columns, or more than a set may have.
  KnownColumns() = default;
  explicit KnownColumns(std::size_t columns);

  [[nodiscard]] bool keeps() const noexcept { return record_lines_ != 0; }
  // The place of these arrays, which is their set's number less one, or `nowhere`.
  [[nodiscard]] std::size_t find(std::uint64_t epoch, const Arrays& arrays) const noexcept;
  // The place that the next new arrays take.
  [[nodiscard]] std::size_t take_oldest() noexcept { return oldest_++ % wire::sets_max; }
  // `record.uses` is taken from `uses`, one for each region.
  void remember(std::size_t place, const Arrays& arrays, Record record, std::span<const RangeName> uses) noexcept;

  [[nodiscard]] const Record& operator[](std::size_t place) const noexcept;
  [[nodiscard]] std::span<const RangeName> uses(std::size_t place) const noexcept;
  // The memory of all sets.
  [[nodiscard]] std::uint64_t sets_bytes() const noexcept;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  [[nodiscard]] std::byte* bytes_of(std::size_t place) noexcept { return lines_[place * record_lines_].bytes; }
  [[nodiscard]] const std::byte* bytes_of(std::size_t place) const noexcept {
    return lines_[place * record_lines_].bytes;
  }
  [[nodiscard]] bool is(std::size_t place, std::uint64_t epoch, const Arrays& arrays) const noexcept;

  std::array<std::uint32_t, wire::sets_max> tags_{};
  std::size_t columns_ = 0;
  std::size_t strides_at_ = 0, uses_at_ = 0;  // bytes from a record's begin
  std::size_t record_lines_ = 0;
  std::size_t oldest_ = 0;
  std::vector<Line> lines_;
};

}  // namespace offpath::host
