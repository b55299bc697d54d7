#include "channel/host/host_streams.h"

#include <algorithm>

#include "wire/messages/message_kinds.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

Result<std::uint32_t> HostStreams::open() {
  const auto unused = std::ranges::find_if(streams_, [](const Stream& stream) { return !stream.open; });
  if (unused == streams_.end())
    return fail(Error::too_large, "{} streams are open, which is the limit of this channel", streams_.size());
  *unused = {.open = true, .closings = unused->closings};
  return static_cast<std::uint32_t>(unused - streams_.begin());
}

std::uint64_t HostStreams::credit_left(std::uint32_t stream) const noexcept {
  const std::uint64_t credit = words_.credit(stream);
  return credit - std::min(credit, streams_[stream].charged);
}

bool HostStreams::post_need(std::uint32_t stream, std::uint64_t sum) {
  std::vector<std::byte> payload;
  wire::encode(wire::NeedCredit{stream, sum}, payload);
  if (!requests_.fits(payload.size())) return false;
  (void)requests_.publish(wire::EntryKind::need_credit, payload);
  return true;
}

void HostStreams::ask_credit(std::uint32_t stream, std::uint64_t sum) {
  Stream& state = streams_[stream];
  if (state.credit_asked < sum && post_need(stream, sum)) state.credit_asked = sum;
}

void HostStreams::give_up_credit(std::uint32_t stream) {
  Stream& state = streams_[stream];
  if (!state.open || state.credit_waiters > 0 || state.credit_asked == 0) return;
  if (post_need(stream, state.charged)) state.credit_asked = 0;  // otherwise the next send asks for more in any case
}

std::uint64_t HostStreams::newest_pulled() const noexcept {
  std::uint64_t newest = 0;
  for (std::uint32_t stream = 0; stream < count(); ++stream)
    if (streams_[stream].open) newest = std::max(newest, words_.pulled(stream));
  return newest;
}

}  // namespace offpath::channel
