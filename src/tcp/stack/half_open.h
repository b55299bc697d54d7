// Connections that a peer has begun and not completed, and cookies beyond their number (RFC 4987). They are separate
// from flows, so a flood of SYNs costs a fixed amount of memory and no established connection.
#pragma once

#include <optional>
#include <vector>

#include "tcp/flow/accurate_ecn.h"
#include "tcp/flow/flow_table.h"
#include "tcp/flow/timer_wheel.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

// The kinds of feedback about routers' marks.
enum class EcnMode : std::uint8_t { none, classic, accurate };  // RFC 3168, RFC 9768

struct HalfOpen {
  FlowKey key;
  Sequence iss, irs;  // own and the peer's initial number
  TcpOptions peer{};  // of its SYN
  std::uint32_t peer_window = 0;
  std::uint32_t timestamp_offset = 0;
  TimeNs answered_at = 0;   // when the SYN-ACK left; 0: unknown, after several of them or a cookie
  std::uint64_t begun = 0;  // the count of connections begun by peers when its SYN, or its cookie, came
  std::uint8_t retries = 0;
  EcnMode ecn = EcnMode::none;         // the first SYN asked for it
  Ecn syn_arrived = Ecn::not_capable;  // the last one
  EcnAnswers answers{};                // of accurate ECN
  bool may_mark = true;                // accurate ECN: the peer certainly knows of it
  bool handed = false;                 // handed to the fast stack, which has not answered yet (slow_path.h)
};

class HalfOpenTable {
 public:
  HalfOpenTable(std::size_t entries_max, const HashKey& key, TimeNs now)
      : entries_max_(entries_max), table_(key), wheel_(now) {}

  [[nodiscard]] HalfOpen* find(const FlowKey& key) noexcept;
  [[nodiscard]] HalfOpen* add(const FlowKey& key);  // null: it is full
  void remove(const FlowKey& key) noexcept;
  void set_timer(const FlowKey& key, TimeNs due);
  [[nodiscard]] HalfOpen* fire(TimeNs now);  // one whose timer is due, or null
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

// An initial sequence number that proves, when it returns, its origin and its peer, and contains the MSS of the SYN:
// five bits of time, three of MSS, 24 of a hash.
class SynCookies {
 public:
  static constexpr TimeNs valid_ns = 128 * second_ns;  // at most

  explicit SynCookies(const HashKey& key) noexcept : key_(key) {}
  [[nodiscard]] Sequence make(const FlowKey& key, Sequence irs, std::uint16_t mss, TimeNs now) const noexcept;
  // The MSS, rounded down to one of eight; empty if the cookie is not ours or two minutes old.
  [[nodiscard]] std::optional<std::uint16_t> check(const FlowKey& key, Sequence irs, Sequence cookie,
                                                   TimeNs now) const noexcept;

  // The other options of a SYN, in the lowest six bits of the echoed timestamp.
  [[nodiscard]] static std::uint32_t mark_timestamp(std::uint32_t timestamp, const TcpOptions& syn) noexcept;
  static void read_timestamp(std::uint32_t timestamp, TcpOptions& syn) noexcept;

 private:
  [[nodiscard]] std::uint32_t cookie(const FlowKey& key, Sequence irs, std::uint64_t minute,
                                     std::uint32_t mss_index) const noexcept;
  HashKey key_;
};

}  // namespace offpath::tcp
