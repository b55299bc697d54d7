// From listening sockets to links: connections are taken in, introduce themselves (link/handshake/handshake.h), and are
// handed on. Event driven, on the loop's thread; a program that is slow or sends garbage costs one of a bounded number
// of handshakes, until its deadline.
//
// Each listener has so many. When all of them are taken, whoever has most of them (a user, or a network address) loses
// the oldest if that had its time; until then the listener rests, and further connections wait in the kernel's queue.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "agent/socket_file.h"
#include "agent/status/status.h"
#include "link/handshake/handshake.h"
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
    std::size_t handshakes_max = 64;  // of each listener
    bool everyone = false;            // other users may reach the Unix sockets
  };

  // `may_welcome` refuses further programs of a user, for instance when there are too many; `on_arrival` takes those
  // welcomed.
  Acceptor(loop::Loop& loop, std::shared_ptr<const link::AgentPolicy> policy, wire::Welcome welcome,
           const Options& options, std::function<Status(uid_t)> may_welcome,
           std::function<void(Arrival, TimeNs now)> on_arrival);
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
    std::size_t handshakes = 0;
    bool resting = false;
    loop::Timers::Id rest_timer = 0;
  };
  struct Handshake {
    std::shared_ptr<const link::AgentPolicy> policy;  // of `state`
    link::AgentHandshake state;
    Listener* listener;
    std::string source;  // the user's number, or the address it comes from
    TimeNs began;
    loop::Timers::Id timer = 0;
    bool writing = false;
    unsigned extensions = 0;  // of the deadline, after the process was stopped
  };
  using HandshakeAt = std::list<Handshake>::iterator;

  void take_connections(Listener& listener, TimeNs now);
  void begin(Fd socket, Listener& listener, TimeNs now);
  [[nodiscard]] TimeNs make_room(Listener& listener, TimeNs now);
  void start_timer(HandshakeAt at, TimeNs due);
  void on_deadline(HandshakeAt at, TimeNs now, TimeNs due);
  void advance(HandshakeAt at, TimeNs now);
  void welcome(HandshakeAt at, TimeNs now);
  void forget(HandshakeAt at);
  void rest(Listener& listener, TimeNs until);
  void resume(Listener& listener);

  loop::Loop& loop_;
  std::shared_ptr<const link::AgentPolicy> policy_;
  wire::Welcome welcome_;
  Options options_;
  std::function<Status(uid_t)> may_welcome_;
  std::function<void(Arrival, TimeNs)> on_arrival_;
  std::list<Listener> listeners_;
  std::list<Handshake> handshakes_;
  AcceptorCounters counters_;
};

}  // namespace offpath::agent
