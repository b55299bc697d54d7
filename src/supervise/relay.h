// All sockets of a supervised program, and the bytes between their pairs and the agent's rings.
//
// One thread. Apart from the loop's ppoll it waits for the agent at the first connection (10 s at most), and at the end
// for the peers (5 s at most). Bytes are copied from a pair into the ring of the connection, and from
// the ring into the pair; both are bounded, and a side that is full stops the other: the program's writes wait as they
// do on a socket of TCP, and the peer sees a closed window.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "connections/sockets.h"
#include "sockets/policy.h"
#include "supervise/supervised.h"

namespace offpath::supervise {

class Relay {
 public:
  // `changed` is called for a socket that is not connected and that the agent has an event for.
  Relay(const sockets::Policy& policy, std::string name, std::function<void(Supervised&)> changed);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // The program's connections, opened at the first call. Null: there is no agent.
  [[nodiscard]] SocketArea* open();
  // For callers that have a handle.
  [[nodiscard]] SocketArea& area() noexcept { return connections_->area(); }

  // ---- sockets
  [[nodiscard]] Supervised& add(StreamPair::Made&& made, int family);
  [[nodiscard]] Supervised* find(ino_t inode) noexcept;
  // For a socket that the agent does not have yet. The program may have as many of these as it may offload.
  [[nodiscard]] bool has_room() const noexcept;
  void set_handle(Supervised& socket, SocketArea::Handle handle);
  void set_port(Supervised& socket, SocketArea::Handle handle);
  void release_port(Supervised& socket);
  void release(Supervised& socket);         // its handle
  void begin(Supervised& socket);           // it is connected
  void end(Supervised& socket, int error);  // error 0: the program reads the end
  void forget(Supervised& socket);          // it is no longer supervised

  // ---- the loop
  // Readable when there is something to do: call work().
  [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }
  // True: there is more to do; do not sleep.
  [[nodiscard]] bool work();
  // Before a sleep on descriptor(). False: there is something to do already.
  [[nodiscard]] bool fall_asleep();
  void awake();
  // When memory can be given back to the machine; never: nothing to give.
  [[nodiscard]] TimeNs next_due() const noexcept { return gives_back_at_; }
  // At the end: waits until sent data is delivered, a few seconds at most.
  void leave();

 private:
  void take_in();
  void lose(const Failure& why);
  void on_pair(Supervised& socket, std::uint32_t events);
  void pump(Supervised& socket);
  bool from_program(Supervised& socket);
  bool to_program(Supervised& socket);
  void pass_end(Supervised& socket);
  void be_busy(Supervised& socket);
  void give_back();
  [[nodiscard]] bool resets(const Supervised& socket) const noexcept;

  const sockets::Policy& policy_;
  std::string name_;
  std::function<void(Supervised&)> changed_;
  Fd epoll_;
  bool tried_ = false, lost_ = false;
  std::unique_ptr<channel::Sockets> connections_;
  std::unordered_map<ino_t, std::unique_ptr<Supervised>> sockets_;
  std::vector<Supervised*> by_handle_;
  std::vector<Supervised*> busy_;
  std::vector<Supervised*> stalled_;                    // their bytes wait for room in the ring of commands
  std::deque<ino_t> ended_;                             // the oldest are forgotten
  std::vector<std::unique_ptr<Supervised>> forgotten_;  // until no event can name them
  std::vector<std::byte> buffer_;
  TimeNs gives_back_at_ = never;
};

}  // namespace offpath::supervise
