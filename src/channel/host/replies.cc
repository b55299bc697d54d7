#include "channel/host/replies.h"

#include <cstring>
#include <string>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::channel {

inline Status Replies::keep(const Entry& entry, std::uint64_t newest) {
  const std::uint64_t ticket = entry.ticket;
  if (entry.outside) return fail(Error::protocol, "a reply lies outside of its ring");
  if (ticket > newest) return fail(Error::protocol, "a reply to ticket {}, the newest is {}", ticket, newest);
  const auto kind = static_cast<wire::ReplyKind>(entry.kind);
  if (const auto awaited = awaited_.find(ticket); awaited != awaited_.end()) {
    awaited->second = Reply{kind, {entry.payload.begin(), entry.payload.end()}, ticket};
    return {};
  }
  wire::Failed failed{};
  if (kind != wire::ReplyKind::failed || !wire::decode(entry.payload, failed)) return {};  // the call was abandoned
  ++failed_;
  if (failures_.emplace(ticket, Failure{failed.code, std::string(failed.message)}).second)
    failures_order_.push_back(ticket);
  while (failures_order_.size() > failures_max) {
    failures_.erase(failures_order_.front());
    failures_order_.pop_front();
  }
  return {};
}

Status Replies::take_in_until(std::uint64_t tail, std::uint64_t newest) {
  if (tail < ring_.position() || tail - ring_.position() > slots_)
    return fail(Error::protocol, "the reply ring's tail is {}, its head {}, its size {}", tail, ring_.position(),
                slots_);
  while (ring_.position() < tail) {
    wire::Slot slot;
    std::memcpy(&slot, memory_ + (ring_.position() & (slots_ - 1)) * wire::slot_bytes, sizeof slot);
    if (!ring_.verifies(slot)) return tl::unexpected(ring_.explain(slot));
    Entry entry;
    OFP_ASSIGN(const bool complete, ring_.take(slot, entry));
    if (complete) OFP_TRY(keep(entry, newest));
  }
  words_.set_reply_head(ring_.position());
  return {};
}

std::optional<Reply> Replies::take(std::uint64_t ticket) {
  const auto at = awaited_.find(ticket);
  if (at == awaited_.end() || !at->second) return std::nullopt;
  std::optional<Reply> reply = std::move(at->second);
  awaited_.erase(at);
  return reply;
}

}  // namespace offpath::channel
