// From listening sockets to links: connections are taken in, introduce themselves (link/handshake.h), and are handed
// on. Event driven, on the loop's thread; a program that is slow or sends garbage costs one of a bounded number of
// handshakes, until its deadline.
//
// When all of these are taken the listeners rest: further connections wait in the kernel's queue.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "agent/socket_file.h"
#include "agent/status.h"
#include "link/handshake.h"
#include "loop/loop.h"

namespace offpath::agent {

class Acceptor {
 public:
  struct Arrival {
    std::unique_ptr<link::AgentLink> link;
    wire::ChannelLayout layout;
    mover::Client client;
  };
  struct Options {
    std::size_t handshakes_max = 64;
    bool everyone = false;  // other users may reach the Unix sockets
  };

  // `may_welcome` refuses further programs of a user, for instance when there are too many; `on_arrival` takes those
  // welcomed.
  Acceptor(loop::Loop& loop, std::shared_ptr<const link::AgentPolicy> policy, wire::Welcome welcome, const Options& options,
           std::function<Status(uid_t)> may_welcome, std::function<void(Arrival, TimeNs now)> on_arrival);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Binds, and fills in the port that was chosen where the address left it open.
  [[nodiscard]] Status listen(link::Address& address);
  // For connections from now on. Those under way are judged by what was in force when they came.
  void set_policy(std::shared_ptr<const link::AgentPolicy> policy) noexcept { policy_ = std::move(policy); }
  void close();  // no further connections; handshakes under way are given up

  [[nodiscard]] AcceptorCounters counters() const noexcept;

 private:
  struct Listener {
    Fd socket;
    link::Address::Kind kind;
    std::unique_ptr<SocketFile> file;
  };
  struct Handshake {
    std::shared_ptr<const link::AgentPolicy> policy;  // of `state`
    link::AgentHandshake state;
    link::Address::Kind kind;
    loop::Timers::Id timer = 0;
    bool writing = false;
    unsigned extensions = 0;  // of the deadline, after the process was stopped
  };
  using HandshakeAt = std::list<Handshake>::iterator;

  void take_connections(const Listener& listener, TimeNs now);
  void begin(Fd socket, link::Address::Kind kind, TimeNs now);
  void start_timer(HandshakeAt at, TimeNs due);
  void on_deadline(HandshakeAt at, TimeNs now, TimeNs due);
  void advance(HandshakeAt at, TimeNs now);
  void welcome(HandshakeAt at, TimeNs now);
  void forget(HandshakeAt at);
  void rest(TimeNs now, TimeNs until);
  void resume();

  loop::Loop& loop_;
  std::shared_ptr<const link::AgentPolicy> policy_;
  wire::Welcome welcome_;
  Options options_;
  std::function<Status(uid_t)> may_welcome_;
  std::function<void(Arrival, TimeNs)> on_arrival_;
  std::list<Listener> listeners_;
  std::list<Handshake> handshakes_;
  bool resting_ = false;
  loop::Timers::Id rest_timer_ = 0;
  AcceptorCounters counters_;
};

}  // namespace offpath::agent
