// Schemas for tests: each type once, and each way of nesting.
//
// Read this first in src/testing/frame, then arrays.h and random_batches.h.
#pragma once

#include "frame/schema.h"

namespace offpath::frame {

inline Schema every_type() {
  Schema schema;
  schema.metadata = {{"origin", "a test"}, {"", ""}};
  for (int i = 0; i < types_count; ++i) {
    Field field;
    field.type = static_cast<Type>(i);
    if (field.type == Type::list || field.type == Type::large_list || field.type == Type::fixed_list ||
        field.type == Type::structure || field.type == Type::map || is_union(field.type)) {
      continue;
    }
    field.name = std::string(type_name(field.type));
    field.nullable = i % 2 == 0;
    if (field.type == Type::fixed_binary) field.width = 5;
    if (field.type >= Type::decimal32 && field.type <= Type::decimal256) {
      field.precision = 9;
      field.scale = -2;
    }
    if (field.type == Type::time64 || field.type == Type::duration) field.unit = Unit::nanosecond;
    if (field.type == Type::timestamp) {
      field.unit = Unit::microsecond;
      field.timezone = "Europe/Berlin";
    }
    if (i % 5 == 0) field.metadata = {{"unit", field.name}};
    schema.fields.push_back(std::move(field));
  }
  return schema;
}

inline Schema every_nesting() {
  const Field number{.name = "number", .type = Type::int32};
  const Field text{.name = "text", .type = Type::utf8, .nullable = false};
  const Field flag{.name = "flag", .type = Type::boolean};
  const Field words{.name = "words", .type = Type::int16, .ordered = true, .dictionary = {{.type = Type::utf8}}};
  const Field pair{.name = "pair", .type = Type::structure, .children = {number, text, words}};
  const Field entries{.name = "entries", .type = Type::structure, .nullable = false, .children = {text, flag}};
  Field both_words = words;
  both_words.name = "pairs";
  both_words.dictionary = {{.type = Type::structure, .children = {number, words}}};
  Schema schema;
  schema.fields = {
      {.name = "list", .type = Type::list, .children = {pair}},
      {.name = "large_list", .type = Type::large_list, .metadata = {{"a", "b"}}, .children = {text}},
      {.name = "fixed_list", .type = Type::fixed_list, .width = 3, .children = {flag}},
      pair,
      {.name = "map", .type = Type::map, .keys_sorted = true, .children = {entries}},
      both_words,
      {.name = "empty", .type = Type::structure},
      {.name = "sparse", .type = Type::sparse_union, .children = {pair, flag}, .type_codes = {0, 1}},
      {.name = "dense", .type = Type::dense_union, .children = {text, words, flag}, .type_codes = {127, 0, 5}},
  };
  return schema;
}

}  // namespace offpath::frame
