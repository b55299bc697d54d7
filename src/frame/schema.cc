#include "frame/schema.h"

#include <array>
#include <bitset>

#include "base/text.h"

namespace offpath::frame {

namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  std::uint32_t value_bytes;   // 0: not of a fixed width, or given by the field
  std::int32_t precision_max;  // decimals
};

constexpr std::array<TypeRow, types_count> type_rows{{
    {Type::null, "null", 0, 0},
    {Type::boolean, "bool", 0, 0},
    {Type::int8, "int8", 1, 0},
    {Type::int16, "int16", 2, 0},
    {Type::int32, "int32", 4, 0},
    {Type::int64, "int64", 8, 0},
    {Type::uint8, "uint8", 1, 0},
    {Type::uint16, "uint16", 2, 0},
    {Type::uint32, "uint32", 4, 0},
    {Type::uint64, "uint64", 8, 0},
    {Type::float16, "float16", 2, 0},
    {Type::float32, "float32", 4, 0},
    {Type::float64, "float64", 8, 0},
    {Type::decimal32, "decimal32", 4, 9},
    {Type::decimal64, "decimal64", 8, 18},
    {Type::decimal128, "decimal128", 16, 38},
    {Type::decimal256, "decimal256", 32, 76},
    {Type::date32, "date32", 4, 0},
    {Type::date64, "date64", 8, 0},
    {Type::time32, "time32", 4, 0},
    {Type::time64, "time64", 8, 0},
    {Type::timestamp, "timestamp", 8, 0},
    {Type::duration, "duration", 8, 0},
    {Type::interval_months, "month_interval", 4, 0},
    {Type::interval_day_time, "day_time_interval", 8, 0},
    {Type::interval_month_day_nano, "month_day_nano_interval", 16, 0},
    {Type::fixed_binary, "fixed_size_binary", 0, 0},
    {Type::binary, "binary", 0, 0},
    {Type::utf8, "string", 0, 0},
    {Type::large_binary, "large_binary", 0, 0},
    {Type::large_utf8, "large_string", 0, 0},
    {Type::list, "list", 0, 0},
    {Type::large_list, "large_list", 0, 0},
    {Type::fixed_list, "fixed_size_list", 0, 0},
    {Type::structure, "struct", 0, 0},
    {Type::map, "map", 0, 0},
    {Type::sparse_union, "sparse_union", 0, 0},
    {Type::dense_union, "dense_union", 0, 0},
}};

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < type_rows.size(); ++i) {
    if (static_cast<std::size_t>(type_rows[i].type) != i) return false;
  }
  return true;
}
static_assert(rows_in_order());

const TypeRow& row_of(Type type) noexcept { return type_rows[static_cast<std::size_t>(type)]; }

constexpr std::array<std::string_view, 4> unit_names{"s", "ms", "us", "ns"};

bool is_index(Type type) noexcept { return type >= Type::int8 && type <= Type::uint64; }

// Walks the tree; `path` is for errors only and as deep as the recursion.
class Checker {
 public:
  Status schema(const Schema& schema) {
    OFP_TRY(metadata(schema.metadata, "the schema"));
    for (const Field& each : schema.fields) OFP_TRY(field(each, "", 1));
    if (bytes_ > schema_bytes_max) {
      return fail(Error::too_large, "the schema takes {} bytes, at most {} are allowed", bytes_, schema_bytes_max);
    }
    return {};
  }

