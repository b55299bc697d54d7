// The fields of a message, listed once for both directions: a function template `fields(way, message)` lists them in
// their order in memory, and runs with a FieldWriter to encode and with a FieldReader to decode.
//
//   way.begins("credit request")                             what errors call the message
//   way(m.stream, m.total)                                   numbers, flags (u8), arrays of bytes, texts (cursor.h)
//   way.text(m.name, name_bytes_max, "the stream's name")    a text that is refused beyond so many bytes
//   way.cut(m.message, 480)                                  a text that is cut to so many bytes when written
//   way.choice(m.word, WakeWord::now, "word")                an enumeration up to its last value
//   way.error(m.code)                                        i32; one this side does not know is Error::protocol
//   way.bytes(m.schema)                                      u32 length, then the bytes
//   way.counted(m.nodes, count)                              so many plain structs, counted elsewhere
//   way.plain(head)                                          one plain struct
//   way.each(m.entries, [&](auto& entry) { … })              u32 count, then the fields of each
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "wire/cursor.h"

namespace offpath::wire {

// The message argument of a fields(): constant when it is written.
template <class T, class Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& to) noexcept : writer_(to) {}

  void begins(std::string_view) noexcept {}
  template <class... T>
  void operator()(const T&... fields) {
    (put(fields), ...);
  }
  void text(std::string_view text, std::size_t, std::string_view) { writer_.put_text(text); }
  void cut(std::string_view text, std::size_t bytes_max) { writer_.put_text(text.substr(0, bytes_max)); }
  template <class E>
  void choice(E value, E, std::string_view) {
    writer_.put(value);
  }
  void error(Error code) { writer_.put(static_cast<std::int32_t>(code)); }
  void bytes(Bytes bytes) {
    writer_.put(static_cast<std::uint32_t>(bytes.size()));
    writer_.put_bytes(bytes);
  }
  void counted(std::string_view text, std::uint64_t) { writer_.put_bytes(bytes_of(text)); }
  template <class T>
  void counted(const std::vector<T>& values, std::uint64_t) {
    writer_.put_bytes(std::as_bytes(std::span(values)));
  }
  template <class T>
  void plain(const T& value) {
    writer_.put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  template <class T, class Fields>
  void each(const std::vector<T>& values, Fields fields_of) {
    writer_.put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) fields_of(value);
  }

 private:
  void put(bool flag) { writer_.put(static_cast<std::uint8_t>(flag)); }
  void put(std::string_view text) { writer_.put_text(text); }
  void put(const std::string& text) { writer_.put_text(text); }
  template <std::integral T>
  void put(T number) {
    writer_.put(number);
  }
  template <std::size_t n>
  void put(const std::array<std::byte, n>& bytes) {
    writer_.put_bytes(bytes);
  }

  Writer writer_;
};

// Whether bytes may follow the last field.
enum class Rest : bool { refused, allowed };

class FieldReader {
 public:
  explicit FieldReader(Bytes payload) noexcept : reader_(payload) {}

  void begins(std::string_view what) noexcept { what_ = what; }
  template <class... T>
  void operator()(T&... fields) {
    (take(fields), ...);
  }
  void text(std::string_view& text, std::size_t bytes_max, std::string_view name) {
    text = reader_.take_text();
    if (text.size() > bytes_max)
      refuse(
          fail(Error::too_large, "{}: {} has {} bytes, at most {} are allowed", what_, name, text.size(), bytes_max));
  }
  void text(std::string& text, std::size_t bytes_max, std::string_view name) {
    std::string_view view;
    this->text(view, bytes_max, name);
    text = view;
  }
  void cut(std::string_view& text, std::size_t) { text = reader_.take_text(); }
  void cut(std::string& text, std::size_t) { text = reader_.take_text(); }
  template <class E>
  void choice(E& value, E last, std::string_view name) {
    using Number = std::underlying_type_t<E>;
    const auto number = reader_.take<Number>();
    if (number > static_cast<Number>(last))
      return refuse(fail(Error::protocol, "{}: {} number {}, the last one is {}", what_, name, number,
                         static_cast<Number>(last)));
    value = static_cast<E>(number);
  }
  void error(Error& code) {
    const auto given = static_cast<Error>(reader_.take<std::int32_t>());
    code = error_name(given) == "unknown" ? Error::protocol : given;
  }
  void bytes(Bytes& bytes) { bytes = reader_.take_bytes(reader_.take<std::uint32_t>()); }
  void counted(std::string_view& text, std::uint64_t count) { text = text_of(reader_.take_bytes(count)); }
  template <class T>
  void counted(std::vector<T>& values, std::uint64_t count) {  // the payload bounds the allocation
    const Bytes bytes = reader_.take_bytes(count > reader_.left() / sizeof(T) ? ~0ull : count * sizeof(T));
    values.resize(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  template <class T>
  void plain(T& value) {
    const Bytes bytes = reader_.take_bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
  }
  template <class T, class Fields>
  void each(std::vector<T>& values, Fields fields_of) {
    const auto count = reader_.take<std::uint32_t>();
    values.clear();
    for (std::uint32_t i = 0; i < count && reader_.ok(); ++i) fields_of(values.emplace_back());
  }

  // After the last field: checks that no field was missing or refused, and that no bytes are left unless they may be.
  [[nodiscard]] Status finish(Rest rest = Rest::refused) {
    if (rest == Rest::allowed ? !reader_.ok() : !reader_.done())
      return fail(Error::protocol, "{}: the payload has the wrong length", what_);
    return std::move(refused_);
  }

 private:
  void refuse(tl::unexpected<Failure> why) {
    if (refused_) refused_ = std::move(why);  // the first error counts
  }
  void take(bool& flag) { flag = reader_.take<std::uint8_t>() != 0; }
  void take(std::string_view& text) { text = reader_.take_text(); }
  void take(std::string& text) { text = reader_.take_text(); }
  template <std::integral T>
  void take(T& number) {
    number = reader_.take<T>();
  }
  template <std::size_t n>
  void take(std::array<std::byte, n>& bytes) {
    bytes = reader_.take<std::array<std::byte, n>>();
  }

  Reader reader_;
  std::string_view what_ = "message";
  Status refused_;
};

}  // namespace offpath::wire
