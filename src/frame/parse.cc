#include "frame/parse.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "arrow_message_generated.h"

namespace offpath::frame {

namespace {

namespace ipc = arrow_ipc;

constexpr std::uint32_t continuation = 0xFFFFFFFF;

// Where a table and its vtable end. The verifier has been over both.
const std::uint8_t* end_of(const void* object) {
  const auto& table = *static_cast<const flatbuffers::Table*>(object);
  const std::uint8_t* vtable = table.GetVTable();
  const auto vtable_bytes = flatbuffers::ReadScalar<flatbuffers::voffset_t>(vtable);
  const auto table_bytes = flatbuffers::ReadScalar<flatbuffers::voffset_t>(vtable + sizeof vtable_bytes);
  return std::max(vtable + vtable_bytes, static_cast<const std::uint8_t*>(object) + table_bytes);
}

// The record batch in a message that is a batch or a dictionary, else null.
const ipc::RecordBatch* batch_of(const ipc::Message& message) {
  if (const ipc::RecordBatch* batch = message.header_as_RecordBatch()) return batch;
  const ipc::DictionaryBatch* dictionary = message.header_as_DictionaryBatch();
  return dictionary != nullptr ? dictionary->data() : nullptr;
}

// How much of the metadata is flatbuffer and not padding.
std::uint64_t used_bytes(const ipc::Message& message, const ipc::RecordBatch& batch, Bytes metadata) {
  if (message.custom_metadata() != nullptr) return metadata.size();
  const std::uint8_t* end = std::max(end_of(&message), end_of(&batch));
  if (const ipc::DictionaryBatch* dictionary = message.header_as_DictionaryBatch())
    end = std::max(end, end_of(dictionary));
  if (batch.nodes() != nullptr)
    end = std::max(end, batch.nodes()->Data() + batch.nodes()->size() * sizeof(ipc::FieldNode));
  if (batch.buffers() != nullptr)
    end = std::max(end, batch.buffers()->Data() + batch.buffers()->size() * sizeof(ipc::Buffer));
  if (batch.compression() != nullptr) end = std::max(end, end_of(batch.compression()));
  const auto used = static_cast<std::uint64_t>(end - reinterpret_cast<const std::uint8_t*>(metadata.data()));
  return std::min<std::uint64_t>(align_up(used, 8), metadata.size());
}

// The verifier sees to a vector's length field, which takes 4 bytes, and not to the 8 that its elements may need.
template <class Element>
bool is_aligned(const flatbuffers::Vector<const Element*>* vector) {
  return vector == nullptr || vector->size() == 0 ||
         reinterpret_cast<std::uintptr_t>(vector->Data()) % alignof(Element) == 0;
}

Status check_batch(const ipc::RecordBatch& batch, MessageRange& range) {
  if (!is_aligned(batch.nodes()) || !is_aligned(batch.buffers())) {
    return fail(Error::protocol, "the message at byte {} has nodes or buffers at no multiple of 8 bytes", range.begin);
  }
  range.compressed = batch.compression() != nullptr;
  if (batch.variadicBufferCounts() != nullptr && batch.variadicBufferCounts()->size() > 0) {
    return fail(Error::unsupported, "the message at byte {} has columns of views, which are not read", range.begin);
  }
  if (batch.length() < 0) {
    return fail(Error::protocol, "the message at byte {} has {} rows, at least 0 is allowed", range.begin,
                batch.length());
  }
  range.rows = batch.length();
  if (batch.nodes() != nullptr) {
    for (const ipc::FieldNode* node : *batch.nodes()) {
      if (node->length() < 0 || node->null_count() < 0 || node->null_count() > node->length()) {
        return fail(Error::protocol, "the message at byte {} has a node with {} nulls in {} values", range.begin,
                    node->null_count(), node->length());
      }
    }
  }
  if (batch.buffers() == nullptr) return {};
  for (const ipc::Buffer* buffer : *batch.buffers()) {
    const auto offset = static_cast<std::uint64_t>(buffer->offset());
    const auto bytes = static_cast<std::uint64_t>(buffer->length());
    std::uint64_t end = 0;
    if (offset % 8 != 0 || !checked_add(offset, bytes, end) || end > range.body_bytes) {
      return fail(Error::protocol,
                  "the message at byte {} has a buffer of {} bytes at {} of a body of {}, where it does not fit",
                  range.begin, buffer->length(), buffer->offset(), range.body_bytes);
    }
  }
  return {};
}

Status check_header(const ipc::Message& message, Bytes metadata, MessageRange& range) {
  range.metadata_bytes = metadata.size();
  if (message.header_type() == ipc::MessageHeader_Schema && message.header() != nullptr) {
    range.kind = MessageKind::schema;
    if (range.body_bytes == 0) return {};
    return fail(Error::protocol, "the schema message at byte {} has a body of {} bytes, expected none", range.begin,
                range.body_bytes);
  }
  const ipc::RecordBatch* batch = batch_of(message);
  if (batch == nullptr) {
    return fail(Error::unsupported, "the message at byte {} is of type {}, 1 to 3 are read", range.begin,
                static_cast<int>(message.header_type()));
  }
  range.kind = MessageKind::batch;
  if (const ipc::DictionaryBatch* dictionary = message.header_as_DictionaryBatch()) {
    range.kind = MessageKind::dictionary;
    range.dictionary = dictionary->id();
    if (dictionary->isDelta()) {
      return fail(Error::unsupported, "the dictionary message at byte {} is a delta, only whole ones are read",
                  range.begin);
    }
  }
  OFP_TRY(check_batch(*batch, range));
  range.metadata_bytes = used_bytes(message, *batch, metadata);
  return {};
}

Bytes metadata_of(Bytes frame, const MessageRange& message) {
  return frame.subspan(message.begin + message_prefix_bytes, message.body - message.begin - message_prefix_bytes);
}

// Where the message at `at` has its metadata, which are a message's, and its body. Nothing: there is the end marker.
Result<std::optional<MessageRange>> find_message(Bytes frame, std::uint64_t at) {
  MessageRange range{.begin = at};
  const auto mark = load<std::uint32_t>(frame.data() + at);
  if (mark != continuation) {
    return fail(Error::protocol, "the message at byte {} begins with {:#x}, expected {:#x}", at, mark, continuation);
  }
  const auto metadata_bytes = load<std::int32_t>(frame.data() + at + 4);
  if (metadata_bytes == 0) return std::nullopt;
  const std::uint64_t left = frame.size() - at - message_prefix_bytes;
  if (metadata_bytes < 0 || metadata_bytes % 8 != 0 || static_cast<std::uint64_t>(metadata_bytes) > left) {
    return fail(Error::protocol, "the message at byte {} has {} bytes of metadata, a multiple of 8 up to {} is allowed",
                at, metadata_bytes, left);
  }
  const Bytes metadata = frame.subspan(at + message_prefix_bytes, static_cast<std::size_t>(metadata_bytes));
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(metadata.data()), metadata.size());
  if (!ipc::VerifyMessageBuffer(verifier)) {
    return fail(Error::protocol, "the message at byte {}: its {} bytes of metadata are not a flatbuffer of a message",
                at, metadata.size());
  }
  const ipc::Message& message = *ipc::GetMessage(metadata.data());
  if (message.version() != ipc::MetadataVersion_V5 && message.version() != ipc::MetadataVersion_V4) {
    return fail(Error::version, "the message at byte {} has metadata version {}, 3 and 4 are read", at,
                static_cast<int>(message.version()));
  }
  range.body = at + message_prefix_bytes + metadata.size();
  const std::uint64_t body_left = frame.size() - range.body;
  if (message.bodyLength() < 0 || message.bodyLength() % 8 != 0 ||
      static_cast<std::uint64_t>(message.bodyLength()) > body_left) {
    return fail(Error::protocol, "the message at byte {} has a body of {} bytes, a multiple of 8 up to {} is allowed",
                at, message.bodyLength(), body_left);
  }
  range.body_bytes = static_cast<std::uint64_t>(message.bodyLength());
  return range;
}

// The bytes that a buffer needs at least.
Status check_size(const Layout& layout, std::uint32_t index, const NodeShape& shape, std::uint64_t bytes) {
  const BufferLayout& buffer = layout.buffers[index];
  const auto length = static_cast<std::uint64_t>(shape.length);
  std::uint64_t needed = 0;
  bool fits = true;
  switch (buffer.kind) {
    case BufferKind::validity:
      needed = shape.null_count > 0 ? (length / 8) + (length % 8 != 0) : 0;
      break;
    case BufferKind::bits:
      needed = (length / 8) + (length % 8 != 0);
      break;
    case BufferKind::values:
      fits = checked_mul(length, layout.nodes[buffer.node].value_bytes, needed);
      break;
    case BufferKind::offsets32:
      fits = length == 0 || checked_mul(length + 1, 4, needed);
      break;
    case BufferKind::offsets64:
      fits = length == 0 || checked_mul(length + 1, 8, needed);
      break;
    case BufferKind::data:
      break;
    case BufferKind::type_ids:
      needed = length;
      break;
    case BufferKind::places:
      fits = checked_mul(length, 4, needed);
      break;
  }
  if (fits && bytes >= needed) return {};
  return fail(Error::protocol, "a buffer of '{}' has {} bytes, its {} values need {}", path_of(layout, buffer.node),
              bytes, length, needed);
}

// Checks that the last offset lies within the data or the child. The other offsets are not checked.
template <class Offset>
Status check_last_offset(const Layout& layout, Bytes frame, std::uint32_t node, const NodeShape* nodes,
                         const BufferPlace* buffers) {
  const NodeLayout& of = layout.nodes[node];
  if (nodes[node].length == 0) return {};
  const auto count = static_cast<std::uint64_t>(nodes[node].length);
  const auto last = load<Offset>(frame.data() + buffers[of.buffer + 1].offset + count * sizeof(Offset));
  const auto limit =
      of.children > 0 ? static_cast<std::uint64_t>(nodes[node + 1].length) : buffers[of.buffer + 2].bytes;
  if (last >= 0 && static_cast<std::uint64_t>(last) <= limit) return {};
  return fail(Error::protocol, "the last offset of '{}' is {}, at most {} is allowed", path_of(layout, node), last,
              limit);
}

Status check_node(const Layout& layout, Bytes frame, std::uint32_t index, std::int64_t rows, const NodeShape* nodes,
                  const BufferPlace* buffers) {
  const NodeLayout& node = layout.nodes[index];
  std::int64_t expected = rows;
  if (node.parent != none) {
    const NodeLayout& parent = layout.nodes[node.parent];
    expected = nodes[node.parent].length;
    if (parent.type == Type::fixed_list &&
        __builtin_mul_overflow(expected, static_cast<std::int64_t>(parent.list_size), &expected)) {
      expected = -1;
    }
    // Other writers may give a child more values than its lists show.
    const bool exact =
        parent.type == Type::structure || parent.type == Type::fixed_list || parent.type == Type::sparse_union;
    if (!exact) expected = nodes[index].length;
  }
  if (nodes[index].length < expected || expected < 0) {
    return fail(Error::protocol, "'{}' has length {}, expected {}", path_of(layout, index), nodes[index].length,
                expected);
  }
  for (std::uint32_t i = 0; i < node.buffers; ++i) {
    OFP_TRY(check_size(layout, node.buffer + i, nodes[index], buffers[node.buffer + i].bytes));
  }
  if (node.buffers < 2) return {};
  switch (layout.buffers[node.buffer + 1].kind) {
    case BufferKind::offsets32:
      return check_last_offset<std::int32_t>(layout, frame, index, nodes, buffers);
    case BufferKind::offsets64:
      return check_last_offset<std::int64_t>(layout, frame, index, nodes, buffers);
    default:
      return {};
  }
}

Status read_part(const Layout& layout, Bytes frame, const MessageRange& message, std::uint32_t part, NodeShape* nodes,
                 BufferPlace* buffers) {
  if (message.compressed) {
    return fail(Error::unsupported, "the message at byte {} has a compressed body, only plain ones are read here",
                message.begin);
  }
  const PartLayout& range = layout.parts[part];
  const ipc::RecordBatch& batch = *batch_of(*ipc::GetMessage(metadata_of(frame, message).data()));
  const std::size_t node_count = batch.nodes() != nullptr ? batch.nodes()->size() : 0;
  const std::size_t buffer_count = batch.buffers() != nullptr ? batch.buffers()->size() : 0;
  if (node_count != range.node_end - range.node_begin || buffer_count != range.buffer_end - range.buffer_begin) {
    return fail(Error::protocol, "the message at byte {} has {} nodes and {} buffers, its schema {} and {}",
                message.begin, node_count, buffer_count, range.node_end - range.node_begin,
                range.buffer_end - range.buffer_begin);
  }
  for (std::size_t i = 0; i < node_count; ++i) {
    const ipc::FieldNode* node = batch.nodes()->Get(static_cast<flatbuffers::uoffset_t>(i));
    nodes[range.node_begin + i] = {node->length(), node->null_count()};
  }
  for (std::size_t i = 0; i < buffer_count; ++i) {
    const ipc::Buffer* buffer = batch.buffers()->Get(static_cast<flatbuffers::uoffset_t>(i));
    buffers[range.buffer_begin + i] = {message.body + static_cast<std::uint64_t>(buffer->offset()),
                                       static_cast<std::uint64_t>(buffer->length())};
  }
  for (std::uint32_t node = range.node_begin; node < range.node_end; ++node) {
    OFP_TRY(check_node(layout, frame, node, message.rows, nodes, buffers));
  }
  return {};
}

// Ids of dictionaries in the order of the layout's parts: those within a dictionary's values come before it. Writers
// number and send them as they like.
void collect_ids(const flatbuffers::Vector<flatbuffers::Offset<ipc::Field>>* fields, std::vector<std::int64_t>& ids) {
  if (fields == nullptr) return;
  for (const ipc::Field* field : *fields) {
    collect_ids(field->children(), ids);
    if (field->dictionary() != nullptr) ids.push_back(field->dictionary()->id());
  }
}

Status check_address(Bytes frame) {
  if (reinterpret_cast<std::uintptr_t>(frame.data()) % 8 == 0) return {};
  return fail(Error::invalid, "the frame is at address {}, a multiple of 8 is expected", fmt::ptr(frame.data()));
}

}  // namespace