 private:
  Status field(const Field& field, const std::string& parent, int depth) {
    if (field.name.size() > name_bytes_max) {
      return fail(Error::too_large, "a field's name in '{}' has {} bytes, at most {} are allowed", parent,
                  field.name.size(), name_bytes_max);
    }
    const std::string path = parent.empty() ? field.name : parent + "." + field.name;
    if (!is_utf8(field.name)) return fail(Error::schema, "the name of a field in '{}' is not UTF-8", parent);
    if (depth > depth_max) {
      return fail(Error::too_large, "field '{}' is nested {} deep, at most {} are allowed", path, depth, depth_max);
    }
    if (++fields_ > fields_max) {
      return fail(Error::too_large, "the schema has more than {} fields, the limit; '{}' is one too many", fields_max,
                  path);
    }
    if (static_cast<int>(field.type) >= types_count) {
      return fail(Error::unsupported, "field '{}' has type number {}, the last known is {}", path,
                  static_cast<int>(field.type), types_count - 1);
    }
    bytes_ += field_bytes + field.name.size() + field.timezone.size() + field.type_codes.size();
    OFP_TRY(metadata(field.metadata, path));
    OFP_TRY(parameters(field, path));
    OFP_TRY(children(field, path));
    if (field.dictionary.size() > 1) {
      return fail(Error::schema, "field '{}' has {} dictionaries, at most 1 is allowed", path, field.dictionary.size());
    }
    if (!field.dictionary.empty()) {
      if (!is_index(field.type)) {
        return fail(Error::schema, "field '{}': indices of a dictionary are integers, not {}", path,
                    type_name(field.type));
      }
      if (!field.dictionary[0].dictionary.empty()) {
        return fail(Error::unsupported, "field '{}': the values of its dictionary are themselves indices of one", path);
      }
      OFP_TRY(this->field(field.dictionary[0], path, depth + 1));
    }
    for (const Field& child : field.children) OFP_TRY(this->field(child, path, depth + 1));
    return {};
  }

  Status metadata(const std::vector<KeyValue>& metadata, const std::string& of) {
    for (const KeyValue& entry : metadata) bytes_ += 8 + entry.key.size() + entry.value.size();
    if (metadata.size() > metadata_entries_max) {
      return fail(Error::too_large, "the metadata of {} has {} entries, at most {} are allowed", of, metadata.size(),
                  metadata_entries_max);
    }
    return {};
  }

  static Status parameters(const Field& field, const std::string& path) {
    if (static_cast<int>(field.unit) > static_cast<int>(Unit::nanosecond)) {
      return fail(Error::schema, "field '{}' has time unit {}, the last known is 3", path,
                  static_cast<int>(field.unit));
    }
    const bool coarse = field.unit <= Unit::millisecond;
    if ((field.type == Type::time32 && !coarse) || (field.type == Type::time64 && coarse)) {
      return fail(Error::schema, "field '{}': {} cannot count in {}", path, type_name(field.type),
                  unit_names[static_cast<std::size_t>(field.unit)]);
    }
    if (field.width < 0)
      return fail(Error::schema, "field '{}' has width {}, at least 0 is allowed", path, field.width);
    const std::int32_t precision_max = row_of(field.type).precision_max;
    if (precision_max > 0 && (field.precision < 1 || field.precision > precision_max)) {
      return fail(Error::schema, "field '{}': {} has precision {}, 1 to {} are allowed", path, type_name(field.type),
                  field.precision, precision_max);
    }
    if (field.timezone.size() > name_bytes_max) {
      return fail(Error::too_large, "the time zone of '{}' has {} bytes, at most {} are allowed", path,
                  field.timezone.size(), name_bytes_max);
    }
    if (!is_utf8(field.timezone)) return fail(Error::schema, "the time zone of '{}' is not UTF-8", path);
    return {};
  }

  static Status children(const Field& field, const std::string& path) {
    if (is_union(field.type)) return type_codes(field, path);
    if (!field.type_codes.empty())
      return fail(Error::schema, "field '{}': {} has {} type codes, expected none", path, type_name(field.type),
                  field.type_codes.size());
    if (field.type == Type::structure) return {};
    const bool one = field.type == Type::list || field.type == Type::large_list || field.type == Type::fixed_list ||
                     field.type == Type::map;
    if (field.children.size() != (one ? 1u : 0u)) {
      return fail(Error::schema, "field '{}': {} has {} children, expected {}", path, type_name(field.type),
                  field.children.size(), one ? 1 : 0);
    }
    if (field.type != Type::map) return {};
    const Field& entries = field.children[0];
    if (entries.type != Type::structure || entries.children.size() != 2) {
      return fail(Error::schema, "field '{}': the entries of a map are a struct of 2, given {} of {}", path,
                  type_name(entries.type), entries.children.size());
    }
    return {};
  }

