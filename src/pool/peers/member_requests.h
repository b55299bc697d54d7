// Requests under way to other members. Each has a number, which its token carries, and a note of what its answer is
// for. The note is given back once, with the answer; an answer whose note was forgotten is not wanted any more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "pool/table/frame_table.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"

namespace offpath::pool {

// One sequence of numbers for puts, gets, requests and pulls of this process.
class Numbers {
 public:
  [[nodiscard]] std::uint64_t take() noexcept { return next_++; }

 private:
  std::uint64_t next_ = 1;
};

// A request to a member.
struct Asking {
  enum class Kind { put, get, gather, deliver, cancel, listing, follow, removal, compare } kind;
  std::uint64_t number;  // of the put, get, gather, listing or following
  std::string member;
  FrameTable::Get get{};  // deliver: what it answers; removal: of what; compare: which pool
  FramePtr object{};
  std::uint64_t counter = 0;  // put: its stamp
  WaitCharge charge{};        // get, gather, cancel: of the request, which may be over before
};

class MemberRequests {
 public:
  using Compose = std::function<void(const service::AskedMemory& memory, std::vector<std::byte>& payload)>;
  using Askings = std::unordered_map<std::uint64_t, Asking>;

  explicit MemberRequests(Numbers& numbers) : numbers_(numbers) {}

  // `object`: what the request names, null if nothing. `inbox_bytes`: memory for what is pushed with the answer.
  // Returns the request's number.
  std::uint64_t ask(Asking asking, wire::EntryKind kind, TimeNs deadline, FramePtr object, std::uint32_t inbox_bytes,
                    Compose compose, Effects& effects, std::vector<std::byte> body = {});
  // Says that what was asked under `number` is not wanted any more. Nothing depends on the answer: a member that has
  // not heard of it gives up when the time is over, or when the channel ends.
  void cancel(const std::string& member, wire::PeerCancel::What what, std::uint64_t number, WaitCharge charge,
              TimeNs deadline, Effects& effects);
  // The request whose answer has arrived. Empty: it was forgotten.
  [[nodiscard]] Askings::node_type take(std::uint64_t token);
  void forget(std::uint64_t number) { askings_.erase(number); }
  [[nodiscard]] std::size_t size() const noexcept { return askings_.size(); }

 private:
  Numbers& numbers_;
  Askings askings_;
};

}  // namespace offpath::pool
