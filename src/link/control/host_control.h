// The host's side of the control socket, for links whose host runs no thread (local, verbs, doca): sends, takes frames,
// sleeps, and knows whether the agent lives and why it does not any more.
//
// What the agent said comes before what the socket or the kernel says of its end: an agent that ends a channel gives
// the reason first. Calls come under the channel's lock, but for `wait`.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "link/control/control_socket.h"
#include "link/control/peer.h"
#include "wire/region.h"

namespace offpath::link {

// Segments the agent took, until whoever announced them asks. Those nobody will ask for any more are forgotten when
// they come.
class Acknowledgements {
 public:
  void arrived(wire::RegionId segment);
  [[nodiscard]] bool take(wire::RegionId segment);
  [[nodiscard]] bool has(wire::RegionId segment) const noexcept;
  // The agent was given the time it had; what to say.
  [[nodiscard]] tl::unexpected<Failure> give_up(wire::RegionId segment);

 private:
  std::vector<wire::RegionId> arrived_, given_up_;
};

class HostControl {
 public:
  // The link whose socket this is.
  class Owner {
   public:
    virtual Status take_frame(const ControlSocket::Frame& frame) = 0;  // of a type that not every link has
    virtual void on_lost() noexcept = 0;                               // once, before anybody is told

   protected:
    ~Owner() = default;
  };

  // What tells of the agent. `all` is an epoll of the socket, of the agent's pidfd where there is one, and of the
  // eventfd `kept`. That becomes readable when a call other than look() takes an event from the socket.
  struct Events {
    Fd all, kept;
  };
  [[nodiscard]] static Result<Events> watch(const ControlSocket& socket, const Peer& agent);
  HostControl(ControlSocket socket, Peer agent, Events events, Owner& owner);

  void wake();
  void wait(TimeNs deadline);
  [[nodiscard]] int event_fd() const noexcept { return events_.all.get(); }
  [[nodiscard]] Status look();
  [[nodiscard]] Status send(wire::ControlType type, Bytes payload, int descriptor = -1);
  // Returns when the agent has it.
  [[nodiscard]] Status announce(const wire::SegmentNotice& segment, int descriptor, TimeNs deadline);
  [[nodiscard]] Fd take_descriptor() { return socket_.take_descriptor(); }  // of the frame being taken
  [[nodiscard]] Status usable() const;                                      // without a look
  // As look(), for a call that waits for a frame of its own: the event stays. Another thread may sleep for the wake
  // that this call takes from the socket, and its poll() does not return once the socket is empty.
  [[nodiscard]] Status look_aside();

  // Looks and sleeps until `there` holds; false if that takes longer.
  template <class There>
  [[nodiscard]] Result<bool> until(There there, TimeNs deadline) {
    for (;;) {
      OFP_TRY(look_aside());
      if (there()) return true;
      if (monotonic_ns() >= deadline) return false;
      wait_socket(deadline);
    }
  }

  // A forked child has what its parent has, but it is not its own.
  [[nodiscard]] bool inherited() const noexcept { return getpid() != owner_pid_; }
  [[nodiscard]] bool abandoned() const noexcept { return lost_ && lost_->code == Error::forked; }
  void abandon();
  void close();

 private:
  [[nodiscard]] Status take_in();
  [[nodiscard]] Status take_frames();
  [[nodiscard]] Status take_frame(const ControlSocket::Frame& frame);
  void wait_socket(TimeNs deadline, int also = -1);
  tl::unexpected<Failure> lose(Failure why);
  void note_output() noexcept { output_waits_.store(socket_.output_waits(), std::memory_order_relaxed); }
  void close_copies();

  ControlSocket socket_;
  Peer agent_;
  Events events_;
  bool event_taken_ = false;  // by this look: a frame that others may sleep for
  bool event_kept_ = false;   // events_.kept is readable
  Owner& owner_;
  const pid_t owner_pid_ = getpid();
  Acknowledgements acknowledged_;
  std::map<wire::RegionId, Failure> refused_;  // of those acknowledged, until they are taken
  std::atomic<bool> output_waits_ = false;     // wait() runs without the channel's lock
  std::optional<Failure> lost_;
};

// ---- what tcp's thread says and does alike

[[nodiscard]] Failure forked_channel();
[[nodiscard]] Failure closed_channel();
[[nodiscard]] Failure agent_lost(const ControlSocket& socket, Failure why);  // other failures stay what they are

}  // namespace offpath::link
