#include "mover/agent_serialise.h"

#include <utility>
#include <vector>

#include <arrow/array/concatenate.h>
#include <arrow/c/bridge.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/writer.h>
#include <arrow/visit_type_inline.h>

#include "frame/c_arrays.h"
#include "mover/agent_serialise_arrow.h"
#include "mover/arrow_memory.h"

#define OFP_ARROW(expression, step)                                             \
  do {                                                                          \
    if (arrow::Status ofp_status = (expression); !ofp_status.ok()) [[unlikely]] \
      return fail_arrow(ofp_status, step);                                      \
  } while (false)

namespace offpath::mover {

namespace {

using wire::Destination;

// ---- arrays, by builders: each value is copied once more, as in a program that receives plain bytes

// Eight times the size of a frame and 16 MiB: builders grow by doubling, and keep the old bytes beside the new ones
// meanwhile.
ArrowMemory memory_for(const frame::Plan& plan, BufferCache& cache, uid_t user, std::uint64_t user_bytes_max) {
  return {cache, user, user_bytes_max, "memory.bytes_max, memory.user_bytes_max", 8 * plan.frame_bytes + (16ull << 20)};
}

struct NumericCopy {
  const arrow::Array& from;
  arrow::MemoryPool& memory;
  std::shared_ptr<arrow::Array> made;

  template <class T>
  arrow::Status Visit(const T& type) {
    if constexpr (arrow::is_number_type<T>::value) {
      arrow::NumericBuilder<T> builder(from.type(), &memory);
      ARROW_RETURN_NOT_OK(
          builder.AppendValues(static_cast<const arrow::NumericArray<T>&>(from).raw_values(), from.length()));
      return builder.Finish(&made);
    } else {
      return arrow::Status::NotImplemented(type.ToString());
    }
  }
};

bool has_dictionary(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY) return true;
  for (const auto& field : type.fields()) {
    if (has_dictionary(*field->type())) return true;
  }
  return false;
}

Result<std::shared_ptr<arrow::Array>> build_array(const arrow::Array& from, arrow::MemoryPool& memory) {
  if (arrow::is_integer(from.type_id()) || arrow::is_floating(from.type_id())) {
    if (from.null_count() == 0) {
      NumericCopy copy{from, memory, nullptr};
      OFP_ARROW(arrow::VisitTypeInline(*from.type(), &copy), "building an array");
      return std::move(copy.made);
    }
  }
  // The same for lists of such numbers; a builder of lists would append them one list at a time.
  if (from.type_id() == arrow::Type::FIXED_SIZE_LIST && from.null_count() == 0) {
    OFP_ASSIGN(std::shared_ptr<arrow::Array> values,
               build_array(*static_cast<const arrow::FixedSizeListArray&>(from).values(), memory));
    return std::make_shared<arrow::FixedSizeListArray>(from.type(), from.length(), std::move(values));
  }
  // A builder of dictionary arrays would make a dictionary that differs from the one that was sent.
  if (has_dictionary(*from.type())) {
    auto copied = arrow::Concatenate({arrow::MakeArray(from.data())}, &memory);
    if (!copied.ok()) return fail_arrow(copied.status(), "copying a dictionary array");
    return std::move(copied).ValueUnsafe();
  }
  std::unique_ptr<arrow::ArrayBuilder> builder;
  OFP_ARROW(arrow::MakeBuilder(&memory, from.type(), &builder), "making a builder");
  OFP_ARROW(builder->Reserve(from.length()), "building an array");
  OFP_ARROW(builder->AppendArraySlice(arrow::ArraySpan(*from.data()), 0, from.length()), "building an array");
  std::shared_ptr<arrow::Array> made;
  OFP_ARROW(builder->Finish(&made), "building an array");
  return made;
}

// ---- the stream: every message is prepared first, so that its size is known and its bytes are written once

constexpr std::uint64_t end_bytes = 8;

Result<std::vector<arrow::ipc::IpcPayload>> payloads_of(const arrow::RecordBatch& batch,
                                                        const arrow::ipc::IpcWriteOptions& options) {
  const arrow::ipc::DictionaryFieldMapper mapper(*batch.schema());
  auto dictionaries = arrow::ipc::CollectDictionaries(batch, mapper);
  if (!dictionaries.ok()) return fail_arrow(dictionaries.status(), "collecting dictionaries");
  std::vector<arrow::ipc::IpcPayload> payloads(dictionaries->size() + 2);
  auto next = payloads.begin();
  OFP_ARROW(arrow::ipc::GetSchemaPayload(*batch.schema(), options, mapper, &*next++), "writing the schema");
  for (const auto& [id, values] : *dictionaries) {
    OFP_ARROW(arrow::ipc::GetDictionaryPayload(id, values, options, &*next++), "writing a dictionary");
  }
  OFP_ARROW(arrow::ipc::GetRecordBatchPayload(batch, options, &*next), "writing the batch");
  return payloads;
}

Result<FramePtr> write_stream(const arrow::RecordBatch& batch, BufferCache& cache, uid_t user,
                              arrow::MemoryPool& memory) {
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.memory_pool = &memory;
  OFP_ASSIGN(const std::vector<arrow::ipc::IpcPayload> payloads, payloads_of(batch, options));
  std::uint64_t bytes = end_bytes;
  for (const auto& payload : payloads)
    bytes += static_cast<std::uint64_t>(arrow::ipc::GetPayloadSize(payload, options));
  auto made = std::make_shared<Frame>();
  OFP_ASSIGN(made->buffer, cache.take(bytes, user));
  arrow::io::FixedSizeBufferWriter stream(std::make_shared<arrow::MutableBuffer>(
      reinterpret_cast<std::uint8_t*>(made->buffer.data()), static_cast<std::int64_t>(bytes)));
  for (const auto& payload : payloads) {
    std::int32_t metadata_bytes = 0;
    OFP_ARROW(arrow::ipc::WriteIpcPayload(payload, options, &stream, &metadata_bytes), "writing the stream");
  }
  constexpr std::uint8_t end[end_bytes] = {0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0};
  OFP_ARROW(stream.Write(end, sizeof end), "writing the stream");
  made->bytes = bytes;
  made->rows = static_cast<std::uint64_t>(batch.num_rows());
  made->arrow = true;
  return made;
}

// ---- one class for each row of the table in agent_serialise.h

class ByBuilders final : public AgentSerialiser {
 public:
  ByBuilders(std::shared_ptr<const frame::Template> form, std::uint64_t user_bytes_max)
      : form_(std::move(form)), user_bytes_max_(user_bytes_max) {}

