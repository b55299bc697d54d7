// A schema as the flatbuffer of an Arrow IPC schema message, both ways.
#include <unordered_map>

#include "arrow_message_generated.h"
#include "frame/template.h"

namespace offpath::frame {

namespace {

namespace ipc = arrow_ipc;
using flatbuffers::FlatBufferBuilder;
template <class T>
using At = flatbuffers::Offset<T>;

using Ids = std::unordered_map<const Field*, std::int64_t>;

class SchemaWriter {
 public:
  SchemaWriter(FlatBufferBuilder& builder, const Schema& schema) : builder_(builder) {
    const std::vector<const Field*> dictionaries = dictionaries_of(schema);
    for (std::size_t i = 0; i < dictionaries.size(); ++i) ids_[dictionaries[i]] = static_cast<std::int64_t>(i);
  }

  At<ipc::Schema> schema(const Schema& schema) {
    const auto columns = fields(schema.fields);
    const auto entries = metadata(schema.metadata);
    return ipc::CreateSchema(builder_, ipc::Endianness_Little, columns, entries);
  }

 private:
  At<flatbuffers::Vector<At<ipc::Field>>> fields(const std::vector<Field>& fields) {
    std::vector<At<ipc::Field>> written;
    for (const Field& field : fields) written.push_back(this->field(field));
    return builder_.CreateVector(written);
  }

  At<flatbuffers::Vector<At<ipc::KeyValue>>> metadata(const std::vector<KeyValue>& metadata) {
    if (metadata.empty()) return 0;
    std::vector<At<ipc::KeyValue>> written;
    for (const KeyValue& entry : metadata) {
      const auto key = builder_.CreateString(entry.key);
      const auto value = builder_.CreateString(entry.value);
      written.push_back(ipc::CreateKeyValue(builder_, key, value));
    }
    return builder_.CreateVector(written);
  }

  // IPC gives a dictionary column the type of its values, and the type of its indices beside it.
  At<ipc::Field> field(const Field& field) {
    const Field& values = field.dictionary.empty() ? field : field.dictionary[0];
    const auto name = builder_.CreateString(field.name);
    const auto children = fields(values.children);
    const auto entries = metadata(field.metadata);
    ipc::Type number = ipc::Type_NONE;
    const auto content = type(values, number);
    At<ipc::DictionaryEncoding> encoding = 0;
    if (!field.dictionary.empty()) {
      const auto index = integer(field.type);
      encoding = ipc::CreateDictionaryEncoding(builder_, ids_.at(&values), index, field.ordered);
    }
    return ipc::CreateField(builder_, name, field.nullable, number, content, encoding, children, entries);
  }

  At<ipc::Int> integer(Type type) {
    const bool is_signed = type <= Type::int64;
    const int power = static_cast<int>(type) - static_cast<int>(is_signed ? Type::int8 : Type::uint8);
    return ipc::CreateInt(builder_, 8 << power, is_signed);
  }

  template <class Made>
  At<void> as(ipc::Type& number, ipc::Type value, Made made) {
    number = value;
    return made.Union();
  }

