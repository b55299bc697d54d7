// The daemon's side of the slow-path process: which process may offer it, the shared memory and wakes between the two,
// and the process's end, after which the agent does the slow path itself (tcp/slow_path/slow_path_agent.h).
#pragma once

#include <memory>
#include <optional>

#include "agent/connections/mapped_again.h"
#include "base/fd.h"
#include "channel/agent_end.h"
#include "loop/loop.h"
#include "tcp/slow_path/slow_path_agent.h"

namespace offpath::agent {

class TcpSlowPath {
 public:
  // `wanted`: tcp.slow_path is host. The loop outlives this.
  TcpSlowPath(loop::Loop& loop, bool wanted) : loop_(loop), wanted_(wanted) {}
  ~TcpSlowPath();
  TcpSlowPath(const TcpSlowPath&) = delete;
  TcpSlowPath& operator=(const TcpSlowPath&) = delete;

  // Serves a tcp_slow_path request. The stack outlives this.
  [[nodiscard]] Status open(channel::AgentEnd& channel, const channel::Entry& request, bool privileged,
                            tcp::Stack& stack, TimeNs now);
  void on_channel_closed(std::uint64_t channel);

  bool poll(TimeNs now);
  // Called after the stack has sent. The process that has ended since the last round, with the reason: its channel is
  // to be closed.
  struct Ended {
    std::uint64_t channel;
    Failure why;
  };
  [[nodiscard]] std::optional<Ended> finish_round();
  [[nodiscard]] bool fall_asleep() noexcept { return !ended_ && (!there_ || there_->end.fall_asleep()); }
  [[nodiscard]] TimeNs next_deadline() const noexcept { return there_ ? there_->end.next_due() : never; }

  [[nodiscard]] bool is_there() const noexcept { return there_ != nullptr; }
  [[nodiscard]] const tcp::SlowPathCounters& counters() const noexcept { return counters_; }

 private:
  struct There {
    There(std::uint64_t channel_, Fd wake_, MappedAgain memory_, tcp::Stack& stack, const wire::TcpSlowLayout& layout,
          tcp::SlowPathCounters& counters, TimeNs now)
        : channel(channel_),
          wake(std::move(wake_)),
          memory(std::move(memory_)),
          end(stack, memory.bytes(), layout, counters, now) {}
    std::uint64_t channel;
    Fd wake;
    MappedAgain memory;
    tcp::AgentSlowPath end;
  };
  void on_woken();
  void leave();
  void lose(Failure why);

  loop::Loop& loop_;
  bool wanted_;
  tcp::SlowPathCounters counters_;
  std::unique_ptr<There> there_;
  std::optional<Ended> ended_;
};

}  // namespace offpath::agent
