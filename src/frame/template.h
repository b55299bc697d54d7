// The part that all batches of a stream share, made once: the schema message, and for each part of the layout a record
// batch message whose numbers are overwritten in place for every batch.
//
// A frame is an Arrow IPC stream of one batch, which any reader opens by itself:
//
//   0                 schema message
//   message           dictionary message  | body     one for each dictionary
//   message           record batch message | body
//   end - 8           end-of-stream marker
//
//   message = 0xFFFFFFFF | i32 metadata bytes, padding included | metadata | zeros to the alignment | body
//
// The alignment is of the body and of each buffer in it, from the beginning of the frame. Padding
// before a body is part of its metadata; a body ends at a multiple of 8, not of the alignment.
// Absent buffers take no room.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frame/layout.h"
#include "frame/schema.h"
#include "wire/messages/stream_messages.h"

namespace offpath::frame {

inline constexpr std::uint32_t ipc_alignment = 8;      // destination `ipc`
inline constexpr std::uint32_t page_alignment = 4096;  // destination `ipc-page`

inline constexpr std::uint64_t message_prefix_bytes = 8;
inline constexpr std::uint64_t end_marker_bytes = 8;

// A message's flatbuffer and where its numbers are in it.
struct Prototype {
  std::vector<std::byte> metadata;  // a multiple of 8
  std::uint32_t body_bytes_at = 0;  // i64
  std::uint32_t rows_at = 0;        // i64
  std::uint32_t nodes_at = 0;       // { i64 length, i64 null_count }, one for each node of the part
  std::uint32_t buffers_at = 0;     // { i64 offset in the body, i64 bytes }, one for each buffer of the part
};

struct Template {
  Schema schema;
  Layout layout;
  std::uint32_t alignment = page_alignment;  // a power of two, 8..4096
  wire::Compression compression =
      wire::Compression::none;            // of the bodies, as the messages state it (body_compression.h)
  std::vector<std::byte> schema_message;  // with its prefix; a multiple of 8
  std::vector<Prototype> prototypes;      // as Layout::parts
};

[[nodiscard]] Result<std::shared_ptr<const Template>> make_template(
    Schema schema, std::uint32_t alignment, wire::Compression compression = wire::Compression::none);

// The message at the head of a stream file.
[[nodiscard]] Result<std::vector<std::byte>> schema_message(const Schema& schema);

// The schema in the flatbuffer of a schema message (without its prefix), from any bytes.
[[nodiscard]] Result<Schema> read_schema_metadata(Bytes metadata);

}  // namespace offpath::frame
