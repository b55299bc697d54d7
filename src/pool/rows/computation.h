// A function over objects of a pool, as it was asked for, and who carries it out where the row lies
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
  // `get` says the objects, whom the output goes to, and until when.
  virtual void begin(FrameTable::Get get, ComputationPtr computation, TimeNs now, service::Effects& effects) = 0;
  // An object is visible from now on. `first`: here first of all members, and not because members changed. Called from
  // within the table: nothing may be asked of it now.
  virtual void on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame, bool first) = 0;
  // Cancels the computation that another member asked for under this number; its request fails.
  virtual void cancel(service::ChannelNumber channel, std::uint64_t delivery, service::Effects& effects) = 0;
  // The same of what a program of this member asked for, by the ticket of its request.
  virtual void cancel_request(service::ChannelNumber channel, std::uint64_t ticket, service::Effects& effects) = 0;
  // Takes out those that wait for objects, if `chosen`: their rows lie elsewhere now.
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
