// Identifiers of a pool: their types, their order, and the element of each.
//
//   value        as it lies in the column
//   identifier   its bits, as a number
//   key          a number of the same order: signed numbers, times and decimals by value; floating-point numbers by
//                value, then NaN; bytes as they are compared
//   place        a number whose low bits are the element of the last stage
//
//   by=bits      integers; the place is the identifier: identifiers are counted up, so low bits are spread evenly
//   by=hash      all of these; the place is a hash of the key
//   by=range     the place is the number of the key's range, so one member has close identifiers
//
// Values that compare equal are one identifier: 0.0 for -0.0, and one NaN for all.
//
// Identifiers of more than 8 bytes, and text and binary of any length, are long (`is_long`). Their key is a LongKey:
// the value's bytes, so changed that comparing bytes compares values, with the first eight of them as a number in
// front. Sorting and searching compare these numbers, and the bytes only where the numbers are equal.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "frame/schema.h"

namespace offpath::sift {

enum class KeyBy : std::uint8_t { bits, hash, range };

// As in the pool's name.
struct KeyRule {
  KeyRule(std::string key_column, KeyBy key_by = KeyBy::bits, std::vector<std::string> key_ranges = {})
      : column(std::move(key_column)), by(key_by), ranges(std::move(key_ranges)) {}
  KeyRule(std::string_view key_column) : KeyRule(std::string(key_column)) {}
  KeyRule(const char* key_column) : KeyRule(std::string(key_column)) {}

  std::string column;
  KeyBy by;
  std::vector<std::string> ranges;  // the least value of each range except the first
};

[[nodiscard]] bool is_integer(frame::Type type) noexcept;

inline constexpr std::uint32_t long_key_bytes_max = 1024;  // of one identifier

// Compares bytes; a prefix comes first.
[[nodiscard]] inline std::strong_ordering compare(Bytes a, Bytes b) noexcept {
  const std::size_t both = std::min(a.size(), b.size());
  const int order = both == 0 ? 0 : std::memcmp(a.data(), b.data(), both);
  return order != 0 ? order <=> 0 : a.size() <=> b.size();
}

// The first eight bytes as a number of the same order; missing bytes count as 0.
[[nodiscard]] inline std::uint64_t head_of(Bytes bytes) noexcept {
  std::uint64_t head = 0;
  if (!bytes.empty()) std::memcpy(&head, bytes.data(), std::min(bytes.size(), sizeof head));
  return __builtin_bswap64(head);
}

// `bytes` outlive it.
struct LongKey {
  std::uint64_t head = 0;
  Bytes bytes{};

  [[nodiscard]] static LongKey of(Bytes bytes) noexcept { return {head_of(bytes), bytes}; }
  friend std::strong_ordering operator<=>(const LongKey& a, const LongKey& b) noexcept {
    return a.head != b.head ? a.head <=> b.head : compare(a.bytes, b.bytes);
  }
  friend bool operator==(const LongKey& a, const LongKey& b) noexcept { return (a <=> b) == 0; }
};

class KeyForm {
 public:
  // The last three are long: signed little-endian numbers of more than 8 bytes; bytes; bytes of any length.
  enum class Kind : std::uint8_t { unsigned_number, signed_number, floating, bytes, long_number, long_bytes, text };

  KeyForm() = default;
  // `value_bytes`: of the column; 0 where its values have any length. Error::schema: it cannot be split by this rule.
  [[nodiscard]] static Result<KeyForm> make(const frame::Field& field, std::uint32_t value_bytes, const KeyRule& rule);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] KeyBy by() const noexcept { return by_; }
  [[nodiscard]] bool is_long() const noexcept { return kind_ >= Kind::long_number; }
  [[nodiscard]] bool is_text() const noexcept { return kind_ == Kind::text; }
  // Bytes of a value or, where values have any length, of its offset.
  [[nodiscard]] std::uint32_t value_bytes() const noexcept { return value_bytes_; }
  // The place is the identifier as it lies in the column, of 4 or 8 bytes.
  [[nodiscard]] bool is_placed_by_value() const noexcept {
    return by_ == KeyBy::bits && (value_bytes_ == 4 || value_bytes_ == 8);
  }

  // ---- identifiers of at most 8 bytes
  [[nodiscard]] std::uint64_t identifier_of(const std::byte* value) const noexcept;
  // Whether it is a value of the column's width, sign-extended for signed numbers.
  [[nodiscard]] bool is_identifier(std::uint64_t identifier) const noexcept;
  [[nodiscard]] std::uint64_t key_of(std::uint64_t identifier) const noexcept;
  [[nodiscard]] std::uint64_t key_of(const std::byte* value) const noexcept { return key_of(identifier_of(value)); }
  void store(std::uint64_t key, std::byte* value) const noexcept;
  [[nodiscard]] std::uint64_t place_of(std::uint64_t key) const noexcept;
  // A key as ranges= has it; floating-point numbers with six digits.
  [[nodiscard]] Result<std::uint64_t> key_of_text(std::string_view text) const;
  [[nodiscard]] std::string text_of(std::uint64_t key) const;

  // ---- long identifiers
  // A value's bytes are compared unchanged; otherwise `order` makes the bytes to compare.
  [[nodiscard]] bool is_compared_as_it_lies() const noexcept { return kind_ != Kind::long_number; }
  // value_bytes() each.
  void order(const std::byte* value, std::byte* to) const noexcept;
  void restore(const std::byte* ordered, std::byte* to) const noexcept;
  [[nodiscard]] std::uint64_t place_of(Bytes ordered) const noexcept;
  [[nodiscard]] std::uint64_t place_of_value(Bytes value) const noexcept;
  // In the form of ranges=: numbers as the stored whole numbers, all else in hexadecimal digits.
  [[nodiscard]] Result<std::string> long_key_of_text(std::string_view text) const;
  [[nodiscard]] std::string text_of(Bytes ordered) const;

 private:
  [[nodiscard]] Status take_range(std::string_view text);
  [[nodiscard]] std::uint64_t sign_bit() const noexcept { return 1ull << (8 * value_bytes_ - 1); }
  [[nodiscard]] std::uint64_t value_mask() const noexcept { return ~0ull >> (64 - 8 * value_bytes_); }

  Kind kind_ = Kind::unsigned_number;
  KeyBy by_ = KeyBy::bits;
  std::uint32_t value_bytes_ = 8;
  std::uint64_t infinity_ = 0;            // for floating-point numbers: the bits of infinity; larger ones, apart from
                                          // the sign, are NaN
  std::vector<std::uint64_t> ranges_;     // keys, ascending
  std::vector<std::string> long_ranges_;  // of long identifiers, instead
};

}  // namespace offpath::sift
