// A finished frame made smaller: the bodies of its messages compressed buffer by buffer, as Arrow IPC has it
// (BodyCompression, method BUFFER). The result is a frame as any other, which Arrow's readers decompress by themselves.
//
//   body    = buffer | zeros to 8 | buffer | …         buffers without bytes take no room
//   buffer  = i64 bytes when plain | LZ4 or Zstandard frame
//           = i64 -1               | the bytes as they are, where the codec would have made more of them
//
// It takes two passes, because compressed lengths are known only afterwards, and a frame's memory cannot shrink:
//
//   pack           every buffer through the codec into scratch memory, then the layout of the result
//   write_packed   messages and buffers into memory of exactly that size
//
// Nothing in a compressed frame is page aligned or keeps its place: its reader decompresses it into memory of its own.
#pragma once

#include <vector>

#include "frame/plan.h"
#include "wire/messages/stream_messages.h"

namespace offpath::frame {

// A codec and its executor. One frame's buffers are handed over together, so that an engine beside the processor can
// have them under way at once; src/mover/body_compressor.h chooses.
class BodyCompressor {
 public:
  struct Task {
    Bytes from;
    MutableBytes to;            // room(from.size())
    std::uint64_t written = 0;  // of `to`
  };
  virtual ~BodyCompressor() = default;
  [[nodiscard]] virtual wire::Compression compression() const noexcept = 0;
  // The most that `bytes` may become.
  [[nodiscard]] virtual std::uint64_t room(std::uint64_t bytes) const noexcept = 0;
  // Returns when all are done. Thread-safe.
  [[nodiscard]] virtual Status compress(std::span<Task> tasks) const = 0;
};

// Where every part of the compressed frame goes.
struct PackedFrame {
  struct Piece {
    std::uint64_t target = 0;
    std::int64_t plain_bytes = 0;  // the length written before the bytes; -1: they are not compressed
    Bytes bytes;                   // in the scratch memory, or in the plain frame
  };
  Plan plan;  // messages and padding, for write_head
  std::vector<Piece> pieces;
  std::size_t compressed = 0;  // number of compressed buffers
};

// Scratch memory that `pack` needs for a frame of this plan.
[[nodiscard]] std::uint64_t packing_bytes(const BodyCompressor& compressor, const Plan& plan);

// `form` has the frame's schema, the compressor's codec and ipc_alignment. `frame` is finished. The result points into
// `frame` and `scratch`.
[[nodiscard]] Status pack(const Template& form, const BodyCompressor& compressor, const Plan& plan, Bytes frame,
                          MutableBytes scratch, PackedFrame& packed);

// `to` has packed.plan.frame_bytes.
void write_packed(const Template& form, const PackedFrame& packed, MutableBytes to);

}  // namespace offpath::frame
