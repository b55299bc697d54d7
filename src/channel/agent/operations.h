// The operations of an agent's end, as tokens of its link, and the words of the channel's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace offpath::channel {

// The kind of operation that a link event completes: the top byte of its token.
enum class Operation : std::uint8_t { look = 1, flush = 2, pull = 3, push = 4, outside = 5, fetch = 6 };

constexpr std::uint64_t token_of(Operation operation, std::uint64_t number) noexcept {
  return (static_cast<std::uint64_t>(operation) << 56) | number;
}

inline std::atomic_ref<std::uint64_t> word(std::byte* at) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
}

}  // namespace offpath::channel
