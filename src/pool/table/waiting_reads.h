// Reads of objects on disk that wait: for memory, the smallest first, or after a failure for the next attempt. A round
// visits only those that can continue.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "pool/table/disk.h"
#include "pool/table/waiting_gets.h"

namespace offpath::pool {

class WaitingReads {
 public:
  static constexpr unsigned failures_max = 64;  // of one read, regardless of its get's deadline
  struct Read {
    FramePtr frame;
    TimeNs until;                        // 0: for a second
    service::ChannelNumber channel = 0;  // that asked; 0: none
    Disk::Read done{};
    std::shared_ptr<const Get> get{};  // the pool of the object; null: a service's
    unsigned failures = 0;
    std::string why{};  // the last one

    // The reason of the wait.
    [[nodiscard]] std::string describe() const;
  };

  void add(Read read);
  void drop(service::ChannelNumber channel);
  [[nodiscard]] bool empty() const noexcept { return reads_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return reads_.size(); }
  // That reads wait for.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] TimeNs next_deadline() const noexcept { return fresh_.empty() ? times_.first() : 0; }
  template <class Visit>
  void visit(const Visit& visit) const {
    for (const auto& [number, read] : reads_) visit(read);
  }

  // Reads whose time is over, or whose next attempt is due.
  [[nodiscard]] std::vector<Read> take_due(TimeNs now);
  // The smallest read that waits for memory, if it `fits`; otherwise no other fits either.
  [[nodiscard]] std::optional<Read> take_smallest(const std::function<bool(std::uint64_t bytes)>& fits);

 private:
  using Number = std::uint64_t;
  Read extract(Number number);

  std::map<Number, Read> reads_;
  std::vector<Number> fresh_;  // added since the last look, which sets when they are due
  DueTimes<Number> times_;
  std::set<std::pair<std::uint64_t, Number>> by_bytes_;  // those that wait for memory
  std::set<std::pair<service::ChannelNumber, Number>> by_channel_;
  std::uint64_t bytes_ = 0;
  Number last_ = 0;
};

}  // namespace offpath::pool
