// The identity of an object's put, and the order of puts under the same keys.
//
// The agent that takes a put from a program stamps it with a counter: its clock, and more than any counter it has seen.
// The larger counter is the later put; of equal ones that of the larger process number. If an owner has a later object
// than a program's put, it reports that, and the put is stamped again to be the later one. Between owners no put is
// stamped again: the later object replaces the other on all owners, so they converge.
//
// `over` lists the replaced puts, as far as they are known. Two objects that do not list each other were put on two
// sides of a partition. When they meet, one is given up, which is logged as a conflict (versions.h).
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::pool {

struct Version {
  std::uint64_t counter = 0, writer = 0;
  auto operator<=>(const Version&) const = default;
};

// No clock reaches this: a larger counter is damaged or forged.
inline constexpr std::uint64_t put_counter_max = 1ull << 63;
// The number of earlier writers of a key that are remembered. Beyond it the oldest is forgotten, and its put may count
// as a conflict.
inline constexpr std::size_t puts_over_max = 8;
inline constexpr std::size_t put_over_bytes_max = puts_over_max * 16;

// A repeated put, from a member whose answer was lost, does nothing. {0, 0}: a put that is never repeated.
struct PutId {
  std::uint64_t writer = 0, number = 0;  // process and number of the put there
  std::uint64_t counter = 0;             // 0: stored before puts had stamps
  std::vector<Version> over{};           // the latest of each writer
  bool moved = false;                    // from another owner: the version decides, not the pool's options
  std::uint64_t view = 0;                // the members (Pools::view_) when it was put into an empty place

  [[nodiscard]] Version version() const noexcept { return {counter, writer}; }
  // The same put, regardless of `over`.
  bool operator==(const PutId& other) const noexcept { return writer == other.writer && number == other.number; }
  // The other put is an earlier one of the same writer, or this put replaced it or a later put of its writer.
  [[nodiscard]] bool knows(const Version& other) const noexcept;
  // Adds the other put, and the puts that it knows, to `over`.
  void learn(const PutId& other);
};

[[nodiscard]] std::vector<std::byte> encode_over(const std::vector<Version>& over);
[[nodiscard]] Result<std::vector<Version>> decode_over(Bytes bytes);

}  // namespace offpath::pool