  At<void> type(const Field& field, ipc::Type& number) {
    FlatBufferBuilder& b = builder_;
    const auto unit = static_cast<ipc::TimeUnit>(field.unit);
    switch (field.type) {
      case Type::null:
        return as(number, ipc::Type_Null, ipc::CreateNull(b));
      case Type::boolean:
        return as(number, ipc::Type_Bool, ipc::CreateBool(b));
      case Type::int8:
      case Type::int16:
      case Type::int32:
      case Type::int64:
      case Type::uint8:
      case Type::uint16:
      case Type::uint32:
      case Type::uint64:
        return as(number, ipc::Type_Int, integer(field.type));
      case Type::float16:
        return as(number, ipc::Type_FloatingPoint, ipc::CreateFloatingPoint(b, ipc::Precision_HALF));
      case Type::float32:
        return as(number, ipc::Type_FloatingPoint, ipc::CreateFloatingPoint(b, ipc::Precision_SINGLE));
      case Type::float64:
        return as(number, ipc::Type_FloatingPoint, ipc::CreateFloatingPoint(b, ipc::Precision_DOUBLE));
      case Type::decimal32:
      case Type::decimal64:
      case Type::decimal128:
      case Type::decimal256: {
        const auto bits = static_cast<std::int32_t>(value_bytes_of(field) * 8);
        return as(number, ipc::Type_Decimal, ipc::CreateDecimal(b, field.precision, field.scale, bits));
      }
      case Type::date32:
        return as(number, ipc::Type_Date, ipc::CreateDate(b, ipc::DateUnit_DAY));
      case Type::date64:
        return as(number, ipc::Type_Date, ipc::CreateDate(b, ipc::DateUnit_MILLISECOND));
      case Type::time32:
        return as(number, ipc::Type_Time, ipc::CreateTime(b, unit, 32));
      case Type::time64:
        return as(number, ipc::Type_Time, ipc::CreateTime(b, unit, 64));
      case Type::timestamp: {
        At<flatbuffers::String> timezone = 0;
        if (!field.timezone.empty()) timezone = b.CreateString(field.timezone);
        return as(number, ipc::Type_Timestamp, ipc::CreateTimestamp(b, unit, timezone));
      }
      case Type::duration:
        return as(number, ipc::Type_Duration, ipc::CreateDuration(b, unit));
      case Type::interval_months:
        return as(number, ipc::Type_Interval, ipc::CreateInterval(b, ipc::IntervalUnit_YEAR_MONTH));
      case Type::interval_day_time:
        return as(number, ipc::Type_Interval, ipc::CreateInterval(b, ipc::IntervalUnit_DAY_TIME));
      case Type::interval_month_day_nano:
        return as(number, ipc::Type_Interval, ipc::CreateInterval(b, ipc::IntervalUnit_MONTH_DAY_NANO));
      case Type::fixed_binary:
        return as(number, ipc::Type_FixedSizeBinary, ipc::CreateFixedSizeBinary(b, field.width));
      case Type::binary:
        return as(number, ipc::Type_Binary, ipc::CreateBinary(b));
      case Type::utf8:
        return as(number, ipc::Type_Utf8, ipc::CreateUtf8(b));
      case Type::large_binary:
        return as(number, ipc::Type_LargeBinary, ipc::CreateLargeBinary(b));
      case Type::large_utf8:
        return as(number, ipc::Type_LargeUtf8, ipc::CreateLargeUtf8(b));
      case Type::list:
        return as(number, ipc::Type_List, ipc::CreateList(b));
      case Type::large_list:
        return as(number, ipc::Type_LargeList, ipc::CreateLargeList(b));
      case Type::fixed_list:
        return as(number, ipc::Type_FixedSizeList, ipc::CreateFixedSizeList(b, field.width));
      case Type::structure:
        return as(number, ipc::Type_Struct_, ipc::CreateStruct_(b));
      case Type::map:
        return as(number, ipc::Type_Map, ipc::CreateMap(b, field.keys_sorted));
      case Type::sparse_union:
      case Type::dense_union: {
        const auto mode = field.type == Type::dense_union ? ipc::UnionMode_Dense : ipc::UnionMode_Sparse;
        const auto codes = b.CreateVector(std::vector<std::int32_t>(field.type_codes.begin(), field.type_codes.end()));
        return as(number, ipc::Type_Union, ipc::CreateUnion(b, mode, codes));
      }
    }
    return 0;
  }

  FlatBufferBuilder& builder_;
  Ids ids_;
};

class SchemaReader {
 public:
  Status fields(const flatbuffers::Vector<At<ipc::Field>>* from, std::vector<Field>& to, int depth) {
    if (from == nullptr) return {};
    for (const ipc::Field* field : *from) OFP_TRY(this->field(*field, to.emplace_back(), depth));
    return {};
  }

  static Status metadata(const flatbuffers::Vector<At<ipc::KeyValue>>* from, std::vector<KeyValue>& to) {
    if (from == nullptr) return {};
    if (from->size() > metadata_entries_max) {
      return fail(Error::too_large, "schema message: {} metadata entries, at most {} are allowed", from->size(),
                  metadata_entries_max);
    }
    for (const ipc::KeyValue* entry : *from) to.push_back({text(entry->key()), text(entry->value())});
    return {};
  }

 private:
  static std::string text(const flatbuffers::String* from) { return from != nullptr ? from->str() : std::string(); }

  Status field(const ipc::Field& from, Field& to, int depth) {
    if (depth > depth_max) {
      return fail(Error::too_large, "schema message: nested deeper than {} fields, the limit", depth_max);
    }
    // A flatbuffer may name one table many times, so its size does not bound the tree's.
    if (++fields_ > fields_max)
      return fail(Error::too_large, "schema message: more than {} fields, the limit", fields_max);
    to.name = text(from.name());
    to.nullable = from.nullable();
    OFP_TRY(metadata(from.custom_metadata(), to.metadata));
    bytes_ += to.name.size();
    for (const KeyValue& entry : to.metadata) bytes_ += entry.key.size() + entry.value.size();
    if (bytes_ > schema_bytes_max) {
      return fail(Error::too_large, "schema message: texts of {} bytes, at most {} are allowed", bytes_,
                  schema_bytes_max);
    }
    Field* values = &to;
    if (const ipc::DictionaryEncoding* encoding = from.dictionary()) {
      values = &to.dictionary.emplace_back();
      to.ordered = encoding->isOrdered();
      to.type = Type::int32;
      if (encoding->indexType() != nullptr) OFP_TRY(integer(*encoding->indexType(), to));
    }
    OFP_TRY(type(from, *values));
    return fields(from.children(), values->children, depth + 1);
  }

