// One TCP socket of a supervised program, shared by any number of descriptors and processes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "connections/socket_area.h"
#include "supervise/notifications.h"
#include "supervise/stream_pair.h"

namespace offpath::supervise {

using channel::AgentWords;
using channel::SocketArea;

// A call that waits for an event of its socket.
struct Waiting {
  Call call;
  TimeNs until = never;  // SO_SNDTIMEO or SO_RCVTIMEO
};

struct Supervised {
  enum class Is {
    undecided,  // it becomes the agent's or the kernel's by bind, listen or connect
    beginning,  // the agent was asked for a listener
    listening,
    connecting,
    connected,
    ended,  // the pair is closed on this side; the program may still ask for its error and its names
  };
  Is is = Is::undecided;
  ino_t inode = 0;
  int family = 0;
  StreamPair pair;

  // A socket of the kernel that is the program's if the policy leaves it to the kernel. It stays as the place of the
  // options. An accepted one has none until an option is set or read, and shares the listener's until then.
  std::shared_ptr<Fd> kernels;
  bool shares_options = false;

  bool chose_congestion = false;  // by TCP_CONGESTION, while it was undecided; `kernels` has the name
  AgentWords::Rights chose_by = AgentWords::Rights::of_everybody;  // the rights of the process that chose it
  wire::TcpCongestion congestion = wire::TcpCongestion::agents;

  std::optional<SocketArea::Handle> port;    // of bind
  std::optional<SocketArea::Handle> handle;  // of the listener or connection
  std::optional<SocketArea::Endpoint> bound;
  SocketArea::Endpoint local{}, remote{};   // of a connection
  int error = 0;                            // for SO_ERROR, once
  bool stopped = false;                     // a listener that was shut down
  std::vector<Waiting> waiting;             // one of each thread at most
  std::deque<SocketArea::Handle> accepted;  // by the supervisor, while the program had no room for a descriptor

  // ---- the relay
  std::vector<std::byte> carried;  // taken from the program while the ring of commands was full
  bool program_finished = false;   // nothing more comes from the program
  bool program_gone = false;       // …and it takes nothing more
  bool program_reads = true;
  bool finished = false, peer_finished = false;  // the ends were passed on
  bool busy = false;                             // in the list of sockets that have more to relay

  // A result whose call was interrupted before it got it: the same call of the same thread, with the same arguments,
  // gets it. `perhaps`: it was sent, but a signal may have come first.
  struct Undelivered {
    Call call;
    std::int64_t value;
    bool perhaps;
  };
  std::optional<Undelivered> undelivered;
  std::vector<std::byte> asked;  // the address of the last bind or connect
};

}  // namespace offpath::supervise
