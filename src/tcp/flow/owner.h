// The owner of flows' payload. The stack stores no payload: it asks the owner for bytes to send, and hands over
// arriving bytes.
//
// Positions count the bytes of a stream from 0, in each direction. For outgoing data the owner names the position up to
// which there is data (Stack::offer), and keeps it until the change `acknowledged` has passed it. For incoming data it
// names the position up to which it has room (Stack::allow), and gets bytes below that. Out-of-order bytes are stored
// at their place, so filling a gap moves nothing. Data before the position of the change `received` is complete.
#pragma once

#include <array>
#include <optional>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

using Payload = std::array<Bytes, 2>;  // two pieces, where the owner's buffer is a ring that wraps

class Owner {
 public:
  virtual ~Owner() = default;
  // A connection to a listener is established. Returns its tag, or nothing without room: the peer will try again. The
  // flow may get bytes up to the listener's `receive_bytes` at once.
  virtual std::optional<std::uint64_t> accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) = 0;
  // Called right after accept() for its tag: the flow's options. Null: the listener's.
  [[nodiscard]] virtual const FlowOptions* options(std::uint64_t /*tag*/) const { return nullptr; }
  // The owner of the flow with this tag.
  [[nodiscard]] virtual FlowShare share(std::uint64_t /*tag*/) const { return {}; }
  // Offered bytes of the stream from `position`. They stay in place until the frame was given to the port. If fewer are
  // returned, fewer are sent.
  virtual Payload payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) = 0;
  // Bytes that arrived, below the allowed position. Bytes behind `received` may come again, even with other contents.
  virtual void store(FlowId flow, std::uint64_t tag, std::uint64_t position, Bytes bytes) = 0;
};

// The changes of a flow since the last report. At most one for each flow waits.
struct FlowChange {
  FlowId flow;
  std::uint64_t tag = 0;
  std::uint8_t what = 0;              // bits of `change`
  std::uint64_t received = 0;         // in order, so far
  std::uint64_t acknowledged = 0;     // by the peer, so far
  FlowError error = FlowError::none;  // with `closed`
};

}  // namespace offpath::tcp
