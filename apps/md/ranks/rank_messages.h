// Messages between ranks: the hosts send them by MPI (ranks.h), their agents between lanes
// (offload/lane_messages.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace md {

class RankMessages {
 public:
  virtual ~RankMessages() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int count() const = 0;

  // Sends `out` to one rank while receiving as much as `in` holds from another.
  virtual void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) = 0;
  // The same if the receiver does not know the size.
  virtual std::vector<std::byte> exchange_any(int to, std::span<const std::byte> out, int from) = 0;
};

}  // namespace md
