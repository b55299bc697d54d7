// Connections that a peer has begun and not completed, and cookies for those there is no room for (RFC 4987). They are
// kept apart from flows, so that a flood of SYNs costs a fixed amount of memory and nothing of what is established.
#pragma once

#include <optional>
#include <vector>

#include "tcp/flow/flow_table.h"
#include "tcp/flow/timer_wheel.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

struct HalfOpen {
  FlowKey key;
  Sequence iss, irs;  // own and the peer's initial number
  TcpOptions peer{};  // of its SYN
  std::uint32_t peer_window = 0;
  std::uint32_t timestamp_offset = 0;
  TimeNs answered_at = 0;   // when the SYN-ACK left; 0: it is not known which of several, or which cookie
  std::uint64_t begun = 0;  // how many peers had begun a connection when its SYN came, or its cookie
  std::uint8_t retries = 0;
  bool ecn = false;     // the SYN asked for it
  bool handed = false;  // to the stack that this one works for; it has not answered yet (slow_path.h)
};

class HalfOpenTable {
 public:
  HalfOpenTable(std::size_t entries_max, const HashKey& key, TimeNs now)
      : entries_max_(entries_max), table_(key), wheel_(now) {}

  [[nodiscard]] HalfOpen* find(const FlowKey& key) noexcept;
  [[nodiscard]] HalfOpen* add(const FlowKey& key);  // null: it is full
  void remove(const FlowKey& key) noexcept;
  void set_timer(const FlowKey& key, TimeNs due);
  [[nodiscard]] HalfOpen* fire(TimeNs now);  // one whose time has come; null: none
  [[nodiscard]] TimeNs next_due() const noexcept { return wheel_.next_due(); }
  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }

 private:
  [[nodiscard]] std::uint32_t index_of(const FlowKey& key) const noexcept {
    return table_.find(key, [this](std::uint32_t index) -> const FlowKey& { return entries_[index].key; });
  }

  std::size_t entries_max_;
  FlowTable table_;
  TimerWheel wheel_;
  std::vector<HalfOpen> entries_;
  std::vector<std::uint32_t> free_;
};

// An initial sequence number that tells, when it comes back, that it was ours, for whom, and the MSS of the SYN. Five
// bits of time, three of MSS, 24 of a hash.
class SynCookies {
 public:
  static constexpr TimeNs valid_ns = 128 * second_ns;  // at most

  explicit SynCookies(const HashKey& key) noexcept : key_(key) {}
  [[nodiscard]] Sequence make(const FlowKey& key, Sequence irs, std::uint16_t mss, TimeNs now) const noexcept;
  // The MSS, rounded down to one of eight; nothing, if it is none of ours or two minutes old.
  [[nodiscard]] std::optional<std::uint16_t> check(const FlowKey& key, Sequence irs, Sequence cookie,
                                                   TimeNs now) const noexcept;

  // The other options of a SYN, in the lowest six bits of the timestamp that comes back.
  [[nodiscard]] static std::uint32_t mark_timestamp(std::uint32_t timestamp, const TcpOptions& syn) noexcept;
  static void read_timestamp(std::uint32_t timestamp, TcpOptions& syn) noexcept;

 private:
  [[nodiscard]] std::uint32_t cookie(const FlowKey& key, Sequence irs, std::uint64_t minute,
                                     std::uint32_t mss_index) const noexcept;
  HashKey key_;
};

}  // namespace offpath::tcp
