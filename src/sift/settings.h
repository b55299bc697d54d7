// The settings in a sift pool's name:
//
//   sift:/tracks?key=id&stages=2&fanout=16&threshold=64MiB&age=1s&budget=512MiB&credit=128MiB&members=dpu*
//               &replicas=2&spill=durable
//   sift:/tracks?key=id&spill=on&tracks_budget=1GiB     not with copies
//   sift:/tracks?key=x&by=range&ranges=-1.5,0,1.5&fanout=4    identifiers of other types (split/key_form.h)
//   sift:/tracks?key=x&by=range&ranges=sample                  ranges of the first rows (split/range_sample.h)
//   sift:/tracks?key=id&stages=2&fanout=16&stage1=hosts&stage2=rack:*    not with copies
//
// The definition of a pool with mapped stages also has its members' places at its creation:
//
//   racks=r1:dpu{1..4},host{1..4}|r2:…    all members by rack      cards=dpu{1..8}    those on DPUs
//
// Read this first in src/sift, then split/geometry.h (the placement of elements), piece.h (the unit of transfer),
// split/row_form.h (its columns), split/partition.h and tracks/compaction.h (how an element splits), sift.h (one pool
// on one agent), arrival/charges.h and elements/due_elements.h (its parts), sift_service.h (all pools of an agent),
// pools/service_context.h, tracks/track_run.h, tracks/tracks.h and tracks/track_reader.h (tracks and how
// they are read).
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "sift/split/key_form.h"
#include "sift/split/partition.h"
#include "sift/split/stage_places.h"

namespace offpath::sift {

[[nodiscard]] inline bool is_sift_pool(std::string_view pool) noexcept { return pool.starts_with("sift:/"); }

struct Settings {
  std::string pool;  // "/tracks"
  std::string key;   // the column with identifiers
  KeyBy by = KeyBy::bits;
  std::vector<std::string> ranges;
  bool samples_ranges = false;  // ranges=sample: they are learnt from the first rows (split/range_sample.h)
  std::uint32_t stages = 1;
  std::uint32_t fanout = 16;                    // a power of two
  std::uint64_t threshold_bytes = 64ull << 20;  // an element with this many bytes splits
  TimeNs age_ns = second_ns;                    // as does one whose oldest piece has this age
  std::uint64_t budget_bytes = 0;               // of one stage on one agent: pieces in, and pieces on their way out
  std::uint64_t credit_bytes = 0;               // of one stage on one agent: pieces published and not answered
  std::string members;                          // patterns of members' names, and replicas: as for other pools
  std::uint32_t wait = 0;                       // members that have to live before the pool is made; 0 afterwards
  std::uint32_t replicas = 1;
  bool durable = false;                   // spill=durable: taken pieces are on disk
  bool spill_on = false;                  // spill=on: tracks that left memory are on disk while the agent lives
  std::uint64_t tracks_budget_bytes = 0;  // bytes of tracks in memory on one agent; 0: unbounded
  std::map<std::uint32_t, std::string> selectors;  // stageN=: the members that hold it (split/stage_places.h)
  std::map<std::string, MemberPlace> places;       // places of members; others are hosts in no known rack

  [[nodiscard]] KeyRule key_rule() const { return {key, by, ranges}; }

  // The user has mapped stages: consecutive elements are placed close together (split/geometry.h).
  [[nodiscard]] bool mapped() const noexcept { return !selectors.empty(); }

  // The agent's part of the pool survives the agent.
  [[nodiscard]] bool kept() const noexcept { return durable || replicas > 1; }
  // Its tracks go to disk if they have too many bytes for memory.
  [[nodiscard]] bool spills() const noexcept { return tracks_budget_bytes != 0; }

  [[nodiscard]] std::uint32_t fanout_bits() const noexcept {
    return static_cast<std::uint32_t>(std::countr_zero(fanout));
  }
  // Bits by which an element of this stage is matched.
  [[nodiscard]] std::uint32_t matched_bits(std::uint32_t stage) const noexcept { return (stage - 1) * fanout_bits(); }
  // The bits by which an element of this stage splits. Low bits first: identifiers are counted up, so low bits are
  // spread evenly.
  [[nodiscard]] SplitBits split_bits(std::uint32_t stage) const noexcept {
    return {matched_bits(stage), fanout_bits()};
  }
  // The stage that keeps tracks and does not split.
  [[nodiscard]] std::uint32_t track_stage() const noexcept { return stages + 1; }
  [[nodiscard]] std::uint32_t elements(std::uint32_t stage) const noexcept { return 1u << matched_bits(stage); }

  bool operator==(const Settings&) const = default;
};

// Of Settings::pool: a reference to a definition (definition.h), which messages have, is so much longer.
inline constexpr std::size_t reference_more_bytes = std::string_view("sift:?definition=").size() + 32;
inline constexpr std::uint32_t fanout_max = 1u << split_bits_max;
inline constexpr std::uint32_t matched_bits_max = 16;  // all stages together: 65,536 elements that keep tracks
inline constexpr std::uint64_t threshold_bytes_min = 4096;
inline constexpr std::uint64_t tracks_budget_bytes_min = 64 << 10;

// Budget and credit default to values that follow from the threshold: an element accumulates one threshold while
// another one is split, and a piece may need its own size once more for its parts.
[[nodiscard]] Result<Settings> parse_settings(std::string_view name);
[[nodiscard]] Status check(const Settings& settings);

[[nodiscard]] constexpr std::string_view name_in(std::string_view text) noexcept {
  return text.substr(0, text.find('?'));
}  // without settings
// Whether two settings differ only in the members of the pool.
[[nodiscard]] bool same_but_members(Settings a, Settings b);

}  // namespace offpath::sift
