// What those who serve requests of a channel want done there, where it is no more than this: memory of the other side
// read, and the request answered. The channels' owner carries it out (src/agent/dispatcher); mover/effects.h has what
// moving data takes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "wire/region.h"

namespace offpath::channel {

// How it ended is told by on_transfer with the same token; `to` stays until then.
struct PullEffect {
  std::uint64_t channel, token;
  wire::BufferRef from;
  std::byte* to;
};

// `done` with the number, or the failure.
struct AnswerEffect {
  std::uint64_t channel, ticket;
  Result<std::uint64_t> number;
};
[[nodiscard]] inline Result<std::uint64_t> number_of(Status outcome) {
  if (!outcome) return tl::unexpected(std::move(outcome).error());
  return 0;
}

struct Effects {
  std::vector<PullEffect> pulls;
  std::vector<AnswerEffect> answers;
};

}  // namespace offpath::channel