Result<std::uint64_t> count_rows(Bytes stream) {
  OFP_TRY(check_address(stream));
  std::uint64_t rows = 0;
  for (std::uint64_t at = 0; stream.size() - at >= message_prefix_bytes;) {
    OFP_ASSIGN(const std::optional<MessageRange> message, find_message(stream, at));
    if (!message) break;
    if (const ipc::RecordBatch* batch = ipc::GetMessage(metadata_of(stream, *message).data())->header_as_RecordBatch())
      if (batch->length() < 0 || !checked_add(rows, static_cast<std::uint64_t>(batch->length()), rows))
        return fail(Error::protocol, "the message at byte {} has {} rows, behind {} others", at, batch->length(), rows);
    at = message->body + message->body_bytes;
  }
  return rows;
}

Result<Bytes> schema_bytes(Bytes stream) {
  OFP_TRY(check_address(stream));
  std::optional<MessageRange> message;
  if (stream.size() >= message_prefix_bytes) {
    OFP_ASSIGN(message, find_message(stream, 0));
  }
  if (!message) return fail(Error::protocol, "the stream of {} bytes has no schema message", stream.size());
  return metadata_of(stream, *message);
}

Result<FrameView> parse_frame(Bytes frame) {
  OFP_TRY(check_address(frame));
  FrameView view;
  std::uint64_t at = 0;
  while (frame.size() - at >= message_prefix_bytes) {
    OFP_ASSIGN(std::optional<MessageRange> found, find_message(frame, at));
    if (!found) {
      view.marked = true;
      at += end_marker_bytes;
      break;
    }
    MessageRange& message = *found;
    const Bytes metadata = metadata_of(frame, message);
    OFP_TRY(check_header(*ipc::GetMessage(metadata.data()), metadata, message));
    if ((message.kind == MessageKind::schema) != view.messages.empty()) {
      return fail(Error::protocol, "message {} of the frame is {}, only the first one is a schema",
                  view.messages.size(), message.kind == MessageKind::schema ? "a schema" : "no schema");
    }
    if (message.kind == MessageKind::batch && __builtin_add_overflow(view.rows, message.rows, &view.rows)) {
      return fail(Error::protocol, "the batches of the frame have more rows than can be counted");
    }
    view.messages.push_back(message);
    at = message.body + message.body_bytes;
  }
  view.end = at;
  if (view.messages.empty()) return fail(Error::protocol, "the frame of {} bytes has no schema message", frame.size());
  if (!view.marked && at != frame.size()) {
    return fail(Error::protocol, "the frame ends with {} bytes that are no message, expected 8 or none",
                frame.size() - at);
  }
  return view;
}

