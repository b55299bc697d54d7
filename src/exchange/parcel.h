// A message from one member of an exchange to another: entries (a member's record, as of an epoch), partial reductions
// of a node, and for grants ballots upwards and grants downwards. Read topology.h first.
//
//   header     u32 magic | u16 version | u8 kind | u8 0 | u64 tag | u64 fingerprint | u64 epoch | i64 round's age
//              | u32 from | u32 node | u32 entries | u32 partials | u32 ballots | u32 grants | u32 grants' leader
//              | u32 leader | u64 its nonce | u64 its beat
//   tables     entries:  u32 member | u32 bytes | u64 epoch | i64 age        partials: u32 node | u32 bytes | u64 epoch
//              ballots and grants: as their structs
//   bytes      of the entries, then of the partials, each padded to 8
//
// All little endian. Times are durations, because the clocks of two machines do not agree.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash/fnv1a.h"
#include "base/status.h"
#include "exchange/topology.h"

namespace offpath::exchange {

// up: of a node, to the leader of its parent; across: of a child of the root, to the other children; down: the data
// that a node's parts need; probe: asks whether a member lives; alive: the answer.
enum class ParcelKind : std::uint8_t { up = 1, across = 2, down = 3, probe = 4, alive = 5 };

inline constexpr std::uint64_t record_bytes_max = 4 << 20;
// the length of an entry of a member that has published nothing
inline constexpr std::uint32_t no_value = 0xFFFF'FFFFu;

struct ParcelHeader {
  std::uint32_t magic;
  std::uint16_t version;
  ParcelKind kind;
  std::uint8_t reserved;
  std::uint64_t tag;          // of the exchange: tag_of its name
  std::uint64_t fingerprint;  // of the tree
  std::uint64_t epoch;
  std::int64_t round_age_ns;  // since the sender's start of that epoch
  MemberIndex from;
  NodeIndex node;  // the node for which the sender speaks
  std::uint32_t entries, partials, ballots, grants;
  MemberIndex grant_leader;  // nobody: no leader
  MemberIndex leader;        // leader of everything, as far as the sender knows
  std::uint64_t grant_nonce;
  std::uint64_t grant_beat;
};
static_assert(sizeof(ParcelHeader) == 88);

struct EntryRow {
  MemberIndex member;
  std::uint32_t length;
  std::uint64_t epoch;
  std::int64_t age_ns;
};
static_assert(sizeof(EntryRow) == 24);

struct PartialRow {
  NodeIndex node;
  std::uint32_t length;
  std::uint64_t epoch;
};
static_assert(sizeof(PartialRow) == 16);

// Whether a member has a program or function that can make grants, and whether it has made any.
enum class Deciding : std::uint32_t { no = 0, able = 1, granting = 2 };

// The member that another one takes for the granting leader (grants.h), and whether it could lead itself.
struct Ballot {
  MemberIndex member;
  MemberIndex leader;  // nobody: none
  std::uint64_t leader_nonce;
  std::uint64_t beat;     // the leader's newest beat that arrived
  std::uint64_t nonce;    // of the member's own process
  std::uint64_t stamp;    // counts the member's rounds
  std::uint64_t adopted;  // the newest grant of that leader that the member follows
  Deciding deciding;
  std::uint32_t reserved;
};
static_assert(sizeof(Ballot) == 56);

struct Grant {
  MemberIndex member;
  std::uint32_t reserved;
  std::uint64_t nonce;  // of the member's process that it is for
  std::uint64_t stamp;  // it is valid for a time after the member sent its ballot with this stamp
  std::int64_t valid_ns;
  std::uint64_t number;  // counts the leader's grants
  std::uint64_t amount;
};
static_assert(sizeof(Grant) == 48);

[[nodiscard]] constexpr std::uint64_t tag_of(std::string_view exchange) noexcept { return fnv1a(exchange); }

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

// A view of a shared buffer, which keeps the buffer.
struct Record {
  SharedBytes owner{};
  Bytes bytes{};
};

// Reusable for one parcel after another: its tables keep their memory.
class ParcelWriter {
 public:
  ParcelWriter() = default;
  explicit ParcelWriter(const ParcelHeader& header) : header_(header) {}
  void begin(const ParcelHeader& header);
  void add_entry(const EntryRow& row, const Record& record);
  void add_partial(NodeIndex node, std::uint64_t epoch, Bytes bytes);
  void add_ballot(const Ballot& ballot) { ballots_.push_back(ballot); }
  void add_grant(const Grant& grant) { grants_.push_back(grant); }
  [[nodiscard]] SharedBytes finish();

 private:
  ParcelHeader header_;
  std::vector<EntryRow> entries_;
  std::vector<Record> records_;
  std::vector<PartialRow> partials_;
  std::vector<Bytes> partial_bytes_;
  std::vector<Ballot> ballots_;
  std::vector<Grant> grants_;
};

// A parcel with checked tables: every row lies within it, every length within its limits. The reader checks the meaning
// of the rows.
class Parcel {
 public:
  // An error is the sender's fault. The bytes stay in place.
  [[nodiscard]] static Result<Parcel> open(SharedBytes bytes);

  [[nodiscard]] const ParcelHeader& header() const noexcept { return header_; }
  [[nodiscard]] EntryRow entry(std::uint32_t i) const noexcept { return row<EntryRow>(entries_at_, i); }
  [[nodiscard]] PartialRow partial(std::uint32_t i) const noexcept { return row<PartialRow>(partials_at_, i); }
  [[nodiscard]] Ballot ballot(std::uint32_t i) const noexcept { return row<Ballot>(ballots_at_, i); }
  [[nodiscard]] Grant grant(std::uint32_t i) const noexcept { return row<Grant>(grants_at_, i); }
  // Calls `take(row, record)` for each entry, `take(row, bytes)` for each partial.
  template <class Take>
  void each_entry(const Take& take) const {
    std::size_t at = bytes_at_;
    for (std::uint32_t i = 0; i < header_.entries; ++i) {
      const EntryRow each = entry(i);
      const std::size_t length = each.length == no_value ? 0 : each.length;
      take(each, Record{bytes_, Bytes(*bytes_).subspan(at, length)});
      at += align_up(length, 8);
    }
  }
  template <class Take>
  void each_partial(const Take& take) const {
    std::size_t at = partial_bytes_at_;
    for (std::uint32_t i = 0; i < header_.partials; ++i) {
      const PartialRow each = partial(i);
      take(each, Bytes(*bytes_).subspan(at, each.length));
      at += align_up(each.length, 8);
    }
  }

 private:
  template <class Row>
  [[nodiscard]] Row row(std::size_t at, std::uint32_t i) const noexcept {
    return load<Row>(bytes_->data() + at + i * sizeof(Row));
  }
  SharedBytes bytes_;
  ParcelHeader header_{};
  std::size_t entries_at_ = 0, partials_at_ = 0, ballots_at_ = 0, grants_at_ = 0, bytes_at_ = 0, partial_bytes_at_ = 0;
};

// The largest size of a parcel of that many members, with records of `record_bytes`.
[[nodiscard]] std::uint64_t parcel_bytes_max(std::uint64_t members, std::uint64_t record_bytes,
                                             std::uint64_t partial_bytes) noexcept;

}  // namespace offpath::exchange
