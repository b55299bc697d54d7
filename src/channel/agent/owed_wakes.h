// The wakes that a program has asked for. Of each word (those of completion lines, and the position of the reply ring)
// it asks for one, at the smallest value for which any of its threads waits, and then for the next one. A wake is owed
// from when its cause is written, or the write is under way, until it is sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "wire/channel_layout.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

class OwedWakes {
 public:
  explicit OwedWakes(std::uint32_t streams) : of_streams_(streams, of_nobody) {}

  [[nodiscard]] bool owed() const noexcept { return owed_; }
  // Whether one was owed; it is sent now.
  [[nodiscard]] bool take() noexcept { return std::exchange(owed_, false); }

  // The word of a stream whose line is `written`. True if that is far enough: the line is to be written again.
  [[nodiscard]] bool ask(const wire::WakeAt& wake, const wire::CompletionLine& written) noexcept;
  void ask_replies(std::uint64_t beyond, std::uint64_t written) noexcept {
    lower(replies_beyond_, beyond, written > replies_beyond_);
  }
  void ask_now() noexcept { now_ = true; }

  // Written, or about to be.
  void settle(std::uint32_t stream, const wire::CompletionLine& written) noexcept;
  // The position of the reply ring; `full`: answers wait for room there. While they do no request is taken, not even
  // one for a wake, so a full ring wakes its reader once.
  void settle_replies(std::uint64_t written, bool full) noexcept {
    if (written > replies_beyond_) {
      replies_beyond_ = nobody;
      owed_ = true;
    }
    owed_ |= std::exchange(now_, false);
    if (full && std::exchange(full_at_, written) != written) owed_ = true;
  }
  // The number of the stream is about to be reused: waiters of the former one look again.
  void forget(std::uint32_t stream) noexcept {
    owed_ |= of_streams_[stream] != of_nobody;
    of_streams_[stream] = of_nobody;
  }

 private:
  static constexpr std::uint64_t nobody = ~0ull;  // no word reaches this value: no wake is due
  using OfStream = std::array<std::uint64_t, 3>;  // pulled, stored, credit
  static constexpr OfStream of_nobody{nobody, nobody, nobody};

  static OfStream values_of(const wire::CompletionLine& words) noexcept {
    return {words.pulled, words.stored, words.credit};
  }
  // The smaller value counts: after the wake the program repeats its remaining requests. A value that is already
  // reached owes a wake even if a larger one is asked for: the program may have seen the word and asked for the next
  // value before its wake.
  void lower(std::uint64_t& asked, std::uint64_t value, bool reached) noexcept {
    owed_ |= reached;
    asked = reached ? value : std::min(asked, value);
  }

  std::vector<OfStream> of_streams_;
  std::uint64_t replies_beyond_ = nobody;  // a position of the reply ring
  std::uint64_t full_at_ = 0;              // its position when its reader was last woken because the ring was full
  bool now_ = false;
  bool owed_ = false;
};

inline bool OwedWakes::ask(const wire::WakeAt& wake, const wire::CompletionLine& written) noexcept {
  const auto word = static_cast<std::size_t>(wake.word);
  const std::uint64_t value = values_of(written)[word];
  std::uint64_t& asked = of_streams_[wake.stream][word];
  lower(asked, wake.value, value >= asked);
  return value >= wake.value;
}

inline void OwedWakes::settle(std::uint32_t stream, const wire::CompletionLine& written) noexcept {
  const OfStream values = values_of(written);
  OfStream& asked = of_streams_[stream];
  for (std::size_t word = 0; word < values.size(); ++word) {
    if (values[word] < asked[word]) continue;
    asked[word] = nobody;
    owed_ = true;
  }
}

}  // namespace offpath::channel
