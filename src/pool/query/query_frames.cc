// Frames as libarrow's batches, and batches as frames.
#include <cstring>

#include <arrow/io/memory.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include "pool/query/query_arrow.h"

namespace offpath::pool {

namespace {

constexpr std::uint64_t end_bytes = 8;
constexpr std::uint8_t end_of_stream[end_bytes] = {0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0};
constexpr std::int64_t nothing = 0;  // the address of a column without rows

// A frame's bytes; readers hold the frame.
class FrameBuffer final : public arrow::Buffer {
 public:
  explicit FrameBuffer(FramePtr frame)
      : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(frame->buffer.data()),
                      static_cast<std::int64_t>(frame->bytes)),
        frame_(std::move(frame)) {}

 private:
  FramePtr frame_;
};

arrow::ipc::IpcWriteOptions write_options(arrow::MemoryPool& memory) {
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.memory_pool = &memory;
  options.use_threads = false;
  return options;
}

Result<std::vector<arrow::ipc::IpcPayload>> payloads_of(const arrow::RecordBatch& batch,
                                                        const arrow::ipc::IpcWriteOptions& options) {
  const arrow::ipc::DictionaryFieldMapper mapper(*batch.schema());
  OFP_ARROW_ASSIGN(const auto dictionaries, arrow::ipc::CollectDictionaries(batch, mapper), "collecting dictionaries");
  std::vector<arrow::ipc::IpcPayload> payloads(dictionaries.size() + 2);
  auto next = payloads.begin();
  OFP_ARROW(arrow::ipc::GetSchemaPayload(*batch.schema(), options, mapper, &*next++), "writing the schema");
  for (const auto& [id, values] : dictionaries)
    OFP_ARROW(arrow::ipc::GetDictionaryPayload(id, values, options, &*next++), "writing a dictionary");
  OFP_ARROW(arrow::ipc::GetRecordBatchPayload(batch, options, &*next), "writing the batch");
  return payloads;
}

std::uint64_t stream_bytes(const std::vector<arrow::ipc::IpcPayload>& payloads,
                           const arrow::ipc::IpcWriteOptions& options) {
  std::uint64_t bytes = end_bytes;
  for (const auto& payload : payloads)
    bytes += static_cast<std::uint64_t>(arrow::ipc::GetPayloadSize(payload, options));
  return bytes;
}

Result<FramePtr> frame_of(std::uint64_t bytes, std::int64_t rows, service::BufferCache& cache, uid_t user) {
  auto made = std::make_shared<service::Frame>();
  OFP_ASSIGN(made->buffer, cache.take(bytes, user));
  made->bytes = bytes;
  made->rows = static_cast<std::uint64_t>(rows);
  made->arrow = true;
  return made;
}

std::shared_ptr<arrow::MutableBuffer> writable(const FramePtr& frame) {
  return std::make_shared<arrow::MutableBuffer>(reinterpret_cast<std::uint8_t*>(frame->buffer.data()),
                                                static_cast<std::int64_t>(frame->bytes));
}

}  // namespace

tl::unexpected<Failure> fail_arrow(const arrow::Status& status, std::string_view step) {
  Error code = Error::invalid;
  if (status.IsOutOfMemory()) code = Error::no_memory;
  if (status.IsNotImplemented()) code = Error::unsupported;
  if (status.IsTypeError()) code = Error::schema;
  if (status.IsCapacityError()) code = Error::too_large;
  if (status.IsCancelled()) code = Error::cancelled;
  return fail(code, "Arrow, {}: {}", step, status.message());
}

Result<std::pair<std::shared_ptr<arrow::Schema>, Batches>> import_frame(const QuerySource& source,
                                                                        arrow::MemoryPool& memory) {
  const auto where = [&] { return fmt::format("object ({}, {})", brief(source.row_key), brief(source.column_key)); };
  if (!source.frame->arrow)
    return fail(Error::schema, "{} is plain bytes, not Arrow; a query with arrow_only leaves it out", where());
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  options.memory_pool = &memory;
  options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;  // copies what is not
  OFP_ASSIGN(FramePtr frame, service::in_memory(source.frame));
  const auto stream = std::make_shared<arrow::io::BufferReader>(std::make_shared<FrameBuffer>(std::move(frame)));
  OFP_ARROW_ASSIGN(const auto reader, arrow::ipc::RecordBatchStreamReader::Open(stream, options), "reading " + where());
  Batches batches;
  for (;;) {
    std::shared_ptr<arrow::RecordBatch> batch;
    OFP_ARROW(reader->ReadNext(&batch), "reading " + where());
    if (batch == nullptr) break;
    OFP_ARROW(batch->ValidateFull(), "checking " + where());
    batches.push_back(std::move(batch));
  }
  return std::pair{reader->schema(), std::move(batches)};
}

