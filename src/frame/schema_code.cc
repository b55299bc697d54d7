// The bytes a schema crosses processes in. decode() reads arbitrary bytes: every length is compared with the remaining
// bytes before its use, and the tree's depth and size with their bounds before it grows.
#include "frame/schema.h"

namespace offpath::frame {

namespace {

constexpr std::uint32_t magic = 0x5350464F;  // "OFPS"
constexpr std::uint16_t code_version = 1;
constexpr std::size_t bytes_at = 8;  // of the total, in the header

enum Flags : std::uint8_t {
  nullable_flag = 1,
  keys_sorted_flag = 2,
  ordered_flag = 4,
  dictionary_flag = 8,
  known_flags = 15,
};

class Writer {
 public:
  template <class T>
  void number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    store(bytes_.data() + at, value);
  }
  void raw(std::string_view text) {
    const Bytes view = bytes_of(text);
    bytes_.insert(bytes_.end(), view.begin(), view.end());
  }
  void text(std::string_view text) {
    number(static_cast<std::uint16_t>(text.size()));
    raw(text);
  }
  void metadata(const std::vector<KeyValue>& metadata) {
    number(static_cast<std::uint16_t>(metadata.size()));
    for (const KeyValue& entry : metadata) {
      for (const std::string* part : {&entry.key, &entry.value}) {
        number(static_cast<std::uint32_t>(part->size()));
        raw(*part);
      }
    }
  }
  void field(const Field& field) {
    number(field.type);
    number(static_cast<std::uint8_t>((field.nullable ? nullable_flag : 0) | (field.keys_sorted ? keys_sorted_flag : 0) |
                                     (field.ordered ? ordered_flag : 0) |
                                     (field.dictionary.empty() ? 0 : dictionary_flag)));
    number(field.unit);
    number(std::uint8_t{0});
    number(field.width);
    number(field.precision);
    number(field.scale);
    text(field.name);
    text(field.timezone);
    metadata(field.metadata);
    number(static_cast<std::uint16_t>(field.children.size()));
    for (const Field& child : field.children) this->field(child);
    for (const std::int8_t code : field.type_codes) number(code);  // of a union: as many as children
    if (!field.dictionary.empty()) this->field(field.dictionary[0]);
  }
  std::vector<std::byte> take() {
    store(bytes_.data() + bytes_at, static_cast<std::uint32_t>(bytes_.size()));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  Result<Schema> schema() {
    OFP_TRY(header());
    Schema schema;
    OFP_TRY(metadata(schema.metadata));
    OFP_TRY(fields(schema.fields, 1));
    if (at_ != bytes_.size()) {
      return fail(Error::protocol, "encoded schema: {} bytes follow the last field, expected none",
                  bytes_.size() - at_);
    }
    OFP_TRY(check(schema));
    return schema;
  }

 private:
  Status header() {
    if (bytes_.size() > schema_bytes_max) {
      return fail(Error::too_large, "encoded schema: {} bytes, at most {} are allowed", bytes_.size(),
                  schema_bytes_max);
    }
    std::uint32_t given_magic = 0;
    std::uint16_t version = 0;
    std::uint16_t zero = 0;
    std::uint32_t total = 0;
    OFP_TRY(number(given_magic, "magic"));
    if (given_magic != magic)
      return fail(Error::protocol, "encoded schema: magic {:#x}, expected {:#x}", given_magic, magic);
    OFP_TRY(number(version, "version"));
    if (version != code_version) {
      return fail(Error::version, "encoded schema: version {}, this side knows {}", version, code_version);
    }
    OFP_TRY(number(zero, "header"));
    if (zero != 0) return fail(Error::protocol, "encoded schema: reserved field is {}, expected 0", zero);
    OFP_TRY(number(total, "length"));
    if (total != bytes_.size()) {
      return fail(Error::protocol, "encoded schema: says it has {} bytes, given {}", total, bytes_.size());
    }
    return {};
  }

  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  template <class T>
  Status number(T& value, std::string_view what) {
    if (left() < sizeof value) {
      return fail(Error::protocol, "encoded schema: {} at byte {} needs {} bytes, {} are left", what, at_, sizeof value,
                  left());
    }
    value = load<T>(bytes_.data() + at_);
    at_ += sizeof value;
    return {};
  }

  Status raw(std::string& text, std::size_t bytes, std::string_view what) {
    if (left() < bytes) {
      return fail(Error::protocol, "encoded schema: {} at byte {} needs {} bytes, {} are left", what, at_, bytes,
                  left());
    }
    text.assign(text_of(bytes_.subspan(at_, bytes)));
    at_ += bytes;
    return {};
  }

  Status text(std::string& text, std::string_view what) {
    std::uint16_t bytes = 0;
    OFP_TRY(number(bytes, what));
    return raw(text, bytes, what);
  }

  Status metadata(std::vector<KeyValue>& metadata) {
    std::uint16_t entries = 0;
    OFP_TRY(number(entries, "metadata"));
    if (entries > metadata_entries_max) {
      return fail(Error::too_large, "encoded schema: {} metadata entries, at most {} are allowed", entries,
                  metadata_entries_max);
    }
    for (std::uint16_t i = 0; i < entries; ++i) {
      KeyValue& entry = metadata.emplace_back();
      for (std::string* part : {&entry.key, &entry.value}) {
        std::uint32_t bytes = 0;
        OFP_TRY(number(bytes, "metadata"));
        OFP_TRY(raw(*part, bytes, "metadata"));
      }
    }
    return {};
  }

  Status fields(std::vector<Field>& fields, int depth) {
    std::uint16_t count = 0;
    OFP_TRY(number(count, "field count"));
    for (std::uint16_t i = 0; i < count; ++i) OFP_TRY(field(fields.emplace_back(), depth));
    return {};
  }

  Status field(Field& field, int depth) {
    if (depth > depth_max) {
      return fail(Error::too_large, "encoded schema: nested deeper than {} fields, the limit", depth_max);
    }
    if (++fields_ > fields_max)
      return fail(Error::too_large, "encoded schema: more than {} fields, the limit", fields_max);
    std::uint8_t type = 0;
    std::uint8_t flags = 0;
    std::uint8_t unit = 0;
    std::uint8_t zero = 0;
    OFP_TRY(number(type, "type"));
    OFP_TRY(number(flags, "flags"));
    OFP_TRY(number(unit, "unit"));
    OFP_TRY(number(zero, "field"));
    if (type >= types_count) {
      return fail(Error::unsupported, "encoded schema: type number {}, the last known is {}", type, types_count - 1);
    }
    if ((flags & ~known_flags) != 0 || zero != 0) {
      return fail(Error::protocol, "encoded schema: field flags {:#x} and reserved {}, expected at most {:#x} and 0",
                  flags, zero, static_cast<int>(known_flags));
    }
    if (unit > static_cast<std::uint8_t>(Unit::nanosecond)) {
      return fail(Error::protocol, "encoded schema: time unit {}, the last known is 3", unit);
    }
    field.type = static_cast<Type>(type);
    field.unit = static_cast<Unit>(unit);
    field.nullable = (flags & nullable_flag) != 0;
    field.keys_sorted = (flags & keys_sorted_flag) != 0;
    field.ordered = (flags & ordered_flag) != 0;
    OFP_TRY(number(field.width, "width"));
    OFP_TRY(number(field.precision, "precision"));
    OFP_TRY(number(field.scale, "scale"));
    OFP_TRY(text(field.name, "name"));
    OFP_TRY(text(field.timezone, "time zone"));
    OFP_TRY(metadata(field.metadata));
    OFP_TRY(fields(field.children, depth + 1));
    if (is_union(field.type)) {
      field.type_codes.resize(field.children.size());
      for (std::int8_t& code : field.type_codes) OFP_TRY(number(code, "type code"));
    }
    if ((flags & dictionary_flag) != 0) OFP_TRY(this->field(field.dictionary.emplace_back(), depth + 1));
    return {};
  }

  Bytes bytes_;
  std::size_t at_ = 0;
  std::size_t fields_ = 0;
};

}  // namespace

std::vector<std::byte> encode(const Schema& schema) {
  Writer writer;
  writer.number(magic);
  writer.number(code_version);
  writer.number(std::uint16_t{0});
  writer.number(std::uint32_t{0});  // the total, filled by take()
  writer.metadata(schema.metadata);
  writer.number(static_cast<std::uint16_t>(schema.fields.size()));
  for (const Field& field : schema.fields) writer.field(field);
  return writer.take();
}

Result<Schema> decode(Bytes bytes) { return Reader(bytes).schema(); }

}  // namespace offpath::frame
