// Decompresses frames, for tests: neither the agent nor programs do that.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include <lz4frame.h>
#include <zstd.h>

#include "frame/parse.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

inline std::vector<std::byte> decompressed(Bytes from, std::uint64_t bytes, wire::Compression compression) {
  std::vector<std::byte> to(bytes);
  if (compression == wire::Compression::zstd) {
    EXPECT_EQ(ZSTD_decompress(to.data(), to.size(), from.data(), from.size()), bytes);
    return to;
  }
  LZ4F_dctx* context = nullptr;
  EXPECT_EQ(LZ4F_createDecompressionContext(&context, LZ4F_VERSION), 0u);
  std::size_t written = to.size(), taken = from.size();
  EXPECT_EQ(LZ4F_decompress(context, to.data(), &written, from.data(), &taken, nullptr), 0u);
  EXPECT_EQ(written, bytes);
  EXPECT_EQ(taken, from.size());
  LZ4F_freeDecompressionContext(context);
  return to;
}

// A buffer of a compressed frame, and its place in the body.
struct FoundBuffer {
  std::uint64_t offset = 0, bytes = 0;
  bool as_it_is = false;
  std::vector<std::byte> plain;
};

// All buffers, as Layout::buffers. `form` is the compressed frame's.
inline std::vector<FoundBuffer> found_buffers(const frame::Template& form, Bytes frame, const frame::FrameView& view) {
  std::vector<FoundBuffer> all(form.layout.buffers.size());
  for (std::size_t part = 0; part < form.layout.parts.size(); ++part) {
    const frame::MessageRange& message = part == 0 ? view.messages.back() : view.messages[part];
    EXPECT_TRUE(message.compressed);
    const frame::PartLayout& range = form.layout.parts[part];
    const std::byte* place =
        frame.data() + message.begin + frame::message_prefix_bytes + form.prototypes[part].buffers_at;
    for (std::uint32_t buffer = range.buffer_begin; buffer < range.buffer_end; ++buffer, place += 16) {
      FoundBuffer& found = all[buffer];
      found.offset = load<std::uint64_t>(place);
      found.bytes = load<std::uint64_t>(place + 8);
      if (found.bytes == 0) continue;
      const Bytes bytes = frame.subspan(message.body + found.offset, found.bytes);
      const auto length = load<std::int64_t>(bytes.data());
      found.as_it_is = length == -1;
      if (found.as_it_is)
        found.plain.assign(bytes.begin() + 8, bytes.end());
      else
        found.plain = decompressed(bytes.subspan(8), static_cast<std::uint64_t>(length), form.compression);
    }
  }
  return all;
}

}  // namespace offpath::mover
