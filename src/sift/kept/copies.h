// The place of a member's kept objects (journal.h), and the memory that copies take at other members.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sift/split/geometry.h"

namespace offpath::sift {

// The row of the pool's own pool that has the objects of `self`. It is chosen such that `self` is its first owner and,
// where few members allow it, the next member in the order of names its second one, so that copies are spread evenly.
[[nodiscard]] std::string kept_row(const std::string& self, std::uint32_t replicas,
                                   std::span<const std::string> members);

// The memory that a member (by position) reserves for copies while all members live; 0 where it has none. For each row
// with a copy there, it is the budgets of all stages, of which copies of pieces take about half, because a budget is
// charged for a piece and its parts. The rest is for pieces whose removal the member has not heard of, and for rows of
// absent members. With spill=durable copies leave memory for the disk, so one budget covers all stages.
[[nodiscard]] std::uint64_t copies_bytes(const Geometry& geometry, std::uint32_t member);

// Copies of runs of tracks, which stay and are not charged to a stage. They take reserved memory only when there is no
// other.
[[nodiscard]] bool copy_stays(std::string_view name);

}  // namespace offpath::sift
