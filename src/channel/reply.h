// An agent's answer to a request of this program, and the progress of a posted ticket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "wire/messages/message_kinds.h"

namespace offpath::channel {

struct Reply {
  wire::ReplyKind kind;
  std::vector<std::byte> payload;
  std::uint64_t ticket;  // of the request that it answers
};

// The two stages of a posted ticket.
enum class Progress { pulled, stored };

// Turns a `failed` reply into its failure.
[[nodiscard]] Result<Reply> unfailed(Reply reply);

}  // namespace offpath::channel
