#include "tcp/stack/half_open.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t cookie_mss[8] = {216, 536, 1024, 1220, 1360, 1440, 1460, 8940};  // 1440, 8940: of IPv6
constexpr TimeNs cookie_minute_ns = SynCookies::valid_ns / 2;
constexpr std::uint32_t no_scale = 15;

}  // namespace

HalfOpen* HalfOpenTable::find(const FlowKey& key) noexcept {
  const std::uint32_t index = index_of(key);
  return index == FlowTable::nobody ? nullptr : &entries_[index];
}

HalfOpen* HalfOpenTable::add(const FlowKey& key) {
  if (table_.size() >= entries_max_) return nullptr;
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  table_.insert(key, index);
  entries_[index] = {};
  entries_[index].key = key;
  return &entries_[index];
}

void HalfOpenTable::remove(const FlowKey& key) noexcept {
  const std::uint32_t index = index_of(key);
  if (index == FlowTable::nobody) return;
  table_.erase(key, index);
  wheel_.cancel(index);
  free_.push_back(index);
}

void HalfOpenTable::set_timer(const FlowKey& key, TimeNs due) { wheel_.set(index_of(key), due); }

HalfOpen* HalfOpenTable::fire(TimeNs now) {
  const std::uint32_t index = wheel_.fire(now);
  return index == TimerWheel::nobody ? nullptr : &entries_[index];
}

std::uint32_t SynCookies::cookie(const FlowKey& key, Sequence irs, std::uint64_t minute,
                                 std::uint32_t mss_index) const noexcept {
  const std::uint64_t hash =
      keyed_hash(key_, key, std::uint64_t{irs.value()} << 32 | (minute & 0xfffffff) << 3 | mss_index);
  return static_cast<std::uint32_t>(minute & 31) << 27 | mss_index << 24 | (hash & 0xffffff);
}

Sequence SynCookies::make(const FlowKey& key, Sequence irs, std::uint16_t mss, TimeNs now) const noexcept {
  std::uint32_t index = 0;
  while (index < 7 && cookie_mss[index + 1] <= mss) ++index;
  return Sequence(cookie(key, irs, static_cast<std::uint64_t>(now / cookie_minute_ns), index));
}

std::optional<std::uint16_t> SynCookies::check(const FlowKey& key, Sequence irs, Sequence given,
                                               TimeNs now) const noexcept {
  const std::uint32_t index = given.value() >> 24 & 7;
  for (std::uint64_t age = 0; age < 2; ++age) {
    const auto minute = static_cast<std::uint64_t>(now / cookie_minute_ns) - age;
    if (cookie(key, irs, minute, index) == given.value()) return cookie_mss[index];
  }
  return std::nullopt;
}

std::uint32_t SynCookies::mark_timestamp(std::uint32_t timestamp, const TcpOptions& syn) noexcept {
  const std::uint32_t marks = (syn.sack_permitted ? 16u : 0u) | (syn.window_scale ? *syn.window_scale : no_scale);
  const std::uint32_t marked = (timestamp & ~63u) | marks;
  return marked > timestamp ? marked - 64 : marked;  // never ahead of the clock
}

void SynCookies::read_timestamp(std::uint32_t timestamp, TcpOptions& syn) noexcept {
  syn.sack_permitted = (timestamp & 16) != 0;
  if ((timestamp & 15) != no_scale) syn.window_scale = static_cast<std::uint8_t>(timestamp & 15);
}

}  // namespace offpath::tcp
