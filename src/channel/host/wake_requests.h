// The wakes that the agent owes this program. For each word it owes at most one, at the smallest value for which any
// thread waits. Until the word reaches that value the wake is still to come, and only a smaller value has to be
// requested. A woken thread looks, and asks again if it still has to wait.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "channel/host/channel_words.h"
#include "channel/host/replies.h"
#include "channel/host/request_ring.h"
#include "channel/reply.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

[[nodiscard]] constexpr wire::WakeWord wake_word(Progress progress) noexcept {
  return progress == Progress::pulled ? wire::WakeWord::pulled : wire::WakeWord::stored;
}

class WakeRequests {
 public:
  WakeRequests(const ChannelWords& words, RequestRing& requests, const Replies& replies, std::uint32_t streams)
      : words_(words), requests_(requests), replies_(replies), wake_at_(streams, of_nobody) {}

  // Asks for a wake when the stream's word reaches `value`, or earlier. Repeating a request that stands costs two
  // loads. A request that finds no room asks for a wake when there is.
  void ask(std::uint32_t stream, wire::WakeWord word, std::uint64_t value) {
    ask(wake_at_[stream][static_cast<std::size_t>(word)], stream, word, value);
  }
  // At the next reply.
  void ask_replies() { ask(replies_wake_at_, 0, wire::WakeWord::replies, replies_.position() + 1); }
  // When the agent has taken everything that is in the ring now. The ring's last slot is reserved for this request.
  void ask_room();

  // Asks, and ask_armed() asks again until the word has reached `value`.
  void arm(std::uint32_t stream, wire::WakeWord word, std::uint64_t value);
  [[nodiscard]] bool any_armed() const noexcept { return !armed_.empty(); }
  // Of each word, the smallest armed value that is not reached.
  void ask_armed();

  // The stream is closed: the next one of this number starts its words at 0.
  void forget(std::uint32_t stream) noexcept;

 private:
  static constexpr std::uint64_t nobody = ~0ull;  // no word reaches this value: no wake is requested

  void ask(std::uint64_t& asked, std::uint32_t stream, wire::WakeWord word, std::uint64_t value);
  [[nodiscard]] std::uint64_t word_of(std::uint32_t stream, wire::WakeWord word) const noexcept;

  ChannelWords words_;
  RequestRing& requests_;
  const Replies& replies_;
  using OfStream = std::array<std::uint64_t, 3>;  // pulled, stored, credit
  static constexpr OfStream of_nobody{nobody, nobody, nobody};
  std::vector<OfStream> wake_at_;
  std::uint64_t replies_wake_at_ = nobody;                                    // the position of the reply ring
  std::uint64_t room_wake_at_ = 0;                                            // the position after the request for it
  std::set<std::tuple<std::uint32_t, wire::WakeWord, std::uint64_t>> armed_;  // still to come
};

}  // namespace offpath::channel
