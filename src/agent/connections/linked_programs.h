// Programs on other machines that have connections here: each with a copy of its area (tcp/area/area_mirror.h), and
// the reads and writes of its channel's link that keep the copy and the program's area in step. The program's machine
// has a relay (tcp_relay.h), which reports processes and wakes by requests of the channel.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "channel/agent_end.h"
#include "tcp/area/area_mirror.h"
#include "tcp/program/tcp_service.h"
#include "wire/region.h"

namespace offpath::agent {

class LinkedPrograms {
 public:
  // The memory of the copy, for TcpService. The channel lives until close().
  [[nodiscard]] Result<tcp::TcpService::Memory> open(std::uint64_t program, channel::AgentEnd& channel,
                                                     wire::RegionId region, const wire::TcpAreaLayout& layout);
  // The copy's memory is kept until every transfer has ended.
  void close(std::uint64_t program);
  [[nodiscard]] bool has(std::uint64_t program) const { return programs_.contains(program); }

  // Returns how long the program's link takes for an answer (AreaMirror::answer_ns), also after close().
  [[nodiscard]] std::function<TimeNs()> answer_ns(std::uint64_t program) const {
    return [mirror = programs_.at(program).mirror] { return mirror->answer_ns(); };
  }
  void look(std::uint64_t program, TimeNs now);
  // The program has ended, and its relay keeps its area: the rest of it is fetched.
  void finish(std::uint64_t program);
  void wake(std::uint64_t program, std::uint32_t process);
  void on_transfer(std::uint64_t token, Status status, TimeNs now);
  // After TcpService's round.
  bool poll(TimeNs now);
  [[nodiscard]] bool may_sleep() const;

  // Sums over all programs since the start.
  [[nodiscard]] tcp::AreaMirrorCounters counters() const;

  [[nodiscard]] std::vector<std::uint64_t> take_finished();
  struct Ended {
    std::uint64_t program;
    Failure why;
  };
  [[nodiscard]] std::vector<Ended> take_ended() noexcept { return std::exchange(ended_, {}); }

 private:
  class Memory;
  struct Program {
    channel::AgentEnd* channel;
    wire::RegionId region;
    std::shared_ptr<Memory> memory;
    std::shared_ptr<tcp::AreaMirror> mirror;
  };
  // A transfer of the link that has not ended. It keeps the memory and the words that it writes, even if the program is
  // closed.
  struct Transfer {
    std::uint64_t program;
    std::uint64_t token;  // of the mirror
    std::shared_ptr<Memory> memory;
    std::shared_ptr<tcp::AreaMirror> mirror;
  };

  bool carry(std::uint64_t number, Program& program);

  std::map<std::uint64_t, Program> programs_;
  std::map<std::uint64_t, Transfer> transfers_;  // by token
  std::uint64_t next_token_ = 1;
  std::vector<std::uint64_t> finishing_;
  std::vector<Ended> ended_;
  tcp::AreaMirrorCounters past_;  // of programs that have ended
};

}  // namespace offpath::agent
