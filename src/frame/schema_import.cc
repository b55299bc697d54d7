// The format strings of the Arrow C data interface.
#include <array>
#include <charconv>
#include <cstring>

#include "frame/schema.h"

namespace offpath::frame {

namespace {

struct Format {
  std::string_view text;
  Type type;
  Unit unit = Unit::second;
  bool view = false;
};

constexpr std::array exact_formats{
    Format{"n", Type::null},
    Format{"b", Type::boolean},
    Format{"c", Type::int8},
    Format{"C", Type::uint8},
    Format{"s", Type::int16},
    Format{"S", Type::uint16},
    Format{"i", Type::int32},
    Format{"I", Type::uint32},
    Format{"l", Type::int64},
    Format{"L", Type::uint64},
    Format{"e", Type::float16},
    Format{"f", Type::float32},
    Format{"g", Type::float64},
    Format{"z", Type::binary},
    Format{"Z", Type::large_binary},
    Format{"u", Type::utf8},
    Format{"U", Type::large_utf8},
    Format{"tdD", Type::date32},
    Format{"tdm", Type::date64},
    Format{"tts", Type::time32, Unit::second},
    Format{"ttm", Type::time32, Unit::millisecond},
    Format{"ttu", Type::time64, Unit::microsecond},
    Format{"ttn", Type::time64, Unit::nanosecond},
    Format{"tDs", Type::duration, Unit::second},
    Format{"tDm", Type::duration, Unit::millisecond},
    Format{"tDu", Type::duration, Unit::microsecond},
    Format{"tDn", Type::duration, Unit::nanosecond},
    Format{"tiM", Type::interval_months},
    Format{"tiD", Type::interval_day_time},
    Format{"tin", Type::interval_month_day_nano},
    Format{"+l", Type::list},
    Format{"+L", Type::large_list},
    Format{"+s", Type::structure},
    Format{"+m", Type::map},
    Format{"vu", Type::large_utf8, Unit::second, true},  // views have any number of bytes
    Format{"vz", Type::large_binary, Unit::second, true},
    Format{"+vl", Type::list, Unit::second, true},
    Format{"+vL", Type::large_list, Unit::second, true},
};

constexpr std::array timestamp_formats{
    Format{"tss:", Type::timestamp, Unit::second},
    Format{"tsm:", Type::timestamp, Unit::millisecond},
    Format{"tsu:", Type::timestamp, Unit::microsecond},
    Format{"tsn:", Type::timestamp, Unit::nanosecond},
};

// Takes a decimal number off the front of `text`.
bool take_number(std::string_view& text, std::int32_t& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_comma(std::string_view& text) noexcept {
  if (!text.starts_with(',')) return false;
  text.remove_prefix(1);
  return true;
}

// "d:precision,scale" or "d:precision,scale,bits"
bool parse_decimal(std::string_view text, Field& field) noexcept {
  std::int32_t bits = 128;
  if (!take_number(text, field.precision) || !take_comma(text) || !take_number(text, field.scale)) return false;
  if (take_comma(text) && !take_number(text, bits)) return false;
  if (!text.empty()) return false;
  switch (bits) {
    case 32:
      field.type = Type::decimal32;
      return true;
    case 64:
      field.type = Type::decimal64;
      return true;
    case 128:
      field.type = Type::decimal128;
      return true;
    case 256:
      field.type = Type::decimal256;
      return true;
    default:
      return false;
  }
}

bool parse_width(std::string_view text, Type type, Field& field) noexcept {
  field.type = type;
  return take_number(text, field.width) && text.empty();
}

// "0,5,1", or nothing.
bool parse_type_codes(std::string_view text, Type type, Field& field) {
  field.type = type;
  if (text.empty()) return true;
  do {
    std::int32_t code = 0;
    if (!take_number(text, code) || code < 0 || code > INT8_MAX) return false;
    field.type_codes.push_back(static_cast<std::int8_t>(code));
  } while (take_comma(text));
  return text.empty();
}

bool parse_format(std::string_view format, Field& field) {
  for (const Format& known : exact_formats) {
    if (format == known.text) {
      field.type = known.type;
      field.unit = known.unit;
      field.view = known.view;
      return true;
    }
  }
  for (const Format& known : timestamp_formats) {
    if (format.starts_with(known.text)) {
      field.type = known.type;
      field.unit = known.unit;
      field.timezone = format.substr(known.text.size());
      return true;
    }
  }
  if (format.starts_with("w:")) return parse_width(format.substr(2), Type::fixed_binary, field);
  if (format.starts_with("+w:")) return parse_width(format.substr(3), Type::fixed_list, field);
  if (format.starts_with("d:")) return parse_decimal(format.substr(2), field);
  if (format.starts_with("+us:")) return parse_type_codes(format.substr(4), Type::sparse_union, field);
  if (format.starts_with("+ud:")) return parse_type_codes(format.substr(4), Type::dense_union, field);
  return false;
}

// i32 entries, then for each: i32 bytes, key, i32 bytes, value. There is no length in all to check
// against: the struct is this process's own, and its producer is trusted as far as the numbers make sense.
Status parse_metadata(const char* at, std::vector<KeyValue>& metadata, const std::string& path) {
  if (at == nullptr) return {};
  const auto* bytes = reinterpret_cast<const std::byte*>(at);
  const auto entries = load<std::int32_t>(bytes);
  bytes += sizeof entries;
  if (entries < 0 || static_cast<std::size_t>(entries) > metadata_entries_max) {
    return fail(Error::too_large, "the metadata of '{}' has {} entries, at most {} are allowed", path, entries,
                metadata_entries_max);
  }
  std::size_t total = 0;
  for (std::int32_t i = 0; i < entries; ++i) {
    KeyValue& entry = metadata.emplace_back();
    for (std::string* part : {&entry.key, &entry.value}) {
      const auto length = load<std::int32_t>(bytes);
      bytes += sizeof length;
      if (length < 0 || (total += static_cast<std::size_t>(length)) > schema_bytes_max) {
        return fail(Error::too_large, "the metadata of '{}' has an entry of {} bytes, at most {} in all are allowed",
                    path, length, schema_bytes_max);
      }
      part->assign(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
      bytes += length;
    }
  }
  return {};
}

class Importer {
 public:
  Status field(const ArrowSchema& from, Field& to, const std::string& parent, int depth) {
    to.name = from.name != nullptr ? from.name : "";
    const std::string path = parent.empty() ? to.name : parent + "." + to.name;
    if (from.release == nullptr) return fail(Error::invalid, "the schema of field '{}' is already released", path);
    if (from.format == nullptr) return fail(Error::invalid, "the schema of field '{}' has no format", path);
    if (depth > depth_max) {
      return fail(Error::too_large, "field '{}' is nested {} deep, at most {} are allowed", path, depth, depth_max);
    }
    if (++fields_ > fields_max) {
      return fail(Error::too_large, "the schema has more than {} fields, the limit; '{}' is one too many", fields_max,
                  path);
    }
    if (std::string_view(from.format) == "+r") return runs(from, to, path, depth);
    if (!parse_format(from.format, to)) {
      return fail(Error::unsupported, "field '{}' has the Arrow format \"{}\", which cannot be stored", path,
                  from.format);
    }
    to.nullable = (from.flags & ARROW_FLAG_NULLABLE) != 0;
    to.ordered = from.dictionary != nullptr && (from.flags & ARROW_FLAG_DICTIONARY_ORDERED) != 0;
    to.keys_sorted = to.type == Type::map && (from.flags & ARROW_FLAG_MAP_KEYS_SORTED) != 0;
    OFP_TRY(parse_metadata(from.metadata, to.metadata, path));
    OFP_TRY(children(from, to.children, path, depth + 1));
    if (from.dictionary != nullptr) {
      Field& values = to.dictionary.emplace_back();
      OFP_TRY(field(*from.dictionary, values, path, depth + 1));
      // IPC has no place for these, so they would not come back.
      values.name.clear();
      values.nullable = true;
      values.metadata.clear();
    }
    return {};
  }

  // A column of runs is stored as its values, under its own name.
  Status runs(const ArrowSchema& from, Field& to, const std::string& path, int depth) {
    if (from.n_children != 2 || from.children == nullptr || from.children[0] == nullptr || from.children[1] == nullptr)
      return fail(Error::schema, "field '{}': run_end_encoded has {} children, expected run ends and values", path,
                  from.n_children);
    const char* const ends = from.children[0]->format;
    const std::string_view format = ends != nullptr ? ends : "";
    const std::uint8_t bytes = format == "s" ? 2 : format == "i" ? 4 : format == "l" ? 8 : 0;
    if (bytes == 0)
      return fail(Error::schema, "field '{}' has run ends of the Arrow format \"{}\"; they are int16, int32 or int64",
                  path, format);
    const std::string name = to.name;
    OFP_TRY(field(*from.children[1], to, path, depth + 1));
    to.name = name;
    to.nullable = (from.flags & ARROW_FLAG_NULLABLE) != 0;
    to.metadata.clear();
    OFP_TRY(parse_metadata(from.metadata, to.metadata, path));
    to.run_ends.insert(to.run_ends.begin(), bytes);
    return {};
  }

  Status children(const ArrowSchema& from, std::vector<Field>& to, const std::string& path, int depth) {
    if (from.n_children < 0 || (from.n_children > 0 && from.children == nullptr)) {
      return fail(Error::invalid, "the schema of '{}' says it has {} children, but gives none", path, from.n_children);
    }
    for (std::int64_t i = 0; i < from.n_children; ++i) {
      if (from.children[i] == nullptr) return fail(Error::invalid, "child {} of '{}' is null", i, path);
      OFP_TRY(field(*from.children[i], to.emplace_back(), path, depth));
    }
    return {};
  }

 private:
  std::size_t fields_ = 0;
};

}  // namespace

Result<Schema> import_schema(const ArrowSchema& schema) {
  if (schema.release == nullptr) return fail(Error::invalid, "the schema is already released");
  if (schema.format == nullptr || std::strcmp(schema.format, "+s") != 0) {
    return fail(Error::schema, "the schema of a record batch has the format \"+s\", given \"{}\"",
                schema.format != nullptr ? schema.format : "");
  }
  Schema result;
  OFP_TRY(parse_metadata(schema.metadata, result.metadata, "schema"));
  OFP_TRY(Importer().children(schema, result.fields, "", 1));
  OFP_TRY(check(result));
  return result;
}

}  // namespace offpath::frame
