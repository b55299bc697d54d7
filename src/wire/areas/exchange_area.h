// The memory through which a program takes part in an exchange: a segment of its own. The agent pulls the program's
// records and pushes the views; neither side waits for the other, and no messages are needed.
//
//      0  PublishLine    the program's: which record is the newest
//     64  ViewLine       the agent's: which view is the newest
//    128  record slots   two, of 64 + align_up(record_bytes, 64): RecordHead, then the record
//         view slots     two, of align_up(view_bytes, 64): ViewHead, its rows, then bytes
//
// Record number n is stored in slot n % 2: the program writes the slot, then the line. The agent reads the line, then
// the slot, and accepts it if number and checksum show that it is complete; otherwise it reads again. Views go the
// other way: the agent pushes the slot, and then the line when the slot has arrived; the program copies the slot, and
// accepts it if the line has not moved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::wire {

struct PublishLine {
  std::uint64_t number;  // of the newest record; 0: none
  std::uint64_t zero[7];
};
static_assert(sizeof(PublishLine) == 64);

struct ViewLine {
  std::uint64_t number;  // of the newest view; 0: none
  std::uint64_t zero[7];
};
static_assert(sizeof(ViewLine) == 64);

struct RecordHead {
  std::uint64_t number;
  std::uint64_t length;
  std::int64_t published_at_ns;  // the program's CLOCK_MONOTONIC, which is meaningful only on its own machine
  std::uint32_t crc32c;          // of the record, seeded with the lower half of the number
  std::uint32_t zero;
  // the newest view that the program had seen: it acts on that view's grant
  std::uint64_t view_number;
  std::uint64_t zeros[3];
};
static_assert(sizeof(RecordHead) == 64);

inline constexpr std::uint32_t view_whole = 1, view_leads = 2,
                               view_cut = 4;  // cut: records did not fit and were omitted
inline constexpr std::uint32_t entry_present = 1, entry_has_value = 2, entry_cut = 4;

struct ViewHead {
  std::uint64_t number;
  std::uint64_t length;  // of the view with its head
  std::uint64_t epoch;
  std::int64_t took_ns;  // from the round's start to the view
  std::int64_t deadline_ns;
  std::uint32_t present, expected;
  std::uint32_t flags;
  std::uint32_t leader;  // number of the leading member
  std::uint32_t entries, figures;
  std::uint64_t tree;  // the tree's fingerprint: when it changes, members may have other numbers
  std::uint64_t grant_amount;
  // the grant is valid for this long after the record of this number was published; 0: no grant
  std::uint64_t grant_record;
  std::int64_t grant_valid_ns;
  std::uint64_t grant_number;
  std::uint32_t figure_members;  // the number of members that the figures cover
  std::uint32_t grant_leader;
};
static_assert(sizeof(ViewHead) == 112);

struct ViewEntryRow {
  std::uint32_t member;
  std::uint32_t flags;
  std::uint64_t epoch;  // 0: never heard of
  std::int64_t age_ns;
  std::uint64_t offset;  // of the record, from the start of the view
  std::uint64_t length;
};
static_assert(sizeof(ViewEntryRow) == 40);

struct ViewFigureRow {
  std::uint64_t count;  // members that had a value
  double value;
  std::uint64_t bits;  // sum, min and max of integers: exact, in the field's type
  std::uint32_t ranked, bins;
  std::uint64_t offset;  // of {f64 value, u64 member} each, or of u64 bins
};
static_assert(sizeof(ViewFigureRow) == 40);

[[nodiscard]] constexpr std::uint64_t record_slot_bytes(std::uint64_t record_bytes) noexcept {
  return sizeof(RecordHead) + align_up(record_bytes, 64);
}
[[nodiscard]] constexpr std::uint64_t record_slot_at(std::uint64_t number, std::uint64_t record_bytes) noexcept {
  return 128 + number % 2 * record_slot_bytes(record_bytes);
}
[[nodiscard]] constexpr std::uint64_t view_slot_at(std::uint64_t number, std::uint64_t record_bytes,
                                                   std::uint64_t view_bytes) noexcept {
  return 128 + 2 * record_slot_bytes(record_bytes) + number % 2 * align_up(view_bytes, 64);
}
// The caller has checked both numbers.
[[nodiscard]] constexpr std::uint64_t exchange_area_bytes(std::uint64_t record_bytes,
                                                          std::uint64_t view_bytes) noexcept {
  return view_slot_at(0, record_bytes, view_bytes) + 2 * align_up(view_bytes, 64);
}
inline constexpr std::uint64_t exchange_view_bytes_max = 4ull << 30;

[[nodiscard]] inline std::uint32_t record_crc(std::uint64_t number, Bytes record) noexcept {
  return crc32c(record, static_cast<std::uint32_t>(number));
}

struct ExchangeField {
  std::string name;
  char type = 'f';  // u: u64, i: i64, f: f64
  std::string unit{}, description{};
  bool operator==(const ExchangeField&) const = default;
};

// The description of an exchange for a program.
struct ExchangeDescription {
  std::vector<std::string> members;
  std::uint32_t self = 0;
  std::uint64_t tree = 0, record_bytes = 0;
  std::int64_t interval_ns = 0, deadline_ns = 0;
  std::uint64_t grant_total = 0;  // 0: no grants; UINT64_MAX: unlimited
  std::string topology;
  std::vector<ExchangeField> fields;
  std::vector<std::string> reductions;
};

void encode_fields(const std::vector<ExchangeField>& fields, std::vector<std::byte>& to);
[[nodiscard]] Result<std::vector<ExchangeField>> decode_fields(Bytes bytes);
void encode_description(const ExchangeDescription& description, std::vector<std::byte>& to);
[[nodiscard]] Result<ExchangeDescription> decode_description(Bytes bytes);

}  // namespace offpath::wire
