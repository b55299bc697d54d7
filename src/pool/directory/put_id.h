// Which put an object is of, and which of two puts of the same keys is the later.
//
// The agent that takes a put from a program stamps it with a counter: its clock, and more than any counter it has seen.
// The larger counter is the later put; of equal ones that of the larger process number. An owner that has a later
// object than a put that comes from a program says so, and the put is stamped again, so that it is the later one.
// Between owners nothing is stamped again: the later object replaces the other on all of them, so all come to the same.
//
// `over` are the puts that it replaced, where they were known. Of two objects that do not know of each other one is
// given up when they meet. They were put on two sides of a cut: that is a conflict, and said (versions.h).
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

// Never reached by a clock: what has more is damaged, or not honest.
inline constexpr std::uint64_t put_counter_max = 1ull << 63;
// Writers of one key's puts before that are remembered; of more, the oldest put is forgotten, and may count as a
// conflict.
inline constexpr std::size_t puts_over_max = 8;
inline constexpr std::size_t put_over_bytes_max = puts_over_max * 16;

// The same put again, from a member whose answer was lost, does nothing. {0, 0}: one that nobody repeats.
struct PutId {
  std::uint64_t writer = 0, number = 0;  // process and number of the put there
  std::uint64_t counter = 0;             // 0: of a time before there were any
  std::vector<Version> over{};           // of each writer the latest
  bool moved = false;      // from another owner: it replaces by its version, whatever the pool's options say
  std::uint64_t view = 0;  // put where nothing was, when the members were these (Pools::view_)

  [[nodiscard]] Version version() const noexcept { return {counter, writer}; }
  // The same put, whatever it replaced.
  bool operator==(const PutId& other) const noexcept { return writer == other.writer && number == other.number; }
  // That one is this one's writer's own and earlier, or this one replaced it, or a later one of its writer.
  [[nodiscard]] bool knows(const Version& other) const noexcept;
  // From now on this one knows the other one and everything that the other one knows.
  void learn(const PutId& other);
};

[[nodiscard]] std::vector<std::byte> encode_over(const std::vector<Version>& over);
[[nodiscard]] Result<std::vector<Version>> decode_over(Bytes bytes);

}  // namespace offpath::pool
