#include "frame/template.h"

#include <bit>

#include "arrow_message_generated.h"

namespace offpath::frame {

namespace {

namespace ipc = arrow_ipc;

// Where a table keeps a scalar field, from the beginning of the buffer.
std::uint32_t place_of(const flatbuffers::Table& table, flatbuffers::voffset_t field, const std::uint8_t* begin) {
  const std::uint8_t* at = table.GetAddressOf(field);
  OFP_ASSERT(at != nullptr);
  return static_cast<std::uint32_t>(at - begin);
}

const flatbuffers::Table& as_table(const void* object) { return *static_cast<const flatbuffers::Table*>(object); }

// Arrow's CompressionType; 1 is ZSTD.
constexpr std::int8_t codec_of(wire::Compression compression) noexcept {
  return compression == wire::Compression::lz4 ? 0 : 1;
}
constexpr std::int8_t by_buffer = 0;  // Arrow's only BodyCompressionMethod

Prototype make_prototype(const Layout& layout, std::uint32_t part, wire::Compression compression) {
  const PartLayout& range = layout.parts[part];
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(true);  // every number has its place, even while it is 0
  const std::vector<ipc::Buffer> buffers(range.buffer_end - range.buffer_begin);
  const std::vector<ipc::FieldNode> nodes(range.node_end - range.node_begin);
  const auto buffers_at = builder.CreateVectorOfStructs(buffers);
  const auto nodes_at = builder.CreateVectorOfStructs(nodes);
  flatbuffers::Offset<ipc::BodyCompression> compression_at;
  if (compression != wire::Compression::none)
    compression_at = ipc::CreateBodyCompression(builder, codec_of(compression), by_buffer);
  const auto batch_at = ipc::CreateRecordBatch(builder, 0, nodes_at, buffers_at, compression_at);
  auto kind = ipc::MessageHeader_RecordBatch;
  flatbuffers::Offset<void> header_at = batch_at.Union();
  if (part > 0) {
    kind = ipc::MessageHeader_DictionaryBatch;
    header_at = ipc::CreateDictionaryBatch(builder, part - 1, batch_at).Union();
  }
  builder.Finish(ipc::CreateMessage(builder, ipc::MetadataVersion_V5, kind, header_at, 0));

  const std::uint8_t* begin = builder.GetBufferPointer();
  const ipc::Message* message = ipc::GetMessage(begin);
  const ipc::RecordBatch* batch =
      part > 0 ? message->header_as_DictionaryBatch()->data() : message->header_as_RecordBatch();
  Prototype prototype;
  prototype.body_bytes_at = place_of(as_table(message), ipc::Message::VT_BODYLENGTH, begin);
  prototype.rows_at = place_of(as_table(batch), ipc::RecordBatch::VT_LENGTH, begin);
  prototype.nodes_at = static_cast<std::uint32_t>(batch->nodes()->Data() - begin);
  prototype.buffers_at = static_cast<std::uint32_t>(batch->buffers()->Data() - begin);
  prototype.metadata.resize(align_up(builder.GetSize(), 8));
  std::memcpy(prototype.metadata.data(), begin, builder.GetSize());
  return prototype;
}

}  // namespace

Result<std::shared_ptr<const Template>> make_template(Schema schema, std::uint32_t alignment,
                                                      wire::Compression compression) {
  if (!std::has_single_bit(alignment) || alignment < ipc_alignment || alignment > page_alignment) {
    return fail(Error::invalid, "the alignment of buffers is {}, a power of two from {} to {} is allowed", alignment,
                ipc_alignment, page_alignment);
  }
  auto form = std::make_shared<Template>();
  OFP_ASSIGN(form->layout, make_layout(schema));
  OFP_ASSIGN(form->schema_message, schema_message(schema));
  form->schema = std::move(schema);
  form->alignment = alignment;
  form->compression = compression;
  for (std::uint32_t part = 0; part < form->layout.parts.size(); ++part) {
    form->prototypes.push_back(make_prototype(form->layout, part, compression));
  }
  return form;
}

}  // namespace offpath::frame
