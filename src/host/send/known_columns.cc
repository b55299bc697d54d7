#include "host/send/known_columns.h"

#include <cstring>
#include <type_traits>

#include "base/bytes.h"
#include "base/hash/mix.h"

namespace offpath::host {

namespace {

constexpr std::size_t data_at = sizeof(KnownColumns::Record);
static_assert(std::is_trivially_copyable_v<KnownColumns::Record> && data_at == 40);
static_assert(std::is_trivially_copyable_v<KnownColumns::RangeName> && sizeof(KnownColumns::RangeName) == 8);

// Never 0, the tag of a place that was never taken. Which of the places with one tag is meant is found by comparing.
std::uint32_t tag_of(const KnownColumns::Arrays& arrays) noexcept {
  const auto first = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(arrays.data[0]));
  return static_cast<std::uint32_t>(((first ^ (arrays.rows * golden_ratio)) * golden_ratio) >> 32) | 1;
}

}  // namespace

KnownColumns::KnownColumns(std::size_t columns) : columns_(columns) {
  if (columns == 0 || columns > wire::set_buffers_max) return;
  strides_at_ = data_at + columns * sizeof(void*);
  uses_at_ = align_up(strides_at_ + columns * sizeof(std::uint32_t), alignof(std::uint64_t));
  record_lines_ = (uses_at_ + columns * sizeof(RangeName) + sizeof(Line) - 1) / sizeof(Line);
  lines_.resize(record_lines_ * wire::sets_max);
}

bool KnownColumns::is(std::size_t place, std::uint64_t epoch, const Arrays& arrays) const noexcept {
  const std::byte* const bytes = bytes_of(place);
  const Record& record = (*this)[place];
  return record.epoch == epoch && record.rows == arrays.rows &&
         std::memcmp(bytes + data_at, arrays.data, columns_ * sizeof *arrays.data) == 0 &&
         std::memcmp(bytes + strides_at_, arrays.strides, columns_ * sizeof *arrays.strides) == 0;
}

std::size_t KnownColumns::find(std::uint64_t epoch, const Arrays& arrays) const noexcept {
  if (!keeps()) return nowhere;
  const std::uint32_t tag = tag_of(arrays);
  for (std::size_t place = 0; place < tags_.size(); ++place) {
    if (tags_[place] != tag) continue;
    for (std::size_t line = 0; line < record_lines_; ++line) __builtin_prefetch(bytes_of(place) + line * sizeof(Line));
    if (is(place, epoch, arrays)) return place;
  }
  return nowhere;
}

void KnownColumns::remember(std::size_t place, const Arrays& arrays, Record record,
                            std::span<const RangeName> uses) noexcept {
  std::byte* const bytes = bytes_of(place);
  tags_[place] = tag_of(arrays);
  record.rows = arrays.rows;
  record.uses = static_cast<std::uint16_t>(uses.size());
  store(bytes, record);
  std::memcpy(bytes + data_at, arrays.data, columns_ * sizeof *arrays.data);
  std::memcpy(bytes + strides_at_, arrays.strides, columns_ * sizeof *arrays.strides);
  if (!uses.empty()) std::memcpy(bytes + uses_at_, uses.data(), uses.size_bytes());
}

const KnownColumns::Record& KnownColumns::operator[](std::size_t place) const noexcept {
  return *reinterpret_cast<const Record*>(bytes_of(place));
}

std::span<const KnownColumns::RangeName> KnownColumns::uses(std::size_t place) const noexcept {
  return {reinterpret_cast<const RangeName*>(bytes_of(place) + uses_at_), (*this)[place].uses};
}

std::uint64_t KnownColumns::sets_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t place = 0; keeps() && place < wire::sets_max; ++place) bytes += (*this)[place].set_bytes;
  return bytes;
}

}  // namespace offpath::host
