// The description of what one rank has put in one step, apart from the arrays: names, types, shapes, scalars, strings,
// attributes, and the object of each block. It is stored as JSON in the object (stepN, rankR.about), so that programs
// without ADIOS2 can read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "types.h"

namespace offpath::adios {

// One value, or several for an attribute, as bytes of its type; strings are separate.
struct Values {
  std::vector<std::byte> bytes{};
  std::vector<std::string> texts{};
  bool operator==(const Values&) const = default;
};

struct Block {
  Dims start{}, count{};
  std::string object{}, column{};  // the object's column key; empty: no elements. Column of a table; empty: plain bytes
  Values value{};                  // of a variable that is a single value
  std::uint32_t writer = 0;        // its rank, for readers
  bool operator==(const Block&) const = default;
};

struct VariableAbout {
  std::string name{};
  DataType type = DataType::None;
  ShapeID kind = ShapeID::Unknown;
  Dims shape{};
  std::vector<Block> blocks{};

  [[nodiscard]] bool is_value() const { return kind == ShapeID::GlobalValue || kind == ShapeID::LocalValue; }
  bool operator==(const VariableAbout&) const = default;
};

struct AttributeAbout {
  std::string name{};
  DataType type = DataType::None;
  bool single = true;
  Values values{};
  bool operator==(const AttributeAbout&) const = default;
};

struct About {
  std::uint64_t step = 0;
  std::uint32_t rank = 0, ranks = 1;
  bool end = false;  // there is no such step: the writer has closed the stream
  std::vector<VariableAbout> variables{};
  std::vector<AttributeAbout> attributes{};
};

// Writes descriptions. Most variables and attributes are described as they were in the step before, so the text of each
// is kept.
class Encoder {
 public:
  [[nodiscard]] std::string encode(const About& about);

 private:
  template <class T>
  struct Known {
    T described;
    std::string text;
  };
  std::map<std::string, Known<VariableAbout>, std::less<>> variables_;  // by name
  std::map<std::string, Known<AttributeAbout>, std::less<>> attributes_;
};

// Checks every field. Throws std::runtime_error for bytes that are not a valid description.
[[nodiscard]] About decode(std::span<const std::byte> bytes);

}  // namespace offpath::adios
