// Reads and writes fixed-width fields in sequence, and checks every step. A Reader that ran past its end stays failed;
// callers check `ok()` once after the last field.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace offpath::wire {

inline constexpr std::uint16_t text_escape = 0xFFFF;

class Reader {
 public:
  explicit Reader(Bytes bytes) noexcept : bytes_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T take() noexcept {
    T value{};
    if (const Bytes from = take_bytes(sizeof(T)); from.size() == sizeof(T)) value = load<T>(from.data());
    return value;
  }
  Bytes take_bytes(std::uint64_t length) noexcept {
    if (failed_ || length > bytes_.size() - at_) {
      failed_ = true;
      return {};
    }
    const Bytes taken = bytes_.subspan(at_, length);
    at_ += length;
    return taken;
  }
  // u16 length, then the characters. A length of 65,535 means that the length follows as u32 and is at least 65,535:
  // keys can be that long, and other texts cost two bytes.
  std::string_view take_text() noexcept {
    std::uint64_t length = take<std::uint16_t>();
    if (length == text_escape) [[unlikely]] {
      length = take<std::uint32_t>();
      failed_ |= length < text_escape;
    }
    return text_of(take_bytes(length));
  }

  [[nodiscard]] bool ok() const noexcept { return !failed_; }
  [[nodiscard]] bool done() const noexcept { return !failed_ && at_ == bytes_.size(); }
  [[nodiscard]] std::uint64_t left() const noexcept { return failed_ ? 0 : bytes_.size() - at_; }

 private:
  Bytes bytes_;
  std::uint64_t at_ = 0;
  bool failed_ = false;
};

// Appends to a vector that the caller keeps, so a warm channel allocates nothing.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& to) noexcept : to_(to) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_bytes(Bytes bytes) {
    const std::size_t at = to_.size();
    to_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(to_.data() + at, bytes.data(), bytes.size());
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint16_t>(std::min<std::size_t>(text.size(), text_escape)));
    if (text.size() >= text_escape) [[unlikely]]
      put(static_cast<std::uint32_t>(text.size()));
    put_bytes(bytes_of(text));
  }

 private:
  std::vector<std::byte>& to_;
};

}  // namespace offpath::wire