  Result<FramePtr> serialise(const frame::Plan& plan, std::shared_ptr<const Buffer> placed, BufferCache& cache,
                             uid_t user) const override {
    ArrowMemory memory = memory_for(plan, cache, user, user_bytes_max_);
    // Builders follow every offset, and these come from another process: they are checked first.
    if (!form_->layout.fixed) OFP_TRY(frame::check_contents(*form_, plan, placed->bytes()));
    OFP_ASSIGN(const std::shared_ptr<arrow::Schema> schema, arrow_schema(form_->schema));
    arrow::ArrayVector arrays = placed_arrays(form_->layout, plan, placed, *schema);
    for (std::shared_ptr<arrow::Array>& array : arrays) {
      OFP_ASSIGN(array, build_array(*array, memory));
    }
    placed.reset();  // releases its memory as early as possible
    return write_stream(*arrow::RecordBatch::Make(schema, plan.rows, std::move(arrays)), cache, user, memory);
  }

 private:
  std::shared_ptr<const frame::Template> form_;
  std::uint64_t user_bytes_max_;
};

class FromArrays final : public AgentSerialiser {
 public:
  // Without `schema` it is made for every batch.
  FromArrays(std::shared_ptr<const frame::Template> form, std::shared_ptr<arrow::Schema> schema,
             std::uint64_t user_bytes_max)
      : form_(std::move(form)), schema_(std::move(schema)), user_bytes_max_(user_bytes_max) {}

  Result<FramePtr> serialise(const frame::Plan& plan, std::shared_ptr<const Buffer> placed, BufferCache& cache,
                             uid_t user) const override {
    ArrowMemory memory = memory_for(plan, cache, user, user_bytes_max_);
    std::shared_ptr<arrow::Schema> schema = schema_;
    if (schema == nullptr) {
      OFP_ASSIGN(schema, arrow_schema(form_->schema));
    }
    arrow::ArrayVector arrays = placed_arrays(form_->layout, plan, placed, *schema);
    return write_stream(*arrow::RecordBatch::Make(schema, plan.rows, std::move(arrays)), cache, user, memory);
  }

 private:
  std::shared_ptr<const frame::Template> form_;
  std::shared_ptr<arrow::Schema> schema_;
  std::uint64_t user_bytes_max_;
};

class FromStructs final : public AgentSerialiser {
 public:
  FromStructs(std::shared_ptr<const frame::Template> form, std::uint64_t user_bytes_max)
      : form_(std::move(form)), user_bytes_max_(user_bytes_max) {}

  Result<FramePtr> serialise(const frame::Plan& plan, std::shared_ptr<const Buffer> placed, BufferCache& cache,
                             uid_t user) const override {
    ArrowMemory memory = memory_for(plan, cache, user, user_bytes_max_);
    ArrowSchema schema{};
    ArrowArray array{};
    frame::export_schema(form_->schema, &schema);
    frame::export_array(form_->layout, plan.rows, plan.nodes, plan.buffers, placed->data(), placed, &array);
    auto batch = arrow::ImportRecordBatch(&array, &schema);  // takes both, even if it fails
    if (!batch.ok()) return fail_arrow(batch.status(), "importing C structs");
    return write_stream(**batch, cache, user, memory);
  }

 private:
  std::shared_ptr<const frame::Template> form_;
  std::uint64_t user_bytes_max_;
};

}  // namespace

Result<std::shared_ptr<const AgentSerialiser>> make_agent_serialiser(Destination destination,
                                                                     std::shared_ptr<const frame::Template> form,
                                                                     std::uint64_t user_bytes_max) {
  OFP_ASSIGN(std::shared_ptr<arrow::Schema> schema, arrow_schema(form->schema));  // types without an Arrow type fail
                                                                                  // here, once
  switch (destination) {
    case Destination::agent_serialise:
      return std::make_shared<const ByBuilders>(std::move(form), user_bytes_max);
    case Destination::arrays:
      return std::make_shared<const FromArrays>(std::move(form), nullptr, user_bytes_max);
    case Destination::record_batch:
      return std::make_shared<const FromArrays>(std::move(form), std::move(schema), user_bytes_max);
    case Destination::c_abi:
      return std::make_shared<const FromStructs>(std::move(form), user_bytes_max);
    default:
      return fail(Error::invalid,
                  "destination {} needs no Arrow library; agent-serialise, arrays, record-batch and "
                  "c-abi do",
                  wire::destination_name(destination));
  }
}

}  // namespace offpath::mover
