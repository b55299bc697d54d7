// The agent's end of a slow path in another process: puts its stack's messages into the ring, and checks and carries
// out the process's messages.
//
// Frames may take half of the ring, ARP three quarters, so that a flood of SYNs leaves room for messages that
// established flows need; more frames are dropped and counted. All other messages wait for room, and while many wait no
// message is taken from the process. A process that takes nothing for `silence_ns` although the ring has records is
// considered dead; while it has connections to begin, the ring always has some.
#pragma once

#include "tcp/slow_path/slow_path_area.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

struct SlowPathCounters {
  std::uint64_t frames_out = 0, frames_dropped = 0;  // frames of no flow: given to the process, and dropped without
                                                     // room
  std::uint64_t adopted = 0, declined = 0;           // flows that it handed over
  std::uint64_t handed_back = 0;                     // flows in TIME-WAIT
};

class AgentSlowPath final : public SlowPath {
 public:
  static constexpr TimeNs silence_ns = second_ns, look_every_ns = second_ns / 2;

  // From now on the stack leans on it; `counters` go on from one process to the next. All of them, and the memory,
  // outlive it.
  AgentSlowPath(Stack& stack, MutableBytes memory, const wire::TcpSlowLayout& layout, SlowPathCounters& counters,
                TimeNs now);
  ~AgentSlowPath() override;  // the stack does it again
  AgentSlowPath(const AgentSlowPath&) = delete;
  AgentSlowPath& operator=(const AgentSlowPath&) = delete;

  // True: there was work. Error: the process cannot be the slow path any more; destroy this object.
  [[nodiscard]] Result<bool> poll(TimeNs now);
  // After a round, and after the stack was polled.
  [[nodiscard]] bool wants_wake() noexcept { return area_.wants_wake(); }
  [[nodiscard]] bool fall_asleep() noexcept { return area_.waiting() == 0 && area_.fall_asleep(); }
  [[nodiscard]] TimeNs next_due() const noexcept {
    if (area_.unread_there()) return silent_since_ + silence_ns;
    return opening_ > 0 ? look_at_ : never;
  }

  void frame(const ReceivedFrame& frame, bool of_neighbour) override;
  void listen(IpFamily family, std::uint16_t port, std::uint64_t receive_bytes, const FlowOptions& options) override;
  void stop_listening(IpFamily family, std::uint16_t port) override;
  void connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes,
               const FlowOptions& options) override;
  void abandon(const FlowKey& key, std::uint32_t attempt) override;
  void time_wait(const wire::TcpHandedFlow& flow) override;
  void resolve(const IpAddress& address) override;

 private:
  [[nodiscard]] Status take(const SlowPathArea::Record& record, TimeNs now);
  [[nodiscard]] Status adopt(Bytes payload, TimeNs now);
  [[nodiscard]] Status send(Bytes payload);

  Stack& stack_;
  SlowPathArea area_;
  SlowPathCounters& counters_;
  std::uint64_t ring_bytes_;
  std::uint64_t taken_seen_ = 0;
  bool waited_ = false;                // at the poll before there was something for it
  std::uint64_t opening_ = 0;          // connections that it was asked to begin, and of which nothing was heard
  TimeNs silent_since_, look_at_ = 0;  // silent: since there is something for it, or it was seen to take something
};

}  // namespace offpath::tcp
