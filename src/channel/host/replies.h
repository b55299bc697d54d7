// The agent's replies. Those that someone awaits are kept until they are taken. Failures of other requests are kept for
// queries of their ticket, the newest failures_max of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/queue.h"
#include "base/status.h"
#include "channel/host/channel_words.h"
#include "channel/reply.h"
#include "channel/ring.h"
#include "wire/channel_layout.h"

namespace offpath::channel {

class Replies {
 public:
  static constexpr std::size_t failures_max = 4096;

  // `memory`: the channel segment.
  Replies(const ChannelWords& words, const std::byte* memory, const wire::ChannelLayout& layout)
      : words_(words),
        memory_(memory + layout.reply_ring()),
        slots_(layout.reply_slots),
        ring_(layout.reply_slots, EntryReader::Tickets::given) {}

  // Takes in all that have arrived, and releases their slots. `newest`: the newest ticket. A failure is the agent's: it
  // wrote what cannot be.
  [[nodiscard]] Status take_in(std::uint64_t newest) {
    const std::uint64_t tail = words_.reply_tail();
    if (tail == ring_.position()) [[likely]]
      return {};
    return take_in_until(tail, newest);
  }
  [[nodiscard]] bool have_arrived() const noexcept { return words_.reply_tail() != ring_.position(); }
  // In slots; it grows with each reply that was taken in.
  [[nodiscard]] std::uint64_t position() const noexcept { return ring_.position(); }

  void await(std::uint64_t ticket) { awaited_.emplace(ticket, std::nullopt); }
  // Null: nobody awaits it, or it was taken; empty: it has not arrived. Valid until the next call.
  [[nodiscard]] const std::optional<Reply>* find(std::uint64_t ticket) const noexcept {
    const auto at = awaited_.find(ticket);
    return at != awaited_.end() ? &at->second : nullptr;
  }
  // Nobody awaits it afterwards, if it had arrived.
  [[nodiscard]] std::optional<Reply> take(std::uint64_t ticket);
  void forget(std::uint64_t ticket) noexcept { awaited_.erase(ticket); }

  // It stays known: `pulled` and `stored` both report it.
  [[nodiscard]] Status failure_of(std::uint64_t ticket) const {
    if (failures_.empty()) [[likely]]
      return {};
    const auto at = failures_.find(ticket);
    return at == failures_.end() ? Status() : tl::unexpected(at->second);
  }
  [[nodiscard]] std::uint64_t failed() const noexcept { return failed_; }  // requests whose replies nobody awaited

 private:
  [[nodiscard]] Status take_in_until(std::uint64_t tail, std::uint64_t newest);
  [[nodiscard]] Status keep(const Entry& entry, std::uint64_t newest);

  ChannelWords words_;
  const std::byte* memory_;  // of the ring
  std::uint32_t slots_;
  EntryReader ring_;
  std::unordered_map<std::uint64_t, std::optional<Reply>> awaited_;
  std::unordered_map<std::uint64_t, Failure> failures_;
  Queue<std::uint64_t> failures_order_;
  std::uint64_t failed_ = 0;
};

}  // namespace offpath::channel
