#include "sift/split/key_form.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>

#include "base/hash/mix.h"
#include "base/text.h"

namespace offpath::sift {

namespace {

using frame::Type;

constexpr std::uint64_t top_bit = 1ull << 63;

// Empty: not an identifier.
struct TypeKind {
  bool is_key = false;
  KeyForm::Kind kind = KeyForm::Kind::signed_number;
  std::uint64_t infinity = 0;
};

TypeKind kind_of(Type type) noexcept {
  using Kind = KeyForm::Kind;
  switch (type) {
    case Type::uint8:
    case Type::uint16:
    case Type::uint32:
    case Type::uint64:
      return {true, Kind::unsigned_number};
    case Type::int8:
    case Type::int16:
    case Type::int32:
    case Type::int64:
    case Type::decimal32:
    case Type::decimal64:
    case Type::date32:
    case Type::date64:
    case Type::time32:
    case Type::time64:
    case Type::timestamp:
    case Type::duration:
      return {true, Kind::signed_number};
    case Type::float32:
      return {true, Kind::floating, 0x7F80'0000};
    case Type::float64:
      return {true, Kind::floating, 0x7FF0'0000'0000'0000};
    case Type::fixed_binary:
      return {true, Kind::bytes};
    case Type::decimal128:
    case Type::decimal256:
      return {true, Kind::long_number};
    case Type::binary:
    case Type::utf8:
    case Type::large_binary:
    case Type::large_utf8:
      return {true, Kind::text};
    default:
      return {};
  }
}

// A hash of all bytes. It must be the same on all members, because they place elements by it.
std::uint64_t hash_of(Bytes bytes) noexcept {
  std::uint64_t hash = mix(bytes.size() * golden_ratio);
  for (; bytes.size() > sizeof hash; bytes = bytes.subspan(sizeof hash))
    hash = mix(hash ^ load<std::uint64_t>(bytes.data()));
  std::uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  return mix(hash ^ rest);
}

void negate(std::span<std::uint8_t> number) noexcept {  // the lowest byte first
  bool carries = true;
  for (std::uint8_t& byte : number) {
    byte = static_cast<std::uint8_t>(~byte + (carries ? 1 : 0));
    carries = carries && byte == 0;
  }
}

// False: the text is not a whole number that fits into so many bytes.
bool parse_long(std::string_view text, std::span<std::uint8_t> number) noexcept {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty()) return false;
  std::ranges::fill(number, std::uint8_t{0});
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    auto carry = static_cast<std::uint32_t>(digit - '0');
    for (std::uint8_t& byte : number) {
      carry += byte * 10u;
      byte = static_cast<std::uint8_t>(carry);
      carry >>= 8;
    }
    if (carry != 0) return false;
  }
  if (negative) negate(number);
  const bool is_zero = std::ranges::all_of(number, [](std::uint8_t byte) { return byte == 0; });
  return is_zero || (number.back() >= 0x80) == negative;
}

std::string text_of_long(std::span<std::uint8_t> number) {  // removes it from the text
  const bool negative = number.back() >= 0x80;
  if (negative) negate(number);
  std::string digits;
  do {
    std::uint32_t rest = 0;
    for (std::size_t i = number.size(); i-- > 0;) {
      rest = rest << 8 | number[i];
      number[i] = static_cast<std::uint8_t>(rest / 10);
      rest %= 10;
    }
    digits += static_cast<char>('0' + rest);
  } while (std::ranges::any_of(number, [](std::uint8_t byte) { return byte != 0; }));
  if (negative) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

// Empty: these are not pairs of hexadecimal digits.
std::optional<std::string> bytes_of_digits(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    std::uint8_t byte = 0;
    const auto [rest, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    if (error != std::errc() || rest != text.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::string digits_of(Bytes bytes) {
  std::string digits;
  for (const std::byte each : bytes) digits += fmt::format("{:02x}", std::to_integer<int>(each));
  return digits;
}

constexpr std::uint32_t long_number_bytes_max = 32;

}  // namespace

bool is_integer(Type type) noexcept {
  return type == Type::uint8 || type == Type::uint16 || type == Type::uint32 || type == Type::uint64 ||
         type == Type::int8 || type == Type::int16 || type == Type::int32 || type == Type::int64;
}

Result<KeyForm> KeyForm::make(const frame::Field& field, std::uint32_t value_bytes, const KeyRule& rule) {
  const TypeKind found = field.dictionary.empty() ? kind_of(field.type) : TypeKind{};
  const bool has_size = value_bytes > 0 ? value_bytes <= long_key_bytes_max : found.kind == Kind::text;
  if (!found.is_key || !has_size || (rule.by == KeyBy::bits && !is_integer(field.type)))
    return fail(Error::schema,
                "the identifier '{}' is {}. Identifiers are integers or, where the pool is named with by=hash or "
                "by=range, floating-point numbers, times, decimals, text, and binary of at most {} bytes",
                rule.column, frame::describe(field), long_key_bytes_max);
  KeyForm made;
  made.kind_ = found.kind == Kind::bytes && value_bytes > sizeof(std::uint64_t) ? Kind::long_bytes : found.kind;
  made.by_ = rule.by;
  made.value_bytes_ = value_bytes;
  if (made.is_text())
    made.value_bytes_ = field.type == Type::binary || field.type == Type::utf8 ? 4u : 8u;  // an offset
  made.infinity_ = found.infinity;
  for (const std::string& text : rule.ranges)
    if (const Status taken = made.take_range(text); !taken)
      return fail(Error::schema, "ranges: '{}' is {} the identifier '{}', which is {}", text, taken.error().message,
                  rule.column, frame::describe(field));
  return made;
}

Status KeyForm::take_range(std::string_view text) {
  const auto add = [](auto& ranges, auto key) -> Status {
    if (!key) return fail(Error::schema, "no value of");
    if (!ranges.empty() && *key <= ranges.back())
      return fail(Error::schema, "not more than the one before it, as values of");
    ranges.push_back(std::move(*key));
    return {};
  };
  return is_long() ? add(long_ranges_, long_key_of_text(text)) : add(ranges_, key_of_text(text));
}

std::uint64_t KeyForm::identifier_of(const std::byte* value) const noexcept {
  std::uint64_t identifier = 0;
  std::memcpy(&identifier, value, value_bytes_);
  return identifier;
}

bool KeyForm::is_identifier(std::uint64_t identifier) const noexcept {
  const std::uint64_t value = identifier & value_mask();
  return identifier == value || (kind_ == Kind::signed_number && identifier == (value ^ sign_bit()) - sign_bit());
}

std::uint64_t KeyForm::key_of(std::uint64_t identifier) const noexcept {
  const std::uint64_t value = identifier & value_mask();
  switch (kind_) {
    case Kind::unsigned_number:
      return value;
    case Kind::signed_number:
      return ((value ^ sign_bit()) - sign_bit()) ^ top_bit;  // as a number of 64 bits
    case Kind::floating: {
      const std::uint64_t magnitude = value & ~sign_bit();
      if (magnitude > infinity_) return value_mask();
      if (magnitude == 0) return sign_bit();
      return (value & sign_bit()) != 0 ? ~value & value_mask() : value | sign_bit();
    }
    case Kind::bytes:
      return __builtin_bswap64(value) >> (64 - 8 * value_bytes_);
    default:  // long
      break;
  }
  return value;
}

void KeyForm::store(std::uint64_t key, std::byte* value) const noexcept {
  std::uint64_t identifier = key;
  switch (kind_) {
    case Kind::unsigned_number:
      break;
    case Kind::signed_number:
      identifier = key ^ top_bit;
      break;
    case Kind::floating:
      if (key == value_mask())
        identifier = infinity_ | infinity_ >> 1;  // with its highest fraction bit: a quiet NaN
      else
        identifier = (key & sign_bit()) != 0 ? key ^ sign_bit() : ~key;
      break;
    case Kind::bytes:
      identifier = __builtin_bswap64(key << (64 - 8 * value_bytes_));
      break;
    default:  // long
      return;
  }
  std::memcpy(value, &identifier, value_bytes_);
}

std::uint64_t KeyForm::place_of(std::uint64_t key) const noexcept {
  switch (by_) {
    case KeyBy::bits:
      return kind_ == Kind::signed_number ? key ^ top_bit : key;
    case KeyBy::hash:
      return mix(key);
    case KeyBy::range:
      return static_cast<std::uint64_t>(std::ranges::upper_bound(ranges_, key) - ranges_.begin());
  }
  return key;
}

// Numbers as they are written; times, dates and decimals as the numbers by which they are stored; bytes in hexadecimal
// digits.
Result<std::uint64_t> KeyForm::key_of_text(std::string_view text) const {
  const auto wrong = [&] { return fail(Error::invalid, "{}", text); };
  std::uint64_t bits = 0;
  switch (kind_) {
    case Kind::unsigned_number: {
      const auto number = number_of<std::uint64_t>(text);
      if (!number || (*number & ~value_mask()) != 0) return wrong();
      bits = *number;
      break;
    }
    case Kind::signed_number: {
      const auto number = number_of<std::int64_t>(text);
      const auto half = static_cast<std::int64_t>(sign_bit() - 1);
      if (!number || (value_bytes_ < 8 && (*number > half || *number < -half - 1))) return wrong();
      bits = static_cast<std::uint64_t>(*number);
      break;
    }
    case Kind::floating: {
      double number = 0;
      const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || rest != text.data() + text.size()) return wrong();
      bits = value_bytes_ == 8 ? std::bit_cast<std::uint64_t>(number)
                               : std::bit_cast<std::uint32_t>(static_cast<float>(number));
      break;
    }
    case Kind::bytes: {
      const auto bytes = bytes_of_digits(text);
      if (!bytes || bytes->empty() || bytes->size() > value_bytes_) return wrong();
      std::memcpy(&bits, bytes->data(), bytes->size());
      break;
    }
    default:  // long
      return wrong();
  }
  return key_of(bits);
}

std::string KeyForm::text_of(std::uint64_t key) const {
  std::byte value[sizeof(std::uint64_t)] = {};
  store(key, value);
  const std::uint64_t bits = identifier_of(value);
  switch (kind_) {
    case Kind::unsigned_number:
      return fmt::format("{}", bits);
    case Kind::signed_number:
      return fmt::format("{}", static_cast<std::int64_t>((bits ^ sign_bit()) - sign_bit()));
    case Kind::floating:
      return fmt::format("{:.6g}", value_bytes_ == 8 ? std::bit_cast<double>(bits)
                                                     : double{std::bit_cast<float>(static_cast<std::uint32_t>(bits))});
    case Kind::bytes:
      return digits_of(Bytes(value).first(value_bytes_));
    default:  // long
      return {};
  }
  return {};
}

// ---- long identifiers

void KeyForm::order(const std::byte* value, std::byte* to) const noexcept {
  if (kind_ != Kind::long_number) {
    std::memcpy(to, value, value_bytes_);
    return;
  }
  std::reverse_copy(value, value + value_bytes_, to);
  *to ^= std::byte{0x80};
}

void KeyForm::restore(const std::byte* ordered, std::byte* to) const noexcept {
  if (kind_ != Kind::long_number) {
    std::memcpy(to, ordered, value_bytes_);
    return;
  }
  std::reverse_copy(ordered, ordered + value_bytes_, to);
  to[value_bytes_ - 1] ^= std::byte{0x80};
}

std::uint64_t KeyForm::place_of(Bytes ordered) const noexcept {
  if (by_ != KeyBy::range) return hash_of(ordered);
  const auto after = std::ranges::upper_bound(long_ranges_, offpath::text_of(ordered));
  return static_cast<std::uint64_t>(after - long_ranges_.begin());
}

std::uint64_t KeyForm::place_of_value(Bytes value) const noexcept {
  if (is_compared_as_it_lies()) return place_of(value);
  std::array<std::byte, long_number_bytes_max> ordered;
  order(value.data(), ordered.data());
  return place_of(Bytes(ordered).first(value.size()));
}

Result<std::string> KeyForm::long_key_of_text(std::string_view text) const {
  const auto wrong = [&] { return fail(Error::invalid, "{}", text); };
  if (kind_ == Kind::long_number) {
    std::array<std::uint8_t, long_number_bytes_max> number;
    if (!parse_long(text, std::span(number).first(value_bytes_))) return wrong();
    std::string key(value_bytes_, 0);
    order(reinterpret_cast<const std::byte*>(number.data()), reinterpret_cast<std::byte*>(key.data()));
    return key;
  }
  auto bytes = bytes_of_digits(text);
  if (!bytes || bytes->empty() || bytes->size() > (is_text() ? long_key_bytes_max : value_bytes_)) return wrong();
  if (!is_text()) bytes->resize(value_bytes_);
  return std::move(*bytes);
}

std::string KeyForm::text_of(Bytes ordered) const {
  if (kind_ != Kind::long_number) return digits_of(ordered);
  std::array<std::byte, long_number_bytes_max> value;
  restore(ordered.data(), value.data());
  return text_of_long({reinterpret_cast<std::uint8_t*>(value.data()), value_bytes_});
}

}  // namespace offpath::sift
