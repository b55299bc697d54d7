#include "mover/agent_serialise_arrow.h"

#include <utility>

namespace offpath::mover {

namespace {

using frame::Type;

std::shared_ptr<arrow::KeyValueMetadata> metadata_of(const std::vector<frame::KeyValue>& entries) {
  if (entries.empty()) return nullptr;
  auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  for (const frame::KeyValue& entry : entries) metadata->Append(entry.key, entry.value);
  return metadata;
}

arrow::TimeUnit::type unit_of(frame::Unit unit) {
  static_assert(static_cast<int>(arrow::TimeUnit::NANO) == static_cast<int>(frame::Unit::nanosecond));
  return static_cast<arrow::TimeUnit::type>(unit);
}

std::shared_ptr<arrow::Field> field_of(const frame::Field& field);

std::shared_ptr<arrow::DataType> nested_type_of(const frame::Field& field) {
  arrow::FieldVector children;
  for (const frame::Field& child : field.children) children.push_back(field_of(child));
  switch (field.type) {
    case Type::list:
      return arrow::list(children.at(0));
    case Type::large_list:
      return arrow::large_list(children.at(0));
    case Type::fixed_list:
      return arrow::fixed_size_list(children.at(0), field.width);
    case Type::structure:
      return arrow::struct_(children);
    case Type::map:
      return std::make_shared<arrow::MapType>(children.at(0), field.keys_sorted);
    case Type::sparse_union:
      return arrow::sparse_union(children, field.type_codes);
    case Type::dense_union:
      return arrow::dense_union(children, field.type_codes);
    default:
      return nullptr;
  }
}

// The stored type, without a dictionary: for a dictionary column, the type of its indices.
std::shared_ptr<arrow::DataType> stored_type_of(const frame::Field& field) {
  switch (field.type) {
    case Type::null:
      return arrow::null();
    case Type::boolean:
      return arrow::boolean();
    case Type::int8:
      return arrow::int8();
    case Type::int16:
      return arrow::int16();
    case Type::int32:
      return arrow::int32();
    case Type::int64:
      return arrow::int64();
    case Type::uint8:
      return arrow::uint8();
    case Type::uint16:
      return arrow::uint16();
    case Type::uint32:
      return arrow::uint32();
    case Type::uint64:
      return arrow::uint64();
    case Type::float16:
      return arrow::float16();
    case Type::float32:
      return arrow::float32();
    case Type::float64:
      return arrow::float64();
    case Type::decimal32:
      return arrow::decimal32(field.precision, field.scale);
    case Type::decimal64:
      return arrow::decimal64(field.precision, field.scale);
    case Type::decimal128:
      return arrow::decimal128(field.precision, field.scale);
    case Type::decimal256:
      return arrow::decimal256(field.precision, field.scale);
    case Type::date32:
      return arrow::date32();
    case Type::date64:
      return arrow::date64();
    case Type::time32:
      return arrow::time32(unit_of(field.unit));
    case Type::time64:
      return arrow::time64(unit_of(field.unit));
    case Type::timestamp:
      return arrow::timestamp(unit_of(field.unit), field.timezone);
    case Type::duration:
      return arrow::duration(unit_of(field.unit));
    case Type::interval_months:
      return arrow::month_interval();
    case Type::interval_day_time:
      return arrow::day_time_interval();
    case Type::interval_month_day_nano:
      return arrow::month_day_nano_interval();
    case Type::fixed_binary:
      return arrow::fixed_size_binary(field.width);
    case Type::binary:
      return arrow::binary();
    case Type::utf8:
      return arrow::utf8();
    case Type::large_binary:
      return arrow::large_binary();
    case Type::large_utf8:
      return arrow::large_utf8();
    default:
      return nested_type_of(field);
  }
}

std::shared_ptr<arrow::DataType> type_of(const frame::Field& field) {
  std::shared_ptr<arrow::DataType> stored = stored_type_of(field);
  if (field.dictionary.empty()) return stored;
  return arrow::dictionary(stored, type_of(field.dictionary[0]), field.ordered);
}

std::shared_ptr<arrow::Field> field_of(const frame::Field& field) {
  return arrow::field(field.name, type_of(field), field.nullable, metadata_of(field.metadata));
}

// A buffer of the frame that keeps the whole frame alive.
class PlacedBuffer final : public arrow::Buffer {
 public:
  PlacedBuffer(std::shared_ptr<const service::Buffer> owner, const frame::BufferPlace& place)
      : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(owner->data()) + place.offset,
                      static_cast<std::int64_t>(place.bytes)),
        owner_(std::move(owner)) {}

 private:
  std::shared_ptr<const service::Buffer> owner_;
};

struct Placed {
  const frame::Layout& layout;
  const frame::Plan& plan;
  const std::shared_ptr<const service::Buffer>& owner;

  std::shared_ptr<arrow::ArrayData> array(std::uint32_t index, const std::shared_ptr<arrow::DataType>& type) const {
    const frame::NodeLayout& node = layout.nodes[index];
    const frame::NodeShape& shape = plan.nodes[index];
    auto data = std::make_shared<arrow::ArrayData>(type, shape.length, shape.null_count);
    // The place of the validity is there in memory even for types that have none.
    if (node.buffers == 0 || frame::is_union(node.type)) data->buffers.push_back(nullptr);
    for (std::uint32_t i = node.buffer; i < node.buffer + node.buffers; ++i) {
      const frame::BufferPlace& place = plan.buffers[i];
      const bool absent = layout.buffers[i].kind == frame::BufferKind::validity && place.bytes == 0;
      data->buffers.push_back(absent ? nullptr : std::make_shared<PlacedBuffer>(owner, place));
    }
    if (node.dictionary != 0) {
      const auto& dictionary = static_cast<const arrow::DictionaryType&>(*type);
      data->dictionary = array(layout.parts[node.dictionary].node_begin, dictionary.value_type());
      return data;
    }
    std::uint32_t child = index + 1;
    for (std::uint32_t i = 0; i < node.children; ++i) {
      data->child_data.push_back(array(child, type->field(static_cast<int>(i))->type()));
      child = layout.nodes[child].end;
    }
    return data;
  }
};

}  // namespace

tl::unexpected<Failure> fail_arrow(const arrow::Status& status, std::string_view step) {
  Error code = Error::invalid;
  if (status.IsOutOfMemory()) code = Error::no_memory;
  if (status.IsNotImplemented()) code = Error::unsupported;
  if (status.IsIOError()) code = Error::io;
  if (status.IsCapacityError()) code = Error::too_large;
  return fail(code, "Arrow, {}: {}", step, status.message());
}

Result<std::shared_ptr<arrow::Schema>> arrow_schema(const frame::Schema& schema) {
  arrow::FieldVector fields;
  for (const frame::Field& field : schema.fields) {
    fields.push_back(field_of(field));
    if (fields.back()->type() == nullptr) {
      return fail(Error::unsupported, "column '{}' has the type {}, for which Arrow has no type", field.name,
                  frame::describe(field));
    }
  }
  return arrow::schema(std::move(fields), metadata_of(schema.metadata));
}

arrow::ArrayVector placed_arrays(const frame::Layout& layout, const frame::Plan& plan,
                                 const std::shared_ptr<const service::Buffer>& placed, const arrow::Schema& schema) {
  Placed placed_frame{layout, plan, placed};
  arrow::ArrayVector arrays;
  for (std::size_t i = 0; i < layout.columns.size(); ++i) {
    arrays.push_back(
        arrow::MakeArray(placed_frame.array(layout.columns[i], schema.field(static_cast<int>(i))->type())));
  }
  return arrays;
}

}  // namespace offpath::mover
