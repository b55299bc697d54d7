// Connections from listening sockets until they are links: accepts them, runs their handshakes
// (link/handshake/handshake.h), and hands them on. Event driven, on the loop's thread. A slow or malformed program
// occupies one of a bounded number of handshakes, until its deadline.
//
// Each listener has a fixed number of handshakes, and each source (a user, or a network address) may have a part of
// them. A connection beyond its source's part replaces that source's oldest connection if that has had its minimum
// time. Otherwise it is told immediately to try again, which the library does (link::connect): one source fills neither
// the slots nor the kernel's queue. When many sources take all slots, the source with the most loses its oldest
// connection that has had its minimum time; until then the listener rests.
//
// A core of several (agent/cores) has listeners from which it takes connections over that another process has accepted.
// It is told when one of those has ended before it became a link; whoever gets the link counts it from then on.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "agent/socket_file.h"
#include "agent/status/acceptor_counters.h"
#include "link/handshake/handshake.h"
#include "loop/loop.h"
#include "service/service.h"
#include "wire/channel_layout.h"

namespace offpath::agent {

// The source of a network address: an IPv4 address, or the 64-bit prefix of an IPv6 address, because one machine may
// use any number of addresses below it.
[[nodiscard]] std::string network_source(const sockaddr_storage& name);

class Acceptor {
 public:
  struct Arrival {
    std::unique_ptr<link::AgentLink> link;
    wire::ChannelLayout layout;
    service::Client client;
    bool handed = false;  // it was taken over
  };
  // For each connection that was taken over.
  struct Handed {
    std::function<void()> took, ended;
  };
  struct Options {
    std::size_t handshakes_max = 64;            // of each listener
    std::size_t handshakes_of_source_max = 16;  // of these, of one user or network address
    bool everyone = false;                      // other users may reach the Unix sockets
  };

  // `may_welcome` refuses further programs of a user, for instance when there are too many. `on_arrival` takes welcomed
  // programs.
  Acceptor(loop::Loop& loop, std::shared_ptr<const link::AgentPolicy> policy, wire::Welcome welcome,
           const Options& options, std::function<Status(uid_t)> may_welcome,
           std::function<void(Arrival, TimeNs now)> on_arrival);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Binds, and sets the chosen port if the address left it open.
  [[nodiscard]] Status listen(link::Address& address);
  // The same with a socket that another process has bound; or, if `handed`, at whose end connections arrive.
  [[nodiscard]] Status adopt(Fd socket, link::Address::Kind kind, bool handed);
  void count_handed(Handed handed) { counted_ = std::move(handed); }
  // For later connections. Handshakes under way keep the policy that was in force when they began.
  void set_policy(std::shared_ptr<const link::AgentPolicy> policy) noexcept { policy_ = std::move(policy); }
  void close();  // no further connections; handshakes under way are given up

  [[nodiscard]] AcceptorCounters counters() const noexcept;

 private:
  struct Listener {
    Fd socket;
    link::Address::Kind kind;
    std::unique_ptr<SocketFile> file;
    bool handed = false;
    std::size_t handshakes = 0;
    bool resting = false;
    loop::Timers::Id rest_timer = 0;
  };
  struct Handshake {
    std::shared_ptr<const link::AgentPolicy> policy;  // in force for `state`
    link::AgentHandshake state;
    Listener* listener;
    std::string source;  // the user's number, or network_source()
    TimeNs began;
    loop::Timers::Id timer = 0;
    bool writing = false;
    unsigned extensions = 0;  // of the deadline, because the process was stopped
  };
  using HandshakeAt = std::list<Handshake>::iterator;

  void take_connections(Listener& listener, TimeNs now);
  void begin(Fd socket, Listener& listener, TimeNs now);
  [[nodiscard]] TimeNs make_room(Listener& listener, TimeNs now);
  [[nodiscard]] bool make_room_of_source(const Listener& listener, const std::string& source, TimeNs now);
  void give_up(HandshakeAt at, std::string why);
  void start_timer(HandshakeAt at, TimeNs due);
  void on_deadline(HandshakeAt at, TimeNs now, TimeNs due);
  void advance(HandshakeAt at, TimeNs now);
  void welcome(HandshakeAt at, TimeNs now);
  void forget(HandshakeAt at, bool welcomed = false);
  [[nodiscard]] Status watch(Listener& listener);
  void rest(Listener& listener, TimeNs until);
  void resume(Listener& listener);

  loop::Loop& loop_;
  std::shared_ptr<const link::AgentPolicy> policy_;
  wire::Welcome welcome_;
  Options options_;
  std::function<Status(uid_t)> may_welcome_;
  std::function<void(Arrival, TimeNs)> on_arrival_;
  Handed counted_;
  std::list<Listener> listeners_;
  std::list<Handshake> handshakes_;
  AcceptorCounters counters_;
};

}  // namespace offpath::agent