Result<Schema> read_schema(Bytes frame, const FrameView& view) {
  return read_schema_metadata(metadata_of(frame, view.messages.at(0)));
}

Status read_batch(const Layout& layout, Bytes frame, const FrameView& view, std::int64_t& rows,
                  std::vector<NodeShape>& nodes, std::vector<BufferPlace>& buffers) {
  nodes.resize(layout.nodes.size());
  buffers.resize(layout.buffers.size());
  const std::size_t parts = layout.parts.size();
  if (view.messages.size() != parts + 1) {
    return fail(Error::protocol, "the frame has {} messages, its schema needs {}", view.messages.size(), parts + 1);
  }
  std::vector<std::int64_t> ids;
  if (const ipc::Schema* schema = ipc::GetMessage(metadata_of(frame, view.messages[0]).data())->header_as_Schema())
    collect_ids(schema->fields(), ids);
  if (ids.size() + 1 != parts)
    return fail(Error::protocol, "the frame's schema has {} dictionaries, expected {}", ids.size(), parts - 1);
  std::vector<bool> read(parts);
  for (std::size_t i = 1; i < parts; ++i) {
    const MessageRange& message = view.messages[i];
    const auto id = std::ranges::find(ids, message.dictionary);
    const std::size_t part = static_cast<std::size_t>(id - ids.begin()) + 1;
    if (message.kind != MessageKind::dictionary || id == ids.end() || read[part])
      return fail(Error::protocol, "message {} of the frame is {} {}, expected a new dictionary", i,
                  message.kind == MessageKind::batch ? "batch" : "dictionary", message.dictionary);
    read[part] = true;
    OFP_TRY(read_part(layout, frame, message, static_cast<std::uint32_t>(part), nodes.data(), buffers.data()));
  }
  if (view.messages.back().kind != MessageKind::batch)
    return fail(Error::protocol, "message {} of the frame is dictionary {}, expected batch 0", parts,
                view.messages.back().dictionary);
  OFP_TRY(read_part(layout, frame, view.messages.back(), 0, nodes.data(), buffers.data()));
  rows = view.messages.back().rows;
  return {};
}

MessagePiece fit_message(Bytes frame, const MessageRange& message, std::uint64_t position, std::uint32_t alignment) {
  MessagePiece piece;
  const std::uint64_t metadata_end = position + message_prefix_bytes + message.metadata_bytes;
  if (message.compressed) alignment = ipc_alignment;
  if (message.body_bytes > 0) piece.padding_bytes = align_up(metadata_end, alignment) - metadata_end;
  store(piece.prefix.data(), continuation);
  store(piece.prefix.data() + 4, static_cast<std::int32_t>(message.metadata_bytes + piece.padding_bytes));
  piece.metadata = frame.subspan(message.begin + message_prefix_bytes, message.metadata_bytes);
  piece.body = frame.subspan(message.body, message.body_bytes);
  return piece;
}

}  // namespace offpath::frame
