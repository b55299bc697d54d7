#include "channel/host/wake_requests.h"

#include <cstddef>

#include "wire/messages/message_kinds.h"

namespace offpath::channel {

using wire::EntryKind;
using wire::WakeWord;

std::uint64_t WakeRequests::word_of(std::uint32_t stream, WakeWord word) const noexcept {
  switch (word) {
    case WakeWord::pulled:
      return words_.pulled(stream);
    case WakeWord::stored:
      return words_.stored(stream);
    case WakeWord::credit:
      return words_.credit(stream);
    case WakeWord::replies:
      return words_.reply_tail();
    case WakeWord::now:
      break;
  }
  return words_.request_head();
}

void WakeRequests::ask(std::uint64_t& asked, std::uint32_t stream, WakeWord word, std::uint64_t value) {
  if (asked <= value && word_of(stream, word) < asked) return;
  std::vector<std::byte> payload;
  wire::encode(wire::WakeAt{stream, word, word == WakeWord::replies ? value - 1 : value}, payload);
  if (!requests_.fits(payload.size(), 1)) return ask_room();  // and afterwards for this one
  (void)requests_.publish(EntryKind::wake_at, payload);
  asked = value;
}

void WakeRequests::ask_room() {
  if (words_.request_head() < room_wake_at_) return;
  std::vector<std::byte> payload;
  wire::encode(wire::WakeAt{0, WakeWord::now, 0}, payload);
  if (!requests_.fits(payload.size(), 0)) return;
  (void)requests_.publish(EntryKind::wake_at, payload);
  room_wake_at_ = requests_.position();
}

void WakeRequests::arm(std::uint32_t stream, WakeWord word, std::uint64_t value) {
  armed_.emplace(stream, word, value);
  ask(stream, word, value);
}

void WakeRequests::ask_armed() {
  for (auto at = armed_.begin(); at != armed_.end();) {
    const auto [stream, word, value] = *at;
    if (word_of(stream, word) >= value) {
      at = armed_.erase(at);
      continue;
    }
    ask(stream, word, value);
    at = armed_.lower_bound({stream, word, nobody});
  }
}

void WakeRequests::forget(std::uint32_t stream) noexcept {
  armed_.erase(armed_.lower_bound({stream, WakeWord::pulled, 0}),
               armed_.lower_bound({stream + 1, WakeWord::pulled, 0}));
  wake_at_[stream] = of_nobody;
}

}  // namespace offpath::channel
