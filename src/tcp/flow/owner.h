// The owner of flows' payload. The stack keeps no byte of it: it asks for what it sends, and hands out what arrives.
//
// Positions count the bytes of a stream from 0, in each direction. In the direction out the owner says up to which
// position there is something to send (Stack::offer), and keeps it until the change `acknowledged` has passed it. In
// the direction in it says up to which position it has room (Stack::allow), and is handed bytes below that: out of
// order ones too, at their place, so that filling a gap moves nothing. What lies before the position of the change
// `received` is whole.
#pragma once

#include <array>
#include <optional>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

using Payload = std::array<Bytes, 2>;  // two pieces, where the owner's buffer is a ring that wraps

class Owner {
 public:
  virtual ~Owner() = default;
  // A connection to a listener is established. The tag it shall have, or nothing: there is no room for it now, and the
  // peer will try again. The flow may be given bytes up to the listener's `receive_bytes` at once.
  virtual std::optional<std::uint64_t> accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) = 0;
  // Whose flow it is that has this tag.
  [[nodiscard]] virtual FlowShare share(std::uint64_t /*tag*/) const { return {}; }
  // Bytes of the stream from `position`, all of which were offered. They stay where they are until the frame has been
  // given to the port. Fewer are sent if fewer are there.
  virtual Payload payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) = 0;
  // Bytes that arrived, below what was allowed. They may come again, and then with other contents if the peer pleases,
  // unless they lie before `received`.
  virtual void store(FlowId flow, std::uint64_t tag, std::uint64_t position, Bytes bytes) = 0;
};

// The changes of a flow since the owner was last told. One for each flow at most waits.
struct FlowChange {
  FlowId flow;
  std::uint64_t tag = 0;
  std::uint8_t what = 0;              // bits of `change`
  std::uint64_t received = 0;         // in order, so far
  std::uint64_t acknowledged = 0;     // by the peer, so far
  FlowError error = FlowError::none;  // with `closed`
};

}  // namespace offpath::tcp
