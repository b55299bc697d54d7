// For the messages' own files: fields that several messages have, and the definitions of encode and decode from
// `fields(way, message)` (fields.h) and `check(message)`, which checks conditions between fields that are valid by
// themselves.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "wire/fields.h"
#include "wire/limits.h"
#include "wire/region.h"

namespace offpath::wire {

inline constexpr std::string_view the_row_key = "the row key", the_column_key = "the column key";

Status check(const auto&) { return {}; }

// The selection of lists and drops.
void globs(auto& way, auto& m) {
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_glob, pattern_bytes_max, "the row pattern");
  way.text(m.column_glob, pattern_bytes_max, "the column pattern");
}

// The location of an object that an agent is to pull.
void object_at(auto& way, BufferRef& at) { way(at.region, at.generation, at.offset, at.length); }
void object_at(auto& way, const BufferRef& at) { way(at.region, at.generation, at.offset, at.length); }

// The object that a member's request concerns.
void keys(auto& way, auto& m) {
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_key, key_bytes_max, the_row_key);
  way.text(m.column_key, key_bytes_max, the_column_key);
}

// The function to call, and the keys for its outputs.
void function(auto& way, auto& m) {
  way(m.stores);
  way.text(m.plugin, name_bytes_max, "the plug-in's name");
  way.text(m.function, name_bytes_max, "the function's name");
  way.text(m.result_row, key_bytes_max, "the result's row key");
  way.text(m.result_column, key_bytes_max, "the result's column key");
  way.bytes(m.arguments);
}
inline Status check_arguments(Bytes arguments) {
  if (arguments.size() > arguments_bytes_max)
    return fail(Error::too_large, "arguments of {} bytes, at most {} are allowed: put larger arguments into the row",
                arguments.size(), arguments_bytes_max);
  return {};
}

}  // namespace offpath::wire

#define OFFPATH_DEFINE_CODING(Message)                              \
  void encode(const Message& message, std::vector<std::byte>& to) { \
    FieldWriter way(to);                                            \
    fields(way, message);                                           \
  }                                                                 \
  Status decode(Bytes payload, Message& message) {                  \
    FieldReader way(payload);                                       \
    fields(way, message);                                           \
    OFP_TRY(way.finish());                                          \
    return check(message);                                          \
  }
