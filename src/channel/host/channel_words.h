// The words of the channel segment (wire/channel_layout.h draws it), as a program's end reads and writes them. The
// agent may change its words at any time, so every call loads them again.
//
// Read this first in src/channel/host, then request_ring.h, replies.h and wake_requests.h (messages to the agent and
// from it), host_streams.h and announced_memory.h (what requests use), leases.h, channel_life.h, sleep_turns.h and
// event_descriptor.h (who is notified); last host_waits.h, host_posts.h and announcements.h, which join them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/sleep_flag.h"
#include "channel/reply.h"
#include "wire/channel_layout.h"

namespace offpath::channel {

class ChannelWords {
 public:
  // `memory`: the channel segment.
  ChannelWords(std::byte* memory, const wire::ChannelLayout& layout) noexcept
      : memory_(memory), lines_(memory + layout.completion_lines()) {}

  // ---- written by the agent

  [[nodiscard]] std::uint64_t request_head() const noexcept { return load_word(memory_ + Layout::agent_line); }
  // The agent's core has this line: it arrives while the program works.
  void prefetch_request_head() const noexcept { __builtin_prefetch(memory_ + Layout::agent_line); }
  // After fence_before_look().
  [[nodiscard]] bool agent_sleeps() const noexcept {
    return SleepFlag(memory_ + Layout::agent_line + offsetof(wire::AgentLine, asleep)).value() != 0;
  }
  [[nodiscard]] std::uint64_t reply_tail() const noexcept { return load_word(memory_ + Layout::reply_tail_line); }
  [[nodiscard]] std::uint64_t pulled(std::uint32_t stream) const noexcept {
    return load_word(line(stream) + offsetof(wire::CompletionLine, pulled));
  }
  [[nodiscard]] std::uint64_t stored(std::uint32_t stream) const noexcept {
    return load_word(line(stream) + offsetof(wire::CompletionLine, stored));
  }
  [[nodiscard]] std::uint64_t credit(std::uint32_t stream) const noexcept {
    return load_word(line(stream) + offsetof(wire::CompletionLine, credit));
  }
  [[nodiscard]] std::uint64_t progress(std::uint32_t stream, Progress progress) const noexcept {
    return progress == Progress::pulled ? pulled(stream) : stored(stream);
  }

  // ---- written by the program

  // The agent sees everything that was stored before.
  void set_request_tail(std::uint64_t position) const noexcept { store_word(memory_ + Layout::tail_line, position); }
  void set_reply_head(std::uint64_t position) const noexcept { store_word(reply_head_word(), position); }
  [[nodiscard]] std::uint64_t reply_head() const noexcept { return load_word(reply_head_word()); }

 private:
  using Layout = wire::ChannelLayout;

  static std::uint64_t load_word(std::byte* at) noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).load(std::memory_order_acquire);
  }
  static void store_word(std::byte* at, std::uint64_t value) noexcept {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).store(value, std::memory_order_release);
  }
  [[nodiscard]] std::byte* line(std::uint32_t stream) const noexcept {
    return lines_ + stream * sizeof(wire::CompletionLine);
  }
  [[nodiscard]] std::byte* reply_head_word() const noexcept {
    return memory_ + Layout::tail_line + offsetof(wire::TailLine, reply_head);
  }

  std::byte* memory_;
  std::byte* lines_;  // one for each stream
};

}  // namespace offpath::channel
