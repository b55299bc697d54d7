// The ends of packets in flight. A peer reports the number of marked packets modulo 8. How often that number can have
// wrapped depends on the number of packets that an acknowledgement reports, and packets have many sizes (RFC 9768,
// 3.2.2.5.2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class SentPackets {
 public:
  // Packets of one size in a row are one entry. If there are too many entries, the last ones share a mean size, which
  // is rounded down: packets are then counted early rather than late.
  static constexpr std::size_t entries_max = 32;

  // New data that left in packets of `packet_bytes`, or a FIN alone. It begins where the last one ended.
  void sent(SequenceRange range, std::uint32_t packet_bytes) {
    if (range.empty() || packet_bytes == 0) return;
    if (entries_.empty()) begin_ = range.begin;
    const std::uint32_t packets = (range.bytes() + packet_bytes - 1) / packet_bytes;
    if (!entries_.empty()) {
      Entry& last = entries_.back();
      const Sequence begin = begin_of(entries_.size() - 1);
      if (last.packet_bytes == packet_bytes && bytes_between(begin, last.end) % packet_bytes == 0) {
        last.end = range.end;
        last.packets += packets;
        return;
      }
    }
    if (entries_.size() == entries_max) join_last();
    entries_.push_back({range.end, packets_before(entries_.size()) + packets, packet_bytes});
  }

  // All data before `una` has arrived, and `beyond` packets behind it. Returns the number of newly reported packets.
  [[nodiscard]] std::uint32_t arrived(Sequence una, std::uint32_t beyond) {
    const std::uint32_t all = ended_at(una) + beyond;
    const auto newly = static_cast<std::int32_t>(all - arrived_);
    if (newly > 0) arrived_ = all;
    std::size_t gone = 0;
    while (gone < entries_.size() && entries_[gone].end <= una) ++gone;
    if (gone > 0) {
      begin_ = entries_[gone - 1].end;
      gone_ = entries_[gone - 1].packets;
      entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    return static_cast<std::uint32_t>(std::max(newly, 0));
  }

  [[nodiscard]] std::uint32_t within(SequenceRange range) const noexcept {
    return ended_at(range.end) - ended_at(range.begin);
  }

 private:
  struct Entry {
    Sequence end;
    std::uint32_t packets;       // of the flow, up to this end
    std::uint32_t packet_bytes;  // the last packet may be smaller
  };

  [[nodiscard]] Sequence begin_of(std::size_t entry) const noexcept {
    return entry == 0 ? begin_ : entries_[entry - 1].end;
  }
  [[nodiscard]] std::uint32_t packets_before(std::size_t entry) const noexcept {
    return entry == 0 ? gone_ : entries_[entry - 1].packets;
  }
  // Packets of the flow that end at `at` or before it.
  [[nodiscard]] std::uint32_t ended_at(Sequence at) const noexcept {
    const auto next = std::ranges::partition_point(entries_, [at](const Entry& entry) { return entry.end <= at; });
    const auto index = static_cast<std::size_t>(next - entries_.begin());
    const std::uint32_t before = packets_before(index);
    if (next == entries_.end() || at <= begin_of(index)) return before;
    return std::min(before + bytes_between(begin_of(index), at) / next->packet_bytes, next->packets);
  }
  void join_last() noexcept {
    const std::size_t at = entries_.size() - 2;
    const Entry last = entries_.back();
    entries_.pop_back();
    const std::uint32_t bytes = bytes_between(begin_of(at), last.end), packets = last.packets - packets_before(at);
    entries_[at] = {last.end, last.packets, std::max(bytes / std::max(packets, 1u), 1u)};
  }

  std::vector<Entry> entries_;
  Sequence begin_{};           // of the first entry
  std::uint32_t gone_ = 0;     // packets of the flow before it
  std::uint32_t arrived_ = 0;  // packets of the flow that were reported
};

}  // namespace offpath::tcp