  static Status type_codes(const Field& field, const std::string& path) {
    if (field.children.empty() || field.children.size() != field.type_codes.size()) {
      return fail(Error::schema, "field '{}': {} has {} children and {} type codes, one each is expected", path,
                  type_name(field.type), field.children.size(), field.type_codes.size());
    }
    std::bitset<type_codes_max> seen;
    for (const std::int8_t code : field.type_codes) {
      if (code < 0 || seen.test(static_cast<std::size_t>(code))) {
        return fail(Error::schema, "field '{}': {} has the type code {}{}, 0 to 127 are allowed, each once", path,
                    type_name(field.type), code, code < 0 ? "" : " twice");
      }
      seen.set(static_cast<std::size_t>(code));
    }
    return {};
  }

  static constexpr std::size_t field_bytes = 24;  // encoded, without texts (schema_code.cc)

  std::size_t fields_ = 0;
  std::size_t bytes_ = 0;
};

std::string decimal_text(const Field& field) {
  return fmt::format("{}({}, {})", type_name(field.type), field.precision, field.scale);
}

}  // namespace

std::string_view type_name(Type type) noexcept {
  return static_cast<int>(type) < types_count ? row_of(type).name : "unknown";
}

std::string describe(const Field& field) {
  if (!field.dictionary.empty()) {
    return fmt::format("dictionary<values={}, indices={}, ordered={:d}>", describe(field.dictionary[0]),
                       type_name(field.type), field.ordered);
  }
  switch (field.type) {
    case Type::decimal32:
    case Type::decimal64:
    case Type::decimal128:
    case Type::decimal256:
      return decimal_text(field);
    case Type::date32:
      return "date32[day]";
    case Type::date64:
      return "date64[ms]";
    case Type::time32:
    case Type::time64:
    case Type::duration:
      return fmt::format("{}[{}]", type_name(field.type), unit_names[static_cast<int>(field.unit) & 3]);
    case Type::timestamp:
      return fmt::format("timestamp[{}{}{}]", unit_names[static_cast<int>(field.unit) & 3],
                         field.timezone.empty() ? "" : ", tz=", field.timezone);
    case Type::fixed_binary:
      return fmt::format("{}[{}]", type_name(field.type), field.width);
    case Type::fixed_list:
    case Type::list:
    case Type::large_list:
    case Type::structure:
      break;
    case Type::map:
      return field.children.size() == 1 && field.children[0].children.size() == 2
                 ? fmt::format("map<{}, {}>", describe(field.children[0].children[0]),
                               describe(field.children[0].children[1]))
                 : std::string(type_name(field.type));
    case Type::sparse_union:
    case Type::dense_union:
      break;
    default:
      return std::string(type_name(field.type));
  }
  std::string text(type_name(field.type));
  text += '<';
  for (std::size_t i = 0; i < field.children.size(); ++i) {
    if (i > 0) text += ", ";
    text += field.children[i].name + ": " + describe(field.children[i]);
    if (i < field.type_codes.size()) text += fmt::format("={}", field.type_codes[i]);
  }
  text += '>';
  if (field.type == Type::fixed_list) text += fmt::format("[{}]", field.width);
  return text;
}

std::uint32_t value_bytes_of(const Field& field) noexcept {
  if (field.type == Type::fixed_binary) return static_cast<std::uint32_t>(field.width);
  return static_cast<int>(field.type) < types_count ? row_of(field.type).value_bytes : 0;
}

Status check(const Schema& schema) { return Checker().schema(schema); }

}  // namespace offpath::frame
