// One reading of all fields of a schema at one place and time. A value that could not be read is missing, which is not
// zero.
//
//   sample   u64 schema | u64 sequence | i64 source time | i64 receive time | u16 producer | u32 values
//            | presence: one bit for each value, the lowest of the first byte for the first one
//            | 8 bytes of each present value
//
// All little endian. Bits of the presence beyond the values are 0.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "telemetry/schema.h"

namespace offpath::exchange {

// Values of a sample: 64 bits for each field, interpreted by the field's type.
class Values {
 public:
  Values() = default;
  explicit Values(std::size_t count) { reset(count); }
  void reset(std::size_t count) {
    bits_.assign(count, 0);
    present_.assign((count + 63) / 64, 0);
  }

  [[nodiscard]] std::size_t size() const noexcept { return bits_.size(); }
  [[nodiscard]] bool has(std::size_t i) const noexcept { return (present_[i / 64] >> i % 64 & 1) != 0; }
  // These return 0 for a missing value.
  [[nodiscard]] std::uint64_t bits(std::size_t i) const noexcept { return bits_[i]; }
  [[nodiscard]] std::uint64_t u64(std::size_t i) const noexcept { return bits_[i]; }
  [[nodiscard]] std::int64_t i64(std::size_t i) const noexcept { return std::bit_cast<std::int64_t>(bits_[i]); }
  [[nodiscard]] double f64(std::size_t i) const noexcept { return std::bit_cast<double>(bits_[i]); }
  // As a number for reductions and metrics; a u64 beyond 2^53 loses digits.
  [[nodiscard]] double as_real(std::size_t i, FieldType type) const noexcept;

  void set_bits(std::size_t i, std::uint64_t bits) noexcept {
    bits_[i] = bits;
    present_[i / 64] |= 1ull << i % 64;
  }
  void set(std::size_t i, std::uint64_t value) noexcept { set_bits(i, value); }
  void set(std::size_t i, std::int64_t value) noexcept { set_bits(i, std::bit_cast<std::uint64_t>(value)); }
  void set(std::size_t i, double value) noexcept { set_bits(i, std::bit_cast<std::uint64_t>(value)); }
  void set_missing(std::size_t i) noexcept {
    bits_[i] = 0;
    present_[i / 64] &= ~(1ull << i % 64);
  }
  [[nodiscard]] std::size_t missing() const noexcept;
  bool operator==(const Values&) const = default;

 private:
  std::vector<std::uint64_t> bits_, present_;
};

struct Sample {
  SchemaId schema = 0;
  std::string producer{};       // the host, or the program on it
  std::uint64_t sequence = 0;   // of the producer; grows with each sample
  std::int64_t source_ns = 0;   // time of the read, by the source's clock: since 1970
  std::int64_t receive_ns = 0;  // time of arrival, by the agent's clock: since 1970
  Values values{};
  bool operator==(const Sample&) const = default;
};

void encode(const Sample& sample, std::vector<std::byte>& to);
// Any malformed input is Error::protocol. fits() compares the values with a schema.
[[nodiscard]] Result<Sample> decode_sample(Bytes bytes);
[[nodiscard]] Status fits(const Sample& sample, const Schema& schema);

}  // namespace offpath::exchange
