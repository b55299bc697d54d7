// Figures over the members' records, computed along the tree: each node merges those of its parts, so the traffic does
// not grow with the members.
//
//   sum(F) min(F) max(F) mean(F)    of one field
//   top(F, K)                       the K largest values and their members
//   histogram(F, LOW, HIGH, N)      N bins of equal width; values outside count in the first or last one
//
// A record has 8 bytes for each field of its schema, in their order; presence bits may follow (u64 for each 64 fields).
// A field that is not present, and an f64 that is NaN, do not count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "exchange/topology.h"
#include "telemetry/schema.h"

namespace offpath::exchange {

struct Reduction {
  enum class Kind : std::uint8_t { sum, min, max, mean, top, histogram };
  Kind kind = Kind::sum;
  std::uint32_t field = 0;
  std::uint32_t count = 0;   // of top and histogram
  double low = 0, high = 0;  // of histogram
  FieldType type = FieldType::f64;
  std::string text{};  // as written
};
inline constexpr std::uint32_t top_max = 1024, bins_max = 4096;
inline constexpr std::size_t reductions_max = 64;

// Checks it against the schema: the error for an unknown field lists the known ones.
[[nodiscard]] Result<Reduction> parse_reduction(std::string_view text, const Schema& schema);

// Checks that it is a record of this schema. The error gives both lengths.
[[nodiscard]] Status check_record(Bytes record, const Schema& schema);

// The reductions of an exchange over some members. Integers are summed exactly (128 bits); the last digits of f64 sums
// depend on the order.
class Reduced {
 public:
  Reduced() = default;
  explicit Reduced(std::span<const Reduction> reductions) { reset(reductions); }
  void reset(std::span<const Reduction> reductions);

  void add(MemberIndex member, Bytes record, std::span<const Reduction> reductions, std::size_t fields);
  void count_member() { ++members_; }  // for a member without a record
  void merge(const Reduced& other, std::span<const Reduction> reductions);
  [[nodiscard]] std::uint32_t members() const noexcept { return members_; }

  struct Ranked {
    double value;
    MemberIndex member;
  };
  struct Figure {
    std::uint64_t count = 0;  // members whose field was present
    double sum = 0;           // of f64
    double min = 0, max = 0;
    __int128 whole = 0;                // the sum of integers
    std::int64_t least = 0, most = 0;  // of i64; of u64 as bits
    std::vector<Ranked> top{};         // the largest first; of equal ones the member with the lower number
    std::vector<std::uint64_t> bins{};
  };
  [[nodiscard]] const Figure& figure(std::size_t i) const noexcept { return figures_[i]; }
  // The result of sum, min, max or mean; NaN if no member had a value.
  [[nodiscard]] double value(std::size_t i, const Reduction& reduction) const noexcept;

  void encode(std::vector<std::byte>& to) const;
  // Anything that does not fit the reductions is Error::protocol.
  [[nodiscard]] static Result<Reduced> decode(Bytes bytes, std::span<const Reduction> reductions);

 private:
  static void rank(Figure& figure, Ranked ranked, std::uint32_t count);

  std::uint32_t members_ = 0;
  std::vector<Figure> figures_;
};

}  // namespace offpath::exchange