  static Status integer(const ipc::Int& from, Field& to) {
    const int bits = from.bitWidth();
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) {
      return fail(Error::protocol, "schema message: field '{}' is an integer of {} bits, expected 8, 16, 32 or 64",
                  to.name, bits);
    }
    const int power = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    to.type = static_cast<Type>(static_cast<int>(from.is_signed() ? Type::int8 : Type::uint8) + power);
    return {};
  }

  static Status unit(ipc::TimeUnit from, Field& to) {
    if (from < ipc::TimeUnit_SECOND || from > ipc::TimeUnit_NANOSECOND) {
      return fail(Error::protocol, "schema message: field '{}' has time unit {}, the last known is 3", to.name,
                  static_cast<int>(from));
    }
    to.unit = static_cast<Unit>(from);
    return {};
  }

  static Status decimal(const ipc::Decimal& from, Field& to) {
    switch (from.bitWidth()) {
      case 32:
        to.type = Type::decimal32;
        break;
      case 64:
        to.type = Type::decimal64;
        break;
      case 128:
        to.type = Type::decimal128;
        break;
      case 256:
        to.type = Type::decimal256;
        break;
      default:
        return fail(Error::protocol, "schema message: field '{}' is a decimal of {} bits, expected 32, 64, 128 or 256",
                    to.name, from.bitWidth());
    }
    to.precision = from.precision();
    to.scale = from.scale();
    return {};
  }

  static Status interval(const ipc::Interval& from, Field& to) {
    switch (from.unit()) {
      case ipc::IntervalUnit_YEAR_MONTH:
        to.type = Type::interval_months;
        return {};
      case ipc::IntervalUnit_DAY_TIME:
        to.type = Type::interval_day_time;
        return {};
      case ipc::IntervalUnit_MONTH_DAY_NANO:
        to.type = Type::interval_month_day_nano;
        return {};
    }
    return fail(Error::protocol, "schema message: field '{}' has interval unit {}, the last known is 2", to.name,
                static_cast<int>(from.unit()));
  }

  static Status floating(const ipc::FloatingPoint& from, Field& to) {
    switch (from.precision()) {
      case ipc::Precision_HALF:
        to.type = Type::float16;
        return {};
      case ipc::Precision_SINGLE:
        to.type = Type::float32;
        return {};
      case ipc::Precision_DOUBLE:
        to.type = Type::float64;
        return {};
    }
    return fail(Error::protocol, "schema message: field '{}' has precision {}, the last known is 2", to.name,
                static_cast<int>(from.precision()));
  }

  // Streams store such columns in other layouts, but a program may put messages that another library has written.
  static Status refuse(std::string_view type, const Field& to) {
    return fail(Error::unsupported, "schema message: field '{}' is a {}, which only Arrow can read", to.name, type);
  }

  // Without codes the children count from 0.
  static Status type_codes(const ipc::Union& from, std::size_t children, Field& to) {
    to.type = from.mode() == ipc::UnionMode_Dense ? Type::dense_union : Type::sparse_union;
    const std::size_t count = from.typeIds() != nullptr ? from.typeIds()->size() : children;
    if (count > type_codes_max) {
      return fail(Error::protocol, "schema message: field '{}' is a union of {} types, at most {} are allowed", to.name,
                  count, type_codes_max);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t code = from.typeIds() != nullptr ? from.typeIds()->Get(static_cast<flatbuffers::uoffset_t>(i))
                                                          : static_cast<std::int32_t>(i);
      if (code < 0 || code > INT8_MAX)
        return fail(Error::protocol, "schema message: field '{}' has the type code {}, 0 to {} are allowed", to.name,
                    code, INT8_MAX);
      to.type_codes.push_back(static_cast<std::int8_t>(code));
    }
    return {};
  }

