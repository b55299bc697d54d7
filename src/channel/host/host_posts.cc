#include "channel/host/host_posts.h"

namespace offpath::channel {

using wire::EntryKind;

inline Status HostPosts::prepare(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline) {
  OFP_TRY(life_.usable());
  if (!requests_.fits(payload_bytes)) [[unlikely]]
    OFP_TRY(waits_.for_room(lock, payload_bytes, deadline));
  return requests_.offer_outside(payload_bytes, clock_);
}

Result<std::uint64_t> HostPosts::post(Lock& lock, EntryKind kind, Bytes payload, TimeNs deadline) {
  OFP_TRY(prepare(lock, payload.size(), deadline));
  return requests_.publish(kind, payload);
}

Result<std::uint64_t> HostPosts::post_without_wake(Lock& lock, EntryKind kind, Bytes payload, TimeNs deadline) {
  OFP_TRY(prepare(lock, payload.size(), deadline));
  return requests_.publish_without_wake(kind, payload);
}

Result<std::uint64_t> HostPosts::post_data(Lock& lock, EntryKind kind, std::uint32_t stream, Bytes payload,
                                           std::uint64_t charge, std::uint64_t bytes, std::span<const RangeName> uses,
                                           TimeNs deadline) {
  OFP_TRY(life_.usable());
  HostStreams::Stream& state = streams_[stream];
  if (!state.open) return fail(Error::closed, "the stream is closed");
  const std::uint64_t closings = state.closings;
  while (true) {
    if (!state.covers(charge)) [[unlikely]] {
      streams_.look_at_credit(stream);
      if (!state.covers(charge)) OFP_TRY(waits_.for_credit(lock, stream, charge, deadline));
    }
    if (requests_.fits(payload.size())) [[likely]]
      break;
    OFP_TRY(waits_.for_room(lock, payload.size(), deadline));
    // Meanwhile another thread may have spent the credit, or closed the stream; then the number may be another one's.
    if (state.closings != closings) return fail(Error::closed, "the stream is closed");
  }
  // Checked under the lock, so that no memory can be withdrawn before the post.
  for (const RangeName& use : uses) OFP_TRY(memory_.check_announced(use));
  OFP_TRY(requests_.offer_outside(payload.size(), clock_));
  const std::uint64_t ticket = requests_.publish(kind, payload);
  state.note(charge, ticket);
  bytes_ += bytes;
  for (const RangeName& use : uses) memory_.lease(use.region, stream, ticket);
  return ticket;
}

}  // namespace offpath::channel
