// The host's side of the control socket, for links whose host runs no thread (local, verbs, doca): sends, takes frames,
// sleeps, and knows whether the agent lives and why it ended.
//
// The agent's own reason takes precedence over errors of the socket and the kernel: an agent that ends a channel sends
// the reason first. Calls are made under the channel's lock, except `wait`.
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

// The agent's acknowledgements of segments, until their announcer asks for them. Those whose announcer has given up are
// dropped on arrival.
class Acknowledgements {
 public:
  void arrived(wire::RegionId segment);
  [[nodiscard]] bool take(wire::RegionId segment);
  [[nodiscard]] bool has(wire::RegionId segment) const noexcept;
  // Gives up after the deadline; returns the error.
  [[nodiscard]] tl::unexpected<Failure> give_up(wire::RegionId segment);

 private:
  std::vector<wire::RegionId> arrived_, given_up_;
};

class HostControl {
 public:
  // The link that owns the socket.
  class Owner {
   public:
    virtual Status take_frame(const ControlSocket::Frame& frame) = 0;  // for types that not every link has
    virtual void on_lost() noexcept = 0;                               // once, before the loss is reported to anyone

   protected:
    ~Owner() = default;
  };

  // Descriptors that announce events of the agent. `all` is an epoll of the socket, of the agent's pidfd if there is
  // one, and of the eventfd `kept`, which becomes readable when a call other than look() takes an event from the
  // socket.
  struct Events {
    Fd all, kept;
  };
  [[nodiscard]] static Result<Events> watch(const ControlSocket& socket, const Peer& agent);
  HostControl(ControlSocket socket, Peer agent, Events events, Owner& owner);

  void wake(Bytes requests = {});
  void wait(TimeNs deadline);
  [[nodiscard]] int event_fd() const noexcept { return events_.all.get(); }
  [[nodiscard]] Status look();
  [[nodiscard]] Status send(wire::ControlType type, Bytes payload, int descriptor = -1);
  // Returns when the agent has acknowledged it.
  [[nodiscard]] Status announce(const wire::SegmentNotice& segment, int descriptor, TimeNs deadline);
  [[nodiscard]] Fd take_descriptor() { return socket_.take_descriptor(); }  // of the current frame
  [[nodiscard]] Status usable() const;                                      // without a look
  // Like look(), for a call that waits for a frame of its own, but keeps the event: another thread may sleep for the
  // wake that this call takes from the socket, and its poll() does not return once the socket is empty.
  [[nodiscard]] Status look_aside();

  // Looks and sleeps until `there` holds; false at the deadline.
  template <class There>
  [[nodiscard]] Result<bool> until(There there, TimeNs deadline) {
    for (;;) {
      OFP_TRY(look_aside());
      if (there()) return true;
      if (monotonic_ns() >= deadline) return false;
      wait_socket(deadline);
    }
  }

  // A forked child has a copy of its parent's objects, but they are not its own.
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
  bool event_taken_ = false;  // this look took a frame that other threads may sleep for
  bool event_kept_ = false;   // events_.kept is readable
  Owner& owner_;
  const pid_t owner_pid_ = getpid();
  Acknowledgements acknowledged_;
  std::map<wire::RegionId, Failure> refused_;  // of acknowledged segments, until they are taken
  std::atomic<bool> output_waits_ = false;     // wait() runs without the channel's lock
  std::optional<Failure> lost_;
};

// ---- also used by the stream link

[[nodiscard]] Failure forked_channel();
[[nodiscard]] Failure closed_channel();
[[nodiscard]] Failure agent_lost(const ControlSocket& socket, Failure why);  // other failures are returned unchanged

}  // namespace offpath::link
