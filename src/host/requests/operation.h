// A program's request to an agent, and the use of its answer: one request and its reply, or several, each after
// the reply before. A thread that waits for it drives it by run(); otherwise Requests does.
//
// Read this first in src/host/requests, then requests.h (asynchronous operations), frame.h (an object of the answer)
// and pool.h.
#pragma once

#include <cstdint>
#include <vector>

#include "channel/host_end.h"
#include "wire/messages/message_kinds.h"

namespace offpath::host {

class Operation {
 public:
  virtual ~Operation() = default;
  // The next request; asked for once before each.
  [[nodiscard]] virtual Result<wire::EntryKind> compose(std::vector<std::byte>& payload) = 0;
  // True: that was all, and the result is here. Its leases are given back when this is destroyed, wanted or not.
  [[nodiscard]] virtual Result<bool> take(const channel::Reply& reply) = 0;
  // The request that is under way is one of those that wire::PoolCancel ends.
  [[nodiscard]] virtual bool cancellable() const { return false; }
  // There will be no result: it was refused, or is not wanted any more.
  virtual void on_failed() {}

  TimeNs patience = never;  // then the agent is not waited for any longer
};

[[nodiscard]] inline Status run(channel::HostEnd& end, Operation& operation) {
  const auto rounds = [&]() -> Status {
    std::vector<std::byte> payload;
    while (true) {
      payload.clear();
      OFP_ASSIGN(const wire::EntryKind kind, operation.compose(payload));
      OFP_ASSIGN(const channel::Reply reply, end.call(kind, payload, operation.patience));
      OFP_ASSIGN(const bool over, operation.take(reply));
      if (over) return {};
    }
  };
  Status status = rounds();
  if (!status) operation.on_failed();
  return status;
}

}  // namespace offpath::host