  Status type(const ipc::Field& from, Field& to) {
    if (from.type() == nullptr) return fail(Error::protocol, "schema message: field '{}' has no type", to.name);
    const auto plain = [&](Type type) -> Status {
      to.type = type;
      return {};
    };
    switch (from.type_type()) {
      case ipc::Type_Null:
        return plain(Type::null);
      case ipc::Type_Int:
        return integer(*from.type_as_Int(), to);
      case ipc::Type_FloatingPoint:
        return floating(*from.type_as_FloatingPoint(), to);
      case ipc::Type_Binary:
        return plain(Type::binary);
      case ipc::Type_Utf8:
        return plain(Type::utf8);
      case ipc::Type_Bool:
        return plain(Type::boolean);
      case ipc::Type_Decimal:
        return decimal(*from.type_as_Decimal(), to);
      case ipc::Type_Date:
        return plain(from.type_as_Date()->unit() == ipc::DateUnit_DAY ? Type::date32 : Type::date64);
      case ipc::Type_Time:
        to.type = from.type_as_Time()->bitWidth() == 32 ? Type::time32 : Type::time64;
        return unit(from.type_as_Time()->unit(), to);
      case ipc::Type_Timestamp:
        to.type = Type::timestamp;
        to.timezone = text(from.type_as_Timestamp()->timezone());
        return unit(from.type_as_Timestamp()->unit(), to);
      case ipc::Type_Interval:
        return interval(*from.type_as_Interval(), to);
      case ipc::Type_List:
        return plain(Type::list);
      case ipc::Type_Struct_:
        return plain(Type::structure);
      case ipc::Type_FixedSizeBinary:
        to.width = from.type_as_FixedSizeBinary()->byteWidth();
        return plain(Type::fixed_binary);
      case ipc::Type_FixedSizeList:
        to.width = from.type_as_FixedSizeList()->listSize();
        return plain(Type::fixed_list);
      case ipc::Type_Map:
        to.keys_sorted = from.type_as_Map()->keysSorted();
        return plain(Type::map);
      case ipc::Type_Union:
        return type_codes(*from.type_as_Union(), from.children() != nullptr ? from.children()->size() : 0, to);
      case ipc::Type_Duration:
        to.type = Type::duration;
        return unit(from.type_as_Duration()->unit(), to);
      case ipc::Type_LargeBinary:
        return plain(Type::large_binary);
      case ipc::Type_LargeUtf8:
        return plain(Type::large_utf8);
      case ipc::Type_LargeList:
        return plain(Type::large_list);
      case ipc::Type_Utf8View:
        return refuse("string_view", to);
      case ipc::Type_BinaryView:
        return refuse("binary_view", to);
      case ipc::Type_ListView:
        return refuse("list_view", to);
      case ipc::Type_LargeListView:
        return refuse("large_list_view", to);
      case ipc::Type_RunEndEncoded:
        return refuse("run_end_encoded", to);
      default:
        break;
    }
    return fail(Error::unsupported, "schema message: field '{}' has the Arrow type number {}, which cannot be stored",
                to.name, static_cast<int>(from.type_type()));
  }

  std::size_t fields_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

Result<std::vector<std::byte>> schema_message(const Schema& schema) {
  OFP_TRY(check(schema));
  FlatBufferBuilder builder;
  const auto header = SchemaWriter(builder, schema).schema(schema);
  builder.Finish(ipc::CreateMessage(builder, ipc::MetadataVersion_V5, ipc::MessageHeader_Schema, header.Union()));

  const std::uint64_t metadata_bytes = align_up(builder.GetSize(), 8);
  std::vector<std::byte> message(message_prefix_bytes + metadata_bytes);
  store(message.data(), std::uint32_t{0xFFFFFFFF});
  store(message.data() + 4, static_cast<std::int32_t>(metadata_bytes));
  std::memcpy(message.data() + message_prefix_bytes, builder.GetBufferPointer(), builder.GetSize());
  return message;
}

Result<Schema> read_schema_metadata(Bytes metadata) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(metadata.data()), metadata.size());
  if (!ipc::VerifyMessageBuffer(verifier)) {
    return fail(Error::protocol, "schema message: its {} bytes are not a flatbuffer of a message", metadata.size());
  }
  const ipc::Message* message = ipc::GetMessage(metadata.data());
  const ipc::Schema* from = message->header_as_Schema();
  if (from == nullptr) {
    return fail(Error::protocol, "schema message: its header is of type {}, expected 1",
                static_cast<int>(message->header_type()));
  }
  if (from->endianness() != ipc::Endianness_Little) {
    return fail(Error::unsupported, "schema message: its data is big endian, only little endian is stored");
  }
  Schema schema;
  OFP_TRY(SchemaReader::metadata(from->custom_metadata(), schema.metadata));
  OFP_TRY(SchemaReader().fields(from->fields(), schema.fields, 1));
  OFP_TRY(check(schema));
  return schema;
}

}  // namespace offpath::frame
