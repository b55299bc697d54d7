// The keeper as a process of its own, between the agent and its actuators: started while the agent still has its
// privileges, and alive until the agent has ended, however that happened. Then every actuator has its former setting
// again, and the keeper ends.
//
//   agent -- Request, one packet each --> keeper      SOCK_SEQPACKET; its end of file is the end of the agent
//         <-- Reply, in the same order ---
//
// It checks nothing but the bounds: it trusts the agent that started it, and no other process has the socket. It is
// forked and not executed, before the agent starts threads of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actuator/actuator.h"
#include "base/fd.h"

namespace offpath::actuator {

struct Answer {
  std::uint64_t number = 0;
  Result<std::uint64_t> value;  // in force
};

class KeeperProcess {
 public:
  // `confine` runs in the keeper before it serves: it gives up the privileges that files of actuators do not need. If
  // that fails the keeper ends. roots.former exists, and belongs to this user alone. The settings that a killed
  // keeper has left there are returned.
  [[nodiscard]] static Result<KeeperProcess> start(const std::vector<ActuatorOptions>& options, const Roots& roots,
                                                   const std::function<Status()>& confine);
  KeeperProcess(KeeperProcess&& other) noexcept;
  KeeperProcess& operator=(KeeperProcess&&) = delete;
  ~KeeperProcess();  // waits until every setting is given up, for two seconds at most

  // Never waits. `until`: CLOCK_BOOTTIME; 0: gives it up. An error: nothing was sent.
  [[nodiscard]] Status ask(std::uint64_t number, std::uint32_t actuator, std::uint64_t value, TimeNs until);
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }  // readable: receive()
  // Empty: no reply yet. An error: the keeper has ended.
  [[nodiscard]] Result<std::vector<Answer>> receive();
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  KeeperProcess(Fd socket, pid_t pid) noexcept : socket_(std::move(socket)), pid_(pid) {}
  Fd socket_;
  pid_t pid_;
  std::size_t asked_ = 0;  // and not answered
};

}  // namespace offpath::actuator
