// Where what a member keeps of a pool lies (journal.h), and how much memory copies take at the members that have them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sift/split/geometry.h"

namespace offpath::sift {

// The row of the pool's own pool that has what `self` keeps: so chosen that it lies there first, with the next member
// in the order of names second where few members allow it, so that copies are spread evenly.
[[nodiscard]] std::string kept_row(const std::string& self, std::uint32_t replicas,
                                   std::span<const std::string> members);

// What a member (by position) has to have set aside for copies while all members live; 0 where none lie there. For each
// row that has a copy with it the budgets of all stages, of which copies of pieces take about half, for that was
// charged for a piece and its parts. The rest is for pieces whose removal it has not heard of yet, and for rows that
// come to it because another member is away. With spill=durable copies leave memory for the disk, so one budget is for
// all stages.
[[nodiscard]] std::uint64_t copies_bytes(const Geometry& geometry, std::uint32_t member);

// Copies of these stay, and are no part of what a stage is charged: runs of tracks. They take of what is set aside only
// when there is no other memory.
[[nodiscard]] bool copy_stays(std::string_view name);

}  // namespace offpath::sift
