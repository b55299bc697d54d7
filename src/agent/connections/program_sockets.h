// The sockets of programs' processes, by which a process and the agent wake each other: datagrams on a pair of sockets,
// one pair for each process, so that neither side can block the other's sending. A process joins by a TcpJoin
// (wire/areas/tcp_area.h); the end of its socket is its end, of which the other processes get a notice.
//
// Used by the agent that has the connections (tcp_programs.h), and by one that relays areas to another agent
// (tcp_relay.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "base/received_fds.h"
#include "channel/agent_end.h"
#include "loop/loop.h"
#include "wire/areas/tcp_area.h"

namespace offpath::agent {

class ProgramSockets {
 public:
  // Told on the loop's thread. A call may end the program it is about.
  class Owner {
   public:
    virtual ~Owner() = default;
    // A process has sent a wake. The loop is awake, and its pollers look.
    virtual void on_woken(std::uint64_t /*program*/) {}
    // A process has joined. Error: it may not.
    [[nodiscard]] virtual Status on_joined(std::uint64_t program, std::uint32_t process) = 0;
    // The process is woken by this socket from now on.
    virtual void on_socket(std::uint64_t /*program*/, std::uint32_t /*process*/, std::shared_ptr<const Fd> /*wake*/) {}
    // A process has ended. Returns false if the program ends with it.
    [[nodiscard]] virtual bool on_process_ended(std::uint64_t program, std::uint32_t process) = 0;
    virtual void refuse(std::uint64_t program, Failure why, TimeNs now) = 0;
  };

  ProgramSockets(loop::Loop& loop, Owner& owner) : loop_(loop), owner_(owner) {}
  ~ProgramSockets();
  ProgramSockets(const ProgramSockets&) = delete;
  ProgramSockets& operator=(const ProgramSockets&) = delete;

  // Hands the program's first process its socket, before the answer to `ticket`. `user` is charged for descriptors.
  [[nodiscard]] Status open(std::uint64_t program, channel::AgentEnd& channel, std::uint64_t ticket,
                            std::shared_ptr<ReceivedFds::User> user);
  void close(std::uint64_t program);
  // A process that is no longer there: sends each of the others a notice, because they now find the event of its end.
  void wake(std::uint64_t program, std::uint32_t process) const;
  [[nodiscard]] bool has(std::uint64_t program, std::uint32_t process) const {
    const auto at = programs_.find(program);
    return at != programs_.end() && at->second.processes.contains(process);
  }

 private:
  struct Process {
    std::shared_ptr<const Fd> wake;  // shared with other cores, which send wakes themselves
    Fd notices;
  };
  struct Program {
    std::shared_ptr<ReceivedFds::User> user{};
    std::map<std::uint32_t, Process> processes{};
  };

  [[nodiscard]] Status watch(std::uint64_t program, std::uint32_t process, Process sockets);
  void on_readable(std::uint64_t program, std::uint32_t process, TimeNs now);
  [[nodiscard]] Status join(std::uint64_t program, std::uint32_t from, const wire::TcpJoin& join,
                            std::array<Fd, 2> sockets);
  void on_ended(std::uint64_t program, std::uint32_t process, TimeNs now);

  loop::Loop& loop_;
  Owner& owner_;
  std::map<std::uint64_t, Program> programs_;
};

}  // namespace offpath::agent
