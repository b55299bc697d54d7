// The transfers of one channel. Pulls read a program's memory in the order in which they were requested, a slice at a
// time, so that one of 1 GiB does not delay the next look at the ring. Fetches, which are small reads, begin at once,
// and so do pushes, which write to segments of the program.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "base/status.h"
#include "channel/agent/operations.h"
#include "channel/agent_end_options.h"
#include "link/link.h"

namespace offpath::channel {

struct TransferLimits {
  std::uint64_t slice_bytes;
  unsigned slices_outstanding;
  bool in_the_call;  // the link reads before its call returns: post() spends its budget
};

class Transfers {
 public:
  // A pull succeeds only if the host was alive after it.
  struct Ended {
    std::uint64_t token;
    Status status;
  };

  Transfers(link::AgentLink& link, AgentEndCounters& counters, const TransferLimits& limits) noexcept
      : link_(link), counters_(counters), limits_(limits) {}

  // The memory of the pieces stays until the transfer has ended.
  void pull(std::uint64_t token, std::vector<link::ReadPiece> pieces);
  void fetch(std::uint64_t token, std::span<const link::ReadPiece> pieces);
  void push(std::uint64_t token, std::span<const link::WritePiece> pieces);
  // Of a pull, the part that is not posted.
  void cancel(std::uint64_t token);

  [[nodiscard]] std::uint64_t slice_bytes() const noexcept { return limits_.slice_bytes; }
  [[nodiscard]] bool pulling() const noexcept { return !pulls_.empty(); }
  [[nodiscard]] bool under_way() const noexcept { return pulling() || !small_.empty(); }
  [[nodiscard]] bool full() const noexcept { return pulls_.size() >= pulls_max; }

  // Posts slices. True if it posted one.
  bool post(std::uint64_t& budget);
  // The link has ended an operation of this number.
  void end_slice(std::uint64_t number, Status status);
  std::uint64_t end_fetch(std::uint64_t number) { return take_small(number); }  // its token
  std::uint64_t end_push(std::uint64_t number) {
    ++counters_.pushes;
    return take_small(number);
  }
  // The oldest pull, if it has ended.
  [[nodiscard]] std::optional<Ended> take_pulled();
  // The channel has ended: the tokens of all that have not.
  [[nodiscard]] std::vector<std::uint64_t> abandon();

 private:
  static constexpr std::size_t pulls_max = 4096;  // beyond these no request is taken until some have completed

  struct Pull {
    std::uint64_t number;  // numbers the channel's pulls
    std::uint64_t token;
    std::vector<link::ReadPiece> pieces;
    std::size_t piece = 0;     // the next one to post
    std::uint64_t offset = 0;  // within it
    unsigned outstanding = 0;  // slices posted
    bool all_posted = false;
    Status status;
  };

  std::uint64_t post_slice(Pull& pull, std::uint64_t bytes_max);
  std::uint64_t take_small(std::uint64_t number);

  link::AgentLink& link_;
  AgentEndCounters& counters_;
  TransferLimits limits_;
  std::list<Pull> pulls_;  // they are large
  std::uint64_t next_pull_ = 0;
  unsigned slices_outstanding_ = 0;
  Queue<std::pair<std::uint64_t, std::uint64_t>> small_;  // fetches and pushes: number, token
  std::uint64_t next_small_ = 0;
  std::vector<link::ReadPiece> slice_;  // reused
};

}  // namespace offpath::channel
