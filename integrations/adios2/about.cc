#include "about.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace offpath::adios {
namespace {

using Json = nlohmann::ordered_json;

constexpr int form = 1;
constexpr std::pair<ShapeID, const char*> kinds[] = {
    {ShapeID::GlobalValue, "global value"}, {ShapeID::GlobalArray, "global array"},
    {ShapeID::LocalValue, "local value"},   {ShapeID::LocalArray, "local array"},
    {ShapeID::JoinedArray, "joined array"},
};

constexpr char digits[] = "0123456789abcdef";

Json hex_of(const void* data, std::size_t length) {
  std::string hex;
  for (const std::byte each : std::span(static_cast<const std::byte*>(data), length)) {
    hex += digits[std::to_integer<unsigned>(each) >> 4];
    hex += digits[std::to_integer<unsigned>(each) & 15];
  }
  return {{"hex", std::move(hex)}};
}

std::vector<std::byte> bytes_of_hex(const Json& given) {
  const auto& hex = given.at("hex").get_ref<const std::string&>();
  const auto digit = [](char c) {
    const std::size_t at = std::string_view(digits, 16).find(c);
    if (at == std::string_view::npos) throw std::runtime_error("a hexadecimal number has other characters");
    return static_cast<unsigned>(at);
  };
  if (hex.size() % 2 != 0) throw std::runtime_error("a hexadecimal number has half a byte");
  std::vector<std::byte> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return bytes;
}

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

Json text_json(const std::string& text) { return is_utf8(text) ? Json(text) : hex_of(text.data(), text.size()); }

std::string text_of(const Json& given) {
  if (given.is_string()) return given.get<std::string>();
  const std::vector<std::byte> bytes = bytes_of_hex(given);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Numbers as numbers, which JSON carries exactly unless they are not finite; everything else by its bytes.
template <class T>
Json number_json(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) return hex_of(at, sizeof value);
  return value;
}

template <class T>
void read_number(const Json& given, std::byte* at) {
  if (std::is_floating_point_v<T> ? !given.is_number() : !given.is_number_integer())
    throw std::runtime_error("a value is not a number of its type");
  const auto value = given.get<T>();
  if constexpr (std::is_integral_v<T>)
    if (given != Json(value)) throw std::runtime_error("a value is outside its type");
  std::memcpy(at, &value, sizeof value);
}

// Calls `call` with the C++ type of numbers that JSON has; false for other types.
template <class Call>
bool with_number(DataType type, const Call& call) {
  switch (type) {
    case DataType::Int8:
      call.template operator()<std::int8_t>();
      return true;
    case DataType::Int16:
      call.template operator()<std::int16_t>();
      return true;
    case DataType::Int32:
      call.template operator()<std::int32_t>();
      return true;
    case DataType::Int64:
      call.template operator()<std::int64_t>();
      return true;
    case DataType::Char:
    case DataType::UInt8:
      call.template operator()<std::uint8_t>();
      return true;
    case DataType::UInt16:
      call.template operator()<std::uint16_t>();
      return true;
    case DataType::UInt32:
      call.template operator()<std::uint32_t>();
      return true;
    case DataType::UInt64:
      call.template operator()<std::uint64_t>();
      return true;
    case DataType::Float:
      call.template operator()<float>();
      return true;
    case DataType::Double:
      call.template operator()<double>();
      return true;
    default:
      return false;
  }
}

Json values_json(const Values& values, DataType type) {
  Json list = Json::array();
  if (type == DataType::String) {
    for (const std::string& text : values.texts) list.push_back(text_json(text));
    return list;
  }
  const std::size_t bytes = facts_of(type).bytes;
  for (std::size_t at = 0; at < values.bytes.size(); at += bytes) {
    const std::byte* const value = values.bytes.data() + at;
    if (!with_number(type, [&]<class T>() { list.push_back(number_json<T>(value)); }))
      list.push_back(hex_of(value, bytes));
  }
  return list;
}

Values values_of(const Json& list, DataType type) {
  Values values;
  if (!list.is_array()) throw std::runtime_error("values are no list");
  const std::size_t bytes = facts_of(type).bytes;
  for (const Json& each : list) {
    if (type == DataType::String) {
      values.texts.push_back(text_of(each));
      continue;
    }
    const std::size_t at = values.bytes.size();
    values.bytes.resize(at + bytes);
    if (!each.is_object() && with_number(type, [&]<class T>() { read_number<T>(each, values.bytes.data() + at); }))
      continue;
    const std::vector<std::byte> raw = bytes_of_hex(each);
    if (raw.size() != bytes) throw std::runtime_error("a value has another length than its type");
    std::ranges::copy(raw, values.bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return values;
}

Json block_json(const Block& block, const VariableAbout& variable) {
  if (variable.is_value()) return {{"value", values_json(block.value, variable.type)}};
  Json made;
  if (!block.start.empty()) made["start"] = block.start;
  made["count"] = block.count;
  if (!block.object.empty()) made["object"] = block.object;
  if (!block.column.empty()) made["column"] = block.column;
  return made;
}

DataType type_named(const std::string& name) {
  for (const TypeFacts& each : types)
    if (name == each.name) return each.type;
  throw std::runtime_error("there is no type " + name);
}

template <class T>
T field(const Json& object, const char* name, T missing) {
  const auto at = object.find(name);
  return at == object.end() ? missing : at->get<T>();
}

Block block_of(const Json& given, const VariableAbout& variable) {
  Block block;
  if (variable.is_value()) {
    block.value = values_of(given.at("value"), variable.type);
    if (block.value.bytes.size() != facts_of(variable.type).bytes ||
        block.value.texts.size() != (variable.type == DataType::String ? 1 : 0))
      throw std::runtime_error("variable " + variable.name + " has another number of values than one");
    return block;
  }
  block.start = field<Dims>(given, "start", {});
  block.count = given.at("count").get<Dims>();
  block.object = field<std::string>(given, "object", {});
  block.column = field<std::string>(given, "column", {});
  const bool has_start = variable.kind == ShapeID::GlobalArray;
  const bool has_shape = variable.kind != ShapeID::LocalArray;
  bool fits = block.start.size() == (has_start ? block.count.size() : 0) &&
              variable.shape.size() == (has_shape ? block.count.size() : 0) && !block.count.empty();
  for (std::size_t i = 0; fits && has_start && i < block.count.size(); ++i)
    fits = block.start[i] <= variable.shape[i] && block.count[i] <= variable.shape[i] - block.start[i];
  if (!fits) throw std::runtime_error("a block of variable " + variable.name + " does not fit its shape");
  if (elements_of(block.count) != 0 && block.object.empty())
    throw std::runtime_error("a block of variable " + variable.name + " has no object");
  return block;
}

VariableAbout variable_of(const Json& given) {
  VariableAbout variable;
  variable.name = given.at("name").get<std::string>();
  variable.type = type_named(given.at("type").get<std::string>());
  const auto kind = given.at("kind").get<std::string>();
  for (const auto& [id, name] : kinds)
    if (kind == name) variable.kind = id;
  if (variable.kind == ShapeID::Unknown) throw std::runtime_error("there is no kind of variable " + kind);
  variable.shape = field<Dims>(given, "shape", {});
  if (variable.kind != ShapeID::JoinedArray) (void)elements_of(variable.shape);  // throws where they are too many
  if (variable.type == DataType::String && !variable.is_value())
    throw std::runtime_error("variable " + variable.name + " is an array of strings");
  for (const Json& each : given.at("blocks")) variable.blocks.push_back(block_of(each, variable));
  if (variable.blocks.empty()) throw std::runtime_error("variable " + variable.name + " has no blocks");
  return variable;
}

AttributeAbout attribute_of(const Json& given) {
  AttributeAbout attribute;
  attribute.name = given.at("name").get<std::string>();
  attribute.type = type_named(given.at("type").get<std::string>());
  attribute.single = given.at("single").get<bool>();
  attribute.values = values_of(given.at("values"), attribute.type);
  if (given.at("values").empty() || (attribute.single && given.at("values").size() != 1))
    throw std::runtime_error("attribute " + attribute.name + " has another number of values than it says");
  return attribute;
}

Json json_of(const VariableAbout& variable) {
  Json made = {{"name", variable.name}, {"type", facts_of(variable.type).name}};
  for (const auto& [id, name] : kinds)
    if (variable.kind == id) made["kind"] = name;
  if (!variable.shape.empty() && !variable.is_value()) made["shape"] = variable.shape;
  Json& blocks = made["blocks"] = Json::array();
  for (const Block& block : variable.blocks) blocks.push_back(block_json(block, variable));
  return made;
}

Json json_of(const AttributeAbout& attribute) {
  return {{"name", attribute.name},
          {"type", facts_of(attribute.type).name},
          {"single", attribute.single},
          {"values", values_json(attribute.values, attribute.type)}};
}

// The texts of a list; texts of known elements are reused.
template <class T, class Known>
std::string list_of(const std::vector<T>& list, Known& known) {
  std::string text = "[";
  for (const T& each : list) {
    const auto [at, is_new] = known.try_emplace(each.name);
    if (is_new || at->second.described != each) at->second = {each, json_of(each).dump()};
    if (text.size() > 1) text += ',';
    text += at->second.text;
  }
  return text + "]";
}

}  // namespace

std::string Encoder::encode(const About& about) {
  try {
    return "{\"offpath_adios2\":" + std::to_string(form) + ",\"step\":" + std::to_string(about.step) +
           ",\"rank\":" + std::to_string(about.rank) + ",\"ranks\":" + std::to_string(about.ranks) +
           (about.end ? ",\"end\":true" : "") + ",\"variables\":" + list_of(about.variables, variables_) +
           ",\"attributes\":" + list_of(about.attributes, attributes_) + "}";
  } catch (const Json::type_error& error) {
    throw std::invalid_argument(std::string("Offpath: the name of a variable or attribute is no UTF-8: ") +
                                error.what());
  }
}

About decode(std::span<const std::byte> bytes) {
  try {
    const auto* const text = reinterpret_cast<const char*>(bytes.data());
    const Json given = Json::parse(text, text + bytes.size());
    if (given.at("offpath_adios2").get<int>() != form)
      throw std::runtime_error("it is of form " + given.at("offpath_adios2").dump() + ", known is " +
                               std::to_string(form) + ": writer and reader need the same version of Offpath");
    About about;
    about.step = given.at("step").get<std::uint64_t>();
    about.rank = given.at("rank").get<std::uint32_t>();
    about.ranks = given.at("ranks").get<std::uint32_t>();
    about.end = field<bool>(given, "end", false);
    if (about.rank >= about.ranks) throw std::runtime_error("its rank is not one of its ranks");
    for (const Json& each : given.at("variables")) about.variables.push_back(variable_of(each));
    for (const Json& each : given.at("attributes")) about.attributes.push_back(attribute_of(each));
    return about;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("no description of a step: ") + error.what());
  }
}

}  // namespace offpath::adios
