// loopback_link: both ends in one process, in the virtual time of a LoopbackFabric. It stands in for the other
// links where a test must be repeatable: mapped it behaves like local_link, unmapped like verbs_link.
//
// Unmapped, reads and writes see and change the host's memory at moments of their own, as a network card does:
// - a read is cut into parts at cache-line borders, and each part is copied at a moment of its own, in any order,
//   even within one piece: a new tail may come with old slots;
// - writes change memory in the order posted, and the pieces of a write in their order, but not all at once;
//   their source is read at that moment, not when they are posted;
// - reads overtake writes and each other.
// The seed decides the moments. Mapped, memory is touched during the call and only the completion takes time.
//
// The host's memory is reached at its own addresses: a bad one fails its read (Error::unreadable) and nothing else.
#pragma once

#include <functional>
#include <memory>

#include "link/link.h"
#include "testing/link/loopback_fabric.h"
#include "wire/channel_layout.h"

namespace offpath::link {

// How long something takes: between min and max, and now and then up to slow_max.
struct Latency {
  TimeNs min_ns = 1'000;
  TimeNs max_ns = 3'000;
  double slow_probability = 0;
  TimeNs slow_max_ns = 0;

  [[nodiscard]] TimeNs draw(SeededRandom& random) const noexcept;
};

struct LoopbackOptions {
  bool mapped = true;     // the agent maps segments, and descriptors can be handed over
  bool one_sided = true;  // if not, operations stand still while the host is stopped
  // A range that is withdrawn is gone when the agent's end has answered, so long after that; 0: at once. As with cards.
  TimeNs withdrawal_ns = 0;
  bool staged = false;                 // ranges cannot be read: announcing one is Error::unsupported
  Latency operation;                   // reads and writes
  Latency control;                     // messages of the control socket, in order: segments, wakes, descriptors, death
  TimeNs silence_ns = 10 * second_ns;  // a partition that lasts this long ends the link at both ends
  std::function<void()> on_ready{};    // the agent's poll has an event, as a readable descriptor would say
  wire::Welcome welcome;               // the handshake's message to the host; `direct` and `reason` are filled in
};

// Outside events for the pair. Belongs to the test; the ends do not know it.
class LoopbackFate {
 public:
  virtual ~LoopbackFate() = default;
  // The process is gone: its memory is not accessed any more, and its operations under way are lost. The other end
  // learns it after a control latency. This end stays an object whose calls fail.
  virtual void kill_host() = 0;
  virtual void kill_agent() = 0;
  // Takes no steps, and nothing on the control socket reaches it; its memory stays as readable as one_sided says.
  virtual void stop_host() = 0;
  virtual void continue_host() = 0;
  virtual void stop_agent() = 0;
  virtual void continue_agent() = 0;
  // Nothing crosses until healed; nothing is lost by it either, unless it lasts silence_ns.
  virtual void partition() = 0;
  virtual void heal() = 0;
  [[nodiscard]] virtual bool host_runs() const = 0;  // neither killed nor stopped
  [[nodiscard]] virtual bool agent_runs() const = 0;
  // How often the host has asked whether a range is withdrawn.
  [[nodiscard]] virtual std::uint64_t withdrawal_asks() const = 0;
};

struct LoopbackPair {
  std::unique_ptr<HostLink> host;
  std::unique_ptr<AgentLink> agent;
  std::shared_ptr<LoopbackFate> fate;
};

// Any number of pairs share a fabric. HostLink::wait and the host's calls with a deadline run the fabric
// (LoopbackFabric::run_until) instead of blocking. AgentLink::event_fd is -1: loops in virtual time poll.
[[nodiscard]] Result<LoopbackPair> make_loopback(std::shared_ptr<LoopbackFabric> fabric, const LoopbackOptions& options,
                                                 const wire::ChannelLayout& layout);

}  // namespace offpath::link