// The messages' metadata depends on lengths alone, so it is written before the columns are filled, and gives their
// places.
Result<OpenFrame> open_frame(const std::shared_ptr<arrow::Schema>& schema, std::uint64_t rows,
                             service::BufferCache& cache, uid_t user, arrow::MemoryPool& memory) {
  arrow::ArrayVector columns;
  for (const auto& field : schema->fields()) {
    const auto bytes = static_cast<std::int64_t>(rows) * field->type()->byte_width();
    auto values = std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(&nothing), bytes);
    columns.push_back(arrow::MakeArray(
        arrow::ArrayData::Make(field->type(), static_cast<std::int64_t>(rows), {nullptr, std::move(values)}, 0)));
  }
  const auto options = write_options(memory);
  const auto batch = arrow::RecordBatch::Make(schema, static_cast<std::int64_t>(rows), std::move(columns));
  OFP_ASSIGN(std::vector<arrow::ipc::IpcPayload> payloads, payloads_of(*batch, options));
  OpenFrame made;
  OFP_ASSIGN(made.frame, frame_of(stream_bytes(payloads, options), batch->num_rows(), cache, user));
  arrow::io::FixedSizeBufferWriter stream(writable(made.frame));
  arrow::ipc::IpcPayload& last = payloads.back();
  std::vector<std::shared_ptr<arrow::Buffer>> bodies;
  bodies.swap(last.body_buffers);
  for (const auto& payload : payloads) {
    std::int32_t metadata_bytes = 0;
    OFP_ARROW(arrow::ipc::WriteIpcPayload(payload, options, &stream, &metadata_bytes), "writing the answer");
  }
  OFP_ARROW_ASSIGN(const std::int64_t body, stream.Tell(), "writing the answer");
  std::byte* at = made.frame->buffer.data() + body;
  for (const auto& each : bodies) {  // of each column: validity, which is absent, and values
    const auto bytes = each != nullptr ? static_cast<std::uint64_t>(each->size()) : 0;
    const auto padded = align_up(bytes, 8);
    std::memset(at + bytes, 0, padded - bytes);
    const auto index = static_cast<std::size_t>(&each - bodies.data());
    if (index % 2 == 1) made.columns.push_back(at);
    at += padded;
  }
  OFP_ASSERT(made.columns.size() == static_cast<std::size_t>(schema->num_fields()));
  OFP_ASSERT(at + end_bytes == made.frame->buffer.data() + made.frame->bytes);
  std::memcpy(at, end_of_stream, end_bytes);
  return made;
}

Result<FramePtr> write_frame(const arrow::RecordBatch& batch, service::BufferCache& cache, uid_t user,
                             arrow::MemoryPool& memory) {
  const auto options = write_options(memory);
  OFP_ASSIGN(const std::vector<arrow::ipc::IpcPayload> payloads, payloads_of(batch, options));
  OFP_ASSIGN(FramePtr made, frame_of(stream_bytes(payloads, options), batch.num_rows(), cache, user));
  arrow::io::FixedSizeBufferWriter stream(writable(made));
  for (const auto& payload : payloads) {
    std::int32_t metadata_bytes = 0;
    OFP_ARROW(arrow::ipc::WriteIpcPayload(payload, options, &stream, &metadata_bytes), "writing the answer");
  }
  OFP_ARROW(stream.Write(end_of_stream, end_bytes), "writing the answer");
  return made;
}

Status same_schema(const FramePtr& one, const FramePtr& other) {
  arrow::ipc::DictionaryMemo memo, other_memo;
  arrow::io::BufferReader from(std::make_shared<FrameBuffer>(one)), from_other(std::make_shared<FrameBuffer>(other));
  OFP_ARROW_ASSIGN(const auto schema, arrow::ipc::ReadSchema(&from, &memo), "reading a schema");
  OFP_ARROW_ASSIGN(const auto found, arrow::ipc::ReadSchema(&from_other, &other_memo), "reading a schema");
  bool same = schema->num_fields() == found->num_fields();
  for (int i = 0; same && i < schema->num_fields(); ++i)
    same = schema->field(i)->name() == found->field(i)->name() &&
           schema->field(i)->type()->Equals(found->field(i)->type());
  if (!same) return fail(Error::schema, "one has columns {}, the other one {}", schema->ToString(), found->ToString());
  return {};
}

}  // namespace offpath::pool
