// A frame, or any Arrow IPC stream of the kind written here, read back with every number checked
// before use; and its messages fitted together into a stream file.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "frame/plan.h"

namespace offpath::frame {

enum class MessageKind : std::uint8_t { schema, dictionary, batch };

struct MessageRange {
  MessageKind kind = MessageKind::schema;
  std::uint64_t begin = 0;           // where its prefix is
  std::uint64_t metadata_bytes = 0;  // of the flatbuffer at begin + 8, a multiple of 8, without padding
  std::uint64_t body = 0;
  std::uint64_t body_bytes = 0;
  std::int64_t rows = 0;        // of a dictionary: its values
  std::int64_t dictionary = 0;  // its id
  bool compressed = false;      // its body (body_compression.h)
};

struct FrameView {
  std::vector<MessageRange> messages;  // the schema first, then dictionaries and batches as they come
  std::uint64_t end = 0;               // of the end marker, or of the last message without one
  bool marked = false;                 // there is an end marker
  std::int64_t rows = 0;               // of all batches
};

// `frame` begins at an address that is a multiple of 8. Types of message that are not written here are
// Error::unsupported, everything else that is wrong Error::protocol. Compressed bodies are not looked into.
[[nodiscard]] Result<FrameView> parse_frame(Bytes frame);

// Rows of all batches of an Arrow IPC stream at such an address, whatever the types of its columns. Reads the messages'
// metadata alone. Error::protocol or Error::version for other bytes.
[[nodiscard]] Result<std::uint64_t> count_rows(Bytes stream);

// The metadata of the schema message that such a stream begins with. Streams of one writer have equal columns if these
// bytes are equal; columns may be equal though the bytes are not.
[[nodiscard]] Result<Bytes> schema_bytes(Bytes stream);

// The schema of a parsed frame.
[[nodiscard]] Result<Schema> read_schema(Bytes frame, const FrameView& view);

// Nodes and buffers of a frame of one batch, for export_array. The messages must be those of `layout`.
// Checks that every buffer lies in its body and is as long as its node needs. Nothing is decompressed here: that is
// Error::unsupported.
[[nodiscard]] Status read_batch(const Layout& layout, Bytes frame, const FrameView& view, std::int64_t& rows,
                                std::vector<NodeShape>& nodes, std::vector<BufferPlace>& buffers);

// One message in a stream file: written in this order at the given position.
struct MessagePiece {
  std::array<std::byte, message_prefix_bytes> prefix{};
  Bytes metadata;
  std::uint64_t padding_bytes = 0;  // zeros, up to the alignment of the body
  Bytes body;                       // a multiple of 8

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return prefix.size() + metadata.size() + padding_bytes + body.size();
  }
};

// The message of a parsed frame for a file that has `position` bytes so far (a multiple of 8): its
// body is aligned in the file as it was in the frame, a compressed one at 8. A file is the schema message of the first
// frame, then every other message of all frames, then end_marker.
[[nodiscard]] MessagePiece fit_message(Bytes frame, const MessageRange& message, std::uint64_t position,
                                       std::uint32_t alignment);

inline constexpr std::array<std::byte, end_marker_bytes> end_marker{std::byte{0xFF}, std::byte{0xFF}, std::byte{0xFF},
                                                                    std::byte{0xFF}};

}  // namespace offpath::frame
