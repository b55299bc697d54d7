// Requests under way to other members. Each has a number, which its token carries, and a note of its purpose. The note
// is returned once, with the answer. An answer without a note is ignored.
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
  FrameTable::Get get{};  // deliver: the request it answers; removal: the object; compare: the pool
  FramePtr object{};
  std::uint64_t counter = 0;  // put: its stamp
  WaitCharge charge{};        // get, gather, cancel: the waiting request, which may end before
};

class MemberRequests {
 public:
  using Compose = std::function<void(const service::AskedMemory& memory, std::vector<std::byte>& payload)>;
  using Askings = std::unordered_map<std::uint64_t, Asking>;

  explicit MemberRequests(Numbers& numbers) : numbers_(numbers) {}

  // `object`: the named object, may be null. `inbox_bytes`: memory for an object pushed with the answer. Returns the
  // request's number.
  std::uint64_t ask(Asking asking, wire::EntryKind kind, TimeNs deadline, FramePtr object, std::uint32_t inbox_bytes,
                    Compose compose, Effects& effects, std::vector<std::byte> body = {});
  // Cancels request `number`. The answer does not matter: a member that misses the cancellation gives up at the
  // deadline, or when the channel ends.
  void cancel(const std::string& member, wire::PeerCancel::What what, std::uint64_t number, WaitCharge charge,
              TimeNs deadline, Effects& effects);
  // Takes the note of an arrived answer. Empty: it was forgotten.
  [[nodiscard]] Askings::node_type take(std::uint64_t token);
  void forget(std::uint64_t number) { askings_.erase(number); }
  [[nodiscard]] std::size_t size() const noexcept { return askings_.size(); }

 private:
  Numbers& numbers_;
  Askings askings_;
};

}  // namespace offpath::pool
