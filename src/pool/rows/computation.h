// A requested function over objects of a pool, and the interface of its executor at the row's member
// (compute_service.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pool/table/frame_table.h"

namespace offpath::pool {

struct Computation {
  std::string plugin, function;
  std::vector<std::byte> arguments;
  bool stores = false;  // outputs are put under the result's keys
  std::string result_row, result_column;
};
using ComputationPtr = std::shared_ptr<const Computation>;

class Computes {
 public:
  // `get` has the objects, the receiver of the output and the deadline.
  virtual void begin(FrameTable::Get get, ComputationPtr computation, TimeNs now, service::Effects& effects) = 0;
  // An object has become visible. `first`: this member is the first to have it, and not by a change of members. Called
  // from within the table, which must not be used now.
  virtual void on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame, bool first) = 0;
  // Cancels another member's computation with this number; its request fails.
  virtual void cancel(service::ChannelNumber channel, std::uint64_t delivery, service::Effects& effects) = 0;
  // The same for a local program's computation, by the ticket of its request.
  virtual void cancel_request(service::ChannelNumber channel, std::uint64_t ticket, service::Effects& effects) = 0;
  // Removes `chosen` computations that wait for objects: their rows moved to another member.
  struct Waiting {
    FrameTable::Get get;
    ComputationPtr computation;
  };
  [[nodiscard]] virtual std::vector<Waiting> take_waiting(
      const std::function<bool(const FrameTable::Get& get)>& chosen) = 0;

 protected:
  ~Computes() = default;
};

}  // namespace offpath::pool
